"""Bad configurations: what is wrong is named with its key, and what cannot be kept is refused."""

from agent import CONFIG, Agent, true, until

TAPES = ""

REFUSED = [
    ("syncFrequency: soon\n", "syncFrequency"),
    ("maxPods: '20'\n", "maxPods"),
    ("systemReserved: {cpu: 1}\n", "systemReserved"),
    ("cpuManagerPolicy: static\n", "cpuManagerPolicy"),
    ("containerLogMaxFiles: 1\n", "containerLogMaxFiles"),
    ("kind: Pod\n", "kind"),
    (None, "empty"),
]
# Upstream 1.36 names these and goes on without them; a stricter agent may refuse. Silence is wrong.
NAMED = [
    ("maxPods: 20\nMaxPods: 30\n", ["MaxPods"]),
    ("reservedCpus: 0-4\nbogus: 1\n", ["reservedCpus", "bogus"]),
    ("maxPods: 20\nmaxPods: 30\n", ["maxPods"]),
]


def case():
    for number, (addition, word) in enumerate(REFUSED):
        agent = Agent(
            config="" if addition is None else CONFIG + addition, log=f"/run/refused-{number}.log"
        )
        agent.start(wait=False)
        code = agent.wait(20)
        true(f"an exit code that says no to {addition!r}", code > 0, code)
        if not agent.reference:
            true(f"the message names {word}", word in agent.output(), agent.output())
        agent.threads_max = 0
    for number, (addition, words) in enumerate(NAMED):
        agent = Agent(config=CONFIG + addition, log=f"/run/named-{number}.log")
        agent.start(wait=False)
        for word in words:
            until(f"the message names {word}", lambda: word in agent.output(), 20)
        if agent.process.poll() is None:
            agent.kill()
        agent.threads_max = 0
