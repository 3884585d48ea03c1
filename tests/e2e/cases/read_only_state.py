"""A state directory that cannot be written: one clear message names it, and no panic."""

import subprocess

from agent import STATE, Agent, true

TAPES = ""
OURS = True


def case():
    subprocess.run(["mount", "-o", "remount,ro", STATE], check=True)
    agent = Agent()
    agent.start(wait=False)
    code = agent.wait(15)
    true("an exit code that says no", code not in (0, None) and code > 0, code)
    true("the message names the folder", STATE in agent.last_line(), agent.last_line())
    true("and the reason", "ead-only" in agent.last_line(), agent.last_line())
