"""5,000 files appear beside a manifest: one line says that they are too many, the pod goes on, and
the files that are left when they are gone count again."""

import os

from agent import MANIFESTS, live, never, place, pods, running, same, with_hello

OURS = True  # upstream reads them all


def case():
    agent, before = with_hello()
    for number in range(5000):
        with open(f"{MANIFESTS}/flood-{number}.yaml", "w") as file:
            file.write("{}")
    agent.says("holds more than 1000 files")
    never("hello left", lambda: "hello" not in pods(), 25)  # longer than a scan
    same("the container", [c["ID"] for c in live("hello")], [before["ID"]])
    for number in range(5000):
        os.unlink(f"{MANIFESTS}/flood-{number}.yaml")
    place("guaranteed.yaml")
    running("guaranteed")
    same("the container still", [c["ID"] for c in live("hello")], [before["ID"]])
