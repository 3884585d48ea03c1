"""Restart policies: Never once, OnFailure until it works, Always at once and then with back-off."""

import time

from agent import Agent, container_status, of_pod, phase, place, pods, same, true, until


def case():
    Agent().start()
    for name in ("never-ok", "never-failed", "onfailure-second-try", "always-crash"):
        place(f"{name}.yaml")

    pod = phase("never-ok", "Succeeded")
    ended = container_status(pod)["state"]["terminated"]
    same("never-ok", (ended["exitCode"], ended["reason"]), (0, "Completed"))
    same(
        "its Ready condition",
        {c["type"]: c.get("reason") for c in pod["status"]["conditions"]}["Ready"],
        "PodCompleted",
    )

    pod = phase("never-failed", "Failed")
    same("never-failed", container_status(pod, "bad")["state"]["terminated"]["exitCode"], 7)
    same("its neighbour", container_status(pod, "good")["state"]["terminated"]["exitCode"], 0)

    pod = phase("onfailure-second-try", "Succeeded")
    have = container_status(pod)
    same("restarts", have["restartCount"], 1)
    same("exit code before", have["lastState"]["terminated"]["exitCode"], 3)

    waiting = until(
        "always-crash waits in back-off",
        lambda: (
            (w := container_status(pods()["always-crash"])["state"].get("waiting"))
            and w["reason"] == "CrashLoopBackOff"
            and w
        ),
    )
    true(
        "the message",
        waiting["message"].startswith(
            "back-off 10s restarting failed container=crash pod=always-crash-node1_default("
        ),
        waiting["message"],
    )
    until(
        "its third run", lambda: container_status(pods()["always-crash"])["restartCount"] == 2, 40
    )
    until(
        "a back-off of 20 s",
        lambda: (
            "back-off 20s"
            in container_status(pods()["always-crash"])["state"]["waiting"]["message"]
        ),
        20,
    )
    time.sleep(2)
    true("old containers are pruned", len(of_pod("always-crash")) <= 2, len(of_pod("always-crash")))
    same("never-ok ran once", len(of_pod("never-ok")), 1)
