"""containerd stands still for 10 s: the agent answers meanwhile, catches up, and restarts
nothing."""

import time

import containerd
from agent import container_status, get, live, place, pods, running, same, true, with_hello


def case():
    agent, before = with_hello()
    containerd.stall()
    try:
        place("guaranteed.yaml")
        slowest, end = 0.0, time.monotonic() + 10
        while time.monotonic() < end:
            begin = time.monotonic()
            same("healthz", get("/healthz", port=10248)[0], 200)
            same("status of /pods", get("/pods")[0], 200)
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.2)
        true("both answers within a second", slowest < 1, slowest)
    finally:
        containerd.resume()
    running("guaranteed", "hello")
    same("the container", [c["ID"] for c in live("hello")], [before["ID"]])
    same("restarts", container_status(pods()["hello"])["restartCount"], 0)
    same("containers of guaranteed", len(live("guaranteed")), 1)
