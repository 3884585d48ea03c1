"""containerd restarts and is killed while pods run: nothing restarts, and new pods start
afterwards."""

import signal

import containerd
from agent import container_status, fixture, get, live, place, pods, running, same, true, with_hello


def case():
    agent, before = with_hello()
    for how in (signal.SIGTERM, signal.SIGKILL):
        containerd.stop(how)
        same("healthz while the runtime is away", get("/healthz", port=10248)[0], 200)
        true("pods are told while the runtime is away", "hello" in pods())
        containerd.start()
        name = f"after-{how.name.lower()}"
        place(f"{name}.yaml", text=fixture("besteffort.yaml").replace("besteffort", name))
        running(name)
        same("the container", [c["ID"] for c in live("hello")], [before["ID"]])
        same("restarts", container_status(pods()["hello"])["restartCount"], 0)
        same("sandboxes of hello", len(live("hello", "sandbox")), 1)
