"""No containerd at the start: one clear message, the agent waits, and pods run as soon as it is
there."""

import time

import containerd
from agent import Agent, get, place, running, same, true

BARE = True
OURS = True  # upstream gives up, and leaves the waiting to its supervisor


def case():
    agent = Agent()
    place("hello.yaml")
    agent.start()
    agent.says("/run/containerd/containerd.sock")
    time.sleep(6)
    same("healthz", get("/healthz", port=10248)[0], 200)
    true(
        "it does not repeat itself all the time",
        agent.output().count("containerd.sock") < 12,
        agent.output(),
    )
    containerd.start()
    running("hello")
