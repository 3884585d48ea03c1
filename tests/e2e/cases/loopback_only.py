"""Without AlwaysAllow, 10250 answers the loopback only, as long as there is no authentication."""

from agent import CONFIG, Agent, get, same, true

OURS = True


def case():
    config = CONFIG.replace("authorization: {mode: AlwaysAllow}\n", "")
    agent = Agent(config=config)
    agent.start()
    same("over the loopback", get("/pods", port=10250)[0], 200)
    try:
        status, _ = get("/pods", port=10250, host="10.89.0.1")
        true("from elsewhere it is refused", status in (401, 403), status)
    except OSError:
        pass  # not even listening there, or closed at once
    true("it is said at start", "loopback" in agent.output(), agent.output())
