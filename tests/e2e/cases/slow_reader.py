"""A reader of a log that does not read: memory stays bounded, others are served."""

import ssl
import time

from agent import Agent, connect, get, place, running, same, status_number, true

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: flood}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "yes 0123456789012345678901234567890123456 | head -n 500000; exec sleep 3600"]
"""


def case():
    agent = Agent()
    agent.start()
    place("flood.yaml", text=MANIFEST)
    running("flood")
    time.sleep(3)
    before = status_number(agent.pid, "VmRSS")
    held = []
    for _ in range(20):
        one = ssl._create_unverified_context().wrap_socket(connect(10250), server_hostname="node1")
        one.sendall(
            b"GET /containerLogs/default/flood-node1/main?follow=true HTTP/1.1\r\n"
            b"Host: node1\r\n\r\n"
        )
        held.append(one)
    time.sleep(3)
    same("others are served", get("/pods", port=10250)[0], 200)
    if not agent.reference:
        grown = status_number(agent.pid, "VmRSS") - before
        true("20 stuck readers take less than 8 MiB", grown < 8192, f"{grown} KiB")
    status, body = get("/containerLogs/default/flood-node1/main", port=10250, timeout=60)
    same("a reader that reads gets it all", (status, body.count(b"\n")), (200, 500000))
    for one in held:
        one.close()
