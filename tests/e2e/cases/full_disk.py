"""The state directory's disk is full: pods that run go on, the agent says so once, and pods start
when there is room."""

import os
import subprocess
import time

from agent import STATE, container_status, get, live, place, pods, running, same, true, with_hello

TAPES = ""  # the tape ends where the disk did: checked here


def case():
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "small", STATE], check=True)
    agent, before = with_hello()
    filler = f"{STATE}/filler"
    with open(filler, "wb") as file:
        try:
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        except OSError:
            pass
    place("guaranteed.yaml")
    time.sleep(12)
    same("healthz", get("/healthz", port=10248)[0], 200)
    same("the container", [c["ID"] for c in live("hello")], [before["ID"]])
    complaints = [line for line in agent.output().splitlines() if "no space left" in line.lower()]
    if not agent.reference:
        true("it says that the disk is full", complaints, agent.last_line())
        true("and does not say it all the time", len(complaints) < 30, len(complaints))
    os.unlink(filler)
    running("guaranteed", seconds=90)
    same("restarts", container_status(pods()["hello"])["restartCount"], 0)
    agent.restart()  # a start on what the full disk left behind
    running("hello", "guaranteed")
    same("the container still", [c["ID"] for c in live("hello")], [before["ID"]])
