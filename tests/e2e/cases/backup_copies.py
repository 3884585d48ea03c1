"""Editors' and people's backup copies beside a manifest: the first name wins, one pod runs, a line names both files."""

from agent import MANIFESTS, Agent, live, never, place, running, true

OURS = True  # upstream takes every file, and the last one wins


def case():
    stale = {"value: one": "value: stale"}
    place("graceful.yaml")
    for copy in ("graceful.yaml.backup", "graceful.yaml-bak", "graceful.yaml~", ".graceful.yaml.swp"):
        with open(f"{MANIFESTS}/graceful.yaml") as file:
            place(copy, text=file.read().replace(*list(stale.items())[0]))
    agent = Agent()
    agent.start()
    pod = running("graceful")
    true("the real file won", pod["spec"]["containers"][0]["env"][0]["value"] == "one")
    never("a second container", lambda: len(live("graceful")) != 1, 5)
    line = agent.says("graceful.yaml-bak")
    true("the line names the file that won", "graceful.yaml" in line.replace("graceful.yaml-bak", ""), line)
