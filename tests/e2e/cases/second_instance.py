"""A second instance on the same state says so in one line and ends; the first goes on."""

from agent import Agent, get, place, running, same, true

OURS = True  # upstream needs a lock file for that


def case():
    first = Agent()
    first.start()
    place("hello.yaml")
    running("hello")
    second = Agent(log="/run/second.log")
    second.start(wait=False)
    code = second.wait(10)
    true("an exit code that says no", code not in (0, None), code)
    lines = [line for line in second.output().splitlines() if line.strip()]
    same("lines", len(lines), 1)
    true(
        "it says why",
        "another" in lines[0] or "already" in lines[0] or "second" in lines[0],
        lines[0],
    )
    same("the first answers", get("/healthz", port=10248)[0], 200)
    running("hello")
    second.threads_max = 0  # it has no tape of its own
