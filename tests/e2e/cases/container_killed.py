"""A container and a sandbox that die: the container is restarted in place, the sandbox anew; counts
rise by one."""

import os
import signal

from agent import Agent, container_status, live, place, pods, running, same, until


def case():
    Agent().start()
    place("hello.yaml")
    running("hello")
    [container], [sandbox] = live("hello"), live("hello", "sandbox")
    os.kill(container["pid"], signal.SIGKILL)
    until("restarted", lambda: container_status(pods()["hello"])["restartCount"] == 1)
    pod = running("hello")
    same("exit code", container_status(pod)["lastState"]["terminated"]["exitCode"], 137)
    same("the sandbox stays", [s["ID"] for s in live("hello", "sandbox")], [sandbox["ID"]])

    os.kill(sandbox["pid"], signal.SIGKILL)
    until(
        "another sandbox",
        lambda: [s["ID"] for s in live("hello", "sandbox")] not in ([], [sandbox["ID"]]),
        60,
    )
    until("restarted again", lambda: container_status(pods()["hello"])["restartCount"] == 2, 60)
    running("hello")
    same("containers that run", len(live("hello")), 1)
    same("sandboxes that run", len(live("hello", "sandbox")), 1)
