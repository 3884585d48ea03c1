"""Without AlwaysAllow, 10250 answers the loopback only, as long as there is no authentication, and
nobody when anonymous access is off."""

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

    closed = config.replace("anonymous: {enabled: true}", "anonymous: {enabled: false}")
    same("the agent ends", agent.end(), 0)
    agent = Agent(config=closed, log="/run/closed.log")
    agent.start()
    for path in ("/pods", "/configz", "/containerLogs/default/a/b", "/healthz"):
        same(f"{path} over the loopback", get(path, port=10250)[0], 401)
    true("it is said at start", "401" in agent.output(), agent.output())
