"""An edited manifest: the old pod ends within its own grace, then the new one starts; never
both."""

from agent import Agent, live, never, place, running, same, true, until


def traces():
    with open("/run/traces/graceful-node1") as file:
        return [line.split() for line in file]


def case():
    Agent().start()
    place("graceful.yaml")
    running("graceful")
    place("graceful.yaml", replace={"value: one": "value: two"})
    never(
        "two containers of one pod at once",
        lambda: (found := live("graceful")) and len(found) > 1 and found,
        4,
    )
    until("the new version runs", lambda: len(traces()) == 3)
    same(
        "what the pod wrote",
        [line[:2] for line in traces()],
        [["start", "one"], ["end", "one"], ["start", "two"]],
    )
    true("the old one ended before the new one began", int(traces()[1][2]) <= int(traces()[2][2]))
    running("graceful")
