"""A tree in an emptyDir that is deeper than any path can be long: the pod's directory goes all the
same."""

import os

from agent import STATE, Agent, gone, place, remove, running, until

DEPTH = 2000


def case():
    agent = Agent()
    agent.start()
    place("emptydir.yaml")
    pod = running("emptydir")
    path = f"{STATE}/pods/{pod['metadata']['uid']}"
    volume = next(
        os.path.join(path, "volumes/kubernetes.io~empty-dir", name)
        for name in os.listdir(f"{path}/volumes/kubernetes.io~empty-dir")
    )
    here = os.open(volume, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("0123456789", dir_fd=here)
        below = os.open("0123456789", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove("emptydir.yaml")
    gone("emptydir")
    until("the pod's directory is gone", lambda: not os.path.exists(path), 30)
