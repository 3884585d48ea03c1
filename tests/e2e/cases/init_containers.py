"""Init containers run one after the other before the main one, and not again after a restart of the
agent."""

import time

from agent import Agent, container_status, log_lines, of_pod, place, running, same, until


def case():
    agent = Agent()
    agent.start()
    place("init-containers.yaml")
    pod = running("init-containers")
    until("the log", lambda: len(log_lines(pod)) == 3)
    same("order", log_lines(pod), ["first", "second", "main"])
    for name in ("first", "second"):
        have = container_status(pod, name, "initContainerStatuses")
        same(f"{name} ended", have["state"]["terminated"]["reason"], "Completed")
        same(f"{name} is ready", have["ready"], True)
    agent.restart()
    time.sleep(3)
    pod = running("init-containers")
    same(
        "containers",
        sorted(
            info["Labels"]["io.kubernetes.container.name"] for info in of_pod("init-containers")
        ),
        ["first", "main", "second"],
    )
