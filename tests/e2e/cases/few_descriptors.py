"""Few file descriptors: the agent says so, goes on, and serves again when there are some."""

import subprocess
import time

from agent import CONFIG, Agent, connect, get, live, place, running, same, true


def case():
    agent = Agent(config=CONFIG + "maxOpenFiles: 64\n")
    agent.start()
    place("hello.yaml")
    running("hello")
    [before] = live("hello")
    subprocess.run(["prlimit", f"--pid={agent.pid}", "--nofile=64:64"], check=True)
    held = []
    for _ in range(150):
        try:
            held.append(connect(10255, timeout=2))
        except OSError:
            break
    time.sleep(5)
    true("it runs", agent.process.poll() is None, agent.last_line())
    for one in held:
        one.close()
    time.sleep(2)
    same("it answers again", get("/pods")[0], 200)
    place("guaranteed.yaml")
    running("guaranteed")
    same("the container", [c["ID"] for c in live("hello")], [before["ID"]])
