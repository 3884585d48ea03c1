"""SIGTERM ends the agent quickly and well, and leaves the pods running; signals that do nothing to a
program in Go do nothing."""

import signal
import time

from agent import live, running, same, true, with_hello


def case():
    agent, before = with_hello()
    for name in ("USR1", "USR2", "ALRM", "PIPE", "XFSZ"):
        agent.process.send_signal(getattr(signal, f"SIG{name}"))
    time.sleep(0.5)
    true("it still runs", agent.process.poll() is None, agent.process.poll())
    begin = time.monotonic()
    same("exit code", agent.end(signal.SIGTERM), 0)
    true("ends within 3 s", time.monotonic() - begin < 3, time.monotonic() - begin)
    time.sleep(2)
    [after] = live("hello")
    same("the container", after["ID"], before["ID"])
    agent.start()
    running("hello")
    same("the container after the next start", [c["ID"] for c in live("hello")], [before["ID"]])
