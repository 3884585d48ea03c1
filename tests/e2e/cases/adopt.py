"""kill -9 with pods running: the next start adopts them, and restarts nothing."""

import time

from agent import Agent, container_status, live, place, pods, ready, running, same, until


def case():
    agent = Agent()
    agent.start()
    names = ["hello", "guaranteed", "init-containers"]
    for name in names:
        place(f"{name}.yaml")
    for name in names:
        running(name)
    before = {name: (live(name)[0]["ID"], live(name, "sandbox")[0]["ID"]) for name in names}
    for again in range(3):
        agent.restart()
        until(
            "all pods are Running and Ready again",
            lambda: all(ready(pods()[name]) for name in names),
        )
        time.sleep(3)  # a restart would be seen by now: one relist and one sync are over
        for name in names:
            [container], [sandbox] = live(name), live(name, "sandbox")
            same(f"{name} after kill {again + 1}", (container["ID"], sandbox["ID"]), before[name])
            same(f"restarts of {name}", container_status(pods()[name])["restartCount"], 0)
