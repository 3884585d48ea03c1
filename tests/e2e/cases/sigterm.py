"""SIGTERM ends the agent quickly and well, and leaves the pods running."""

import signal
import time

from agent import Agent, live, place, running, same, true


def case():
    agent = Agent()
    agent.start()
    place("hello.yaml")
    running("hello")
    [before] = live("hello")
    begin = time.monotonic()
    same("exit code", agent.end(signal.SIGTERM), 0)
    true("ends within 3 s", time.monotonic() - begin < 3, time.monotonic() - begin)
    time.sleep(2)
    [after] = live("hello")
    same("the container", after["ID"], before["ID"])
    agent.start()
    running("hello")
    same("the container after the next start", [c["ID"] for c in live("hello")], [before["ID"]])
