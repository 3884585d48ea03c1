"""A manifest that is emptied, half written, then whole: nothing stops for the broken states, one
change for the good one."""

import os
import time

from agent import MANIFESTS, fixture, live, place, pods, running, same, until, with_hello

OURS = True  # upstream stops the pod while its file cannot be read


def case():
    agent, before = with_hello()
    path = f"{MANIFESTS}/hello.yaml"
    text = fixture("hello.yaml")
    changed = text.replace('echo "hello $n"', 'echo "changed $n"')

    with open(path, "w") as file:  # in place: emptied, half of it, all of it
        time.sleep(0.05)
        file.write(text[: len(text) // 2])
        file.flush()
        time.sleep(1.5)
        same("the container goes on", [c["ID"] for c in live("hello")], [before["ID"]])
        file.write(text[len(text) // 2 :])
    time.sleep(2)
    same("the same text changes nothing", [c["ID"] for c in live("hello")], [before["ID"]])

    with open(path, "w") as file:  # a broken state that stays for longer than a scan
        file.write("kind: Pod\n  name: [")
    agent.says("hello.yaml")
    time.sleep(22)
    same("a broken file stops nothing", [c["ID"] for c in live("hello")], [before["ID"]])

    # As vim saves: a try file, the old one renamed away, a new one written, the backup removed.
    with open(f"{MANIFESTS}/4913", "w"):
        pass
    os.unlink(f"{MANIFESTS}/4913")
    os.rename(path, path + "~")
    with open(path, "w") as file:
        file.write(changed)
    os.unlink(path + "~")
    until(
        "the change is adopted",
        lambda: "changed" in pods()["hello"]["spec"]["containers"][0]["args"][0],
        30,
    )
    until(
        "the new container runs",
        lambda: [c["ID"] for c in live("hello")] not in ([], [before["ID"]]),
        30,
    )
    running("hello")
    same("restarts", pods()["hello"]["status"]["containerStatuses"][0]["restartCount"], 0)
