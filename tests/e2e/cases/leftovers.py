"""Pods whose manifests went away while the agent was down are stopped and cleaned up at the next
start."""

import glob

from agent import STATE, Agent, live, of_pod, place, remove, running, same, until


def case():
    agent = Agent()
    agent.start()
    place("hello.yaml")
    place("guaranteed.yaml")
    uid = running("guaranteed")["metadata"]["uid"]
    running("hello")
    [before] = live("hello")
    agent.kill()
    remove("guaranteed.yaml")
    agent.start()
    until(
        "the leftover is gone",
        lambda: not of_pod("guaranteed") and not of_pod("guaranteed", "sandbox"),
        60,
    )
    until("its folder too", lambda: not glob.glob(f"{STATE}/pods/{uid}"))
    until("its cgroup too", lambda: not glob.glob(f"/sys/fs/cgroup/**/pod{uid}", recursive=True))
    same("the other goes on", [c["ID"] for c in live("hello")], [before["ID"]])
