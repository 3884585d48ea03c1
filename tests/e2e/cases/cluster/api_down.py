"""A minute without the API server: pods run on and are restarted, static pods obey their files;
after it all changes come through, and nothing was restarted without need."""

import os
import signal
import time

from agent import container_status, live, never, place, remove, same, until
from member import deployment, shell

SECONDS = 300
STATIC = "/api/v1/namespaces/default/pods/hello-node1"


def case(w):
    w.create(deployment("web", 3))
    w.create(shell("dies"))
    web, dies = w.have("web", 3), w.running("dies")
    before = w.ids(web)
    w.cluster.down()
    down = time.monotonic()

    [container] = w.containers(dies)
    os.kill(container["pid"], signal.SIGKILL)
    until(
        "what died is started again",
        lambda: w.containers(dies) != [container] and w.containers(dies),
    )
    place("hello.yaml")
    until("a new static pod runs", lambda: live("hello"))
    never("a pod ends", lambda: w.ids(web) != before, 20)
    remove("hello.yaml")
    until("a removed static pod ends", lambda: not live("hello"))
    time.sleep(max(0, 60 - (time.monotonic() - down)))
    same("the pods are the same", w.ids(web), before)

    w.cluster.up()
    w.node_ready()
    until("the restart is told", lambda: container_status(w.pod("dies"))["restartCount"] == 1, 60)
    until("the static pod is not", lambda: not w.cluster.get(STATIC), 60)
    w.kubectl("scale", "deployment/web", "--replicas=4")
    four = w.have("web", 4, 150)
    kept = {uid: ids for uid, ids in w.ids(four).items() if uid in before}
    same("nothing of the others was restarted", kept, before)
    same("restarts", [container_status(pod)["restartCount"] for pod in four], [0] * 4)
    w.kubectl("delete", "deployment/web", "pod/dies")
    for pod in four:
        w.gone(pod)
