"""kill -9 at many moments of a pod's start: one sandbox, one container, no name conflict
afterwards."""

import time

from agent import Agent, fixture, live, of_pod, place, running, same, true

SECONDS = 240


def case():
    agent = Agent()
    agent.start()
    for step in range(12):
        name = f"besteffort-{step}"
        place(
            f"{name}.yaml",
            text=fixture("besteffort.yaml").replace("name: besteffort", f"name: {name}"),
        )
        time.sleep(
            0.05 + 0.06 * step
        )  # a start takes 200 to 800 ms here: the kills fall on all of it
        agent.restart()
    for step in range(12):
        name = f"besteffort-{step}"
        running(name)
        same(f"containers of {name} that run", len(live(name)), 1)
        same(f"sandboxes of {name} that run", len(live(name, "sandbox")), 1)
        # One that was made and never started may lie beside it until it is pruned.
        true(f"containers of {name} in all", len(of_pod(name)) <= 2, len(of_pod(name)))
    true("no name conflict", "is reserved for" not in agent.output())
