"""Editors' and people's backup copies beside a manifest: the first name wins, one pod runs, a line
names both files."""

from agent import Agent, fixture, live, never, place, running, true

OURS = True  # upstream takes every file, and the last one wins


def case():
    place("graceful.yaml")
    for copy in (
        "graceful.yaml.backup",
        "graceful.yaml-bak",
        "graceful.yaml~",
        ".graceful.yaml.swp",
    ):
        place(copy, text=fixture("graceful.yaml").replace("value: one", "value: stale"))
    agent = Agent()
    agent.start()
    pod = running("graceful")
    true("the real file won", pod["spec"]["containers"][0]["env"][0]["value"] == "one")
    never("a second container", lambda: len(live("graceful")) != 1, 5)
    line = agent.says("graceful.yaml-bak")
    true(
        "the line names the file that won",
        "graceful.yaml" in line.replace("graceful.yaml-bak", ""),
        line,
    )
