"""The handlers of 10250 that people ask by hand: /logs/, /flagz, /statusz, /debug/flags/v, /checkpoint, /metrics/slis."""

import os

from agent import Agent, ask, get, place, running, same, true


def case():
    Agent().start()
    place("hello.yaml")
    running("hello")

    with open("/var/log/noted", "w", encoding="utf-8") as file:
        file.write("words\n" * 100000)
    status, page = get("/logs/", port=10250)
    same("status of /logs/", status, 200)
    true("the names in it", b'<a href="noted">noted</a>' in page, page)
    same("a file", get("/logs/noted", port=10250), (200, b"words\n" * 100000))
    (folder,) = [name for name in os.listdir("/var/log/pods") if "hello" in name]
    status, text = get(f"/logs/pods/{folder}/hello/0.log", port=10250)
    true("the log of a container as it is", status == 200 and b" stdout F " in text, text)
    same("no such file", get("/logs/nothing", port=10250)[0], 404)

    status, flags = get("/flagz", port=10250)
    true("flags", flags.startswith(b"\nkubelet flagz\nWarning: "), flags)
    true("one of them", b"\nroot-dir=/var/lib/kubelet\n" in flags, flags)
    status, text = get("/statusz", port=10250)
    true("status", text.startswith(b"\nkubelet statusz\nWarning: "), text)
    true("its version", b"\nBinary version: 1.36." in text, text)

    said = ask("PUT", "/debug/flags/v", 10250, body="4")
    same("verbosity", said, (200, b"successfully set klog.logging.verbosity to 4"))
    same("no verbosity", ask("PUT", "/debug/flags/v", 10250, body="four")[0], 400)

    # The runtime here makes none.
    status, text = ask("POST", "/checkpoint/default/hello-node1/hello", 10250)
    same("checkpoint", status, 500)
    true("and why not", b"checkpointing of default/hello-node1/hello failed" in text, text)
    same("of nobody", ask("POST", "/checkpoint/default/nobody/hello", 10250)[0], 404)

    get("/healthz", port=10250)
    status, page = get("/metrics/slis", port=10250)
    true("slis", b'kubernetes_healthcheck{name="ping",type="healthz"} 1\n' in page, page)
