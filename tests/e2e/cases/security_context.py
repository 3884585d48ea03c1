"""Security context: user, groups, capabilities, read-only root; a root image with runAsNonRoot is
refused."""

from agent import Agent, container_status, live, log_lines, place, pods, running, same, true, until


def case():
    Agent().start()
    place("security-context.yaml")
    place("runs-as-root.yaml")
    pod = running("security-context")
    until("the log", lambda: len(log_lines(pod, "strict")) == 4)
    same(
        "what the strict one saw",
        log_lines(pod, "strict"),
        [
            "id 1000 2000 2000 4000",
            "root is read only",
            "CapBnd:\t0000000000000400",
            "NoNewPrivs:\t1",
        ],
    )
    until("the privileged one mounted", lambda: log_lines(pod, "privileged") == ["mounted"])
    specs = {
        info["Labels"]["io.kubernetes.container.name"]: info["Spec"]
        for info in live("security-context")
    }
    masked = specs["strict"]["linux"]["maskedPaths"]
    for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"):
        true(f"{path} is masked", path in masked, masked)
    same(
        "nothing is masked for the privileged one",
        specs["privileged"]["linux"].get("maskedPaths") or [],
        [],
    )

    waiting = until(
        "runs-as-root waits",
        lambda: container_status(pods()["runs-as-root"])["state"].get("waiting"),
    )
    until(
        "its reason",
        lambda: (
            container_status(pods()["runs-as-root"])["state"]["waiting"]["reason"]
            == "CreateContainerConfigError"
        ),
    )
    waiting = container_status(pods()["runs-as-root"])["state"]["waiting"]
    true("its message", "runAsNonRoot" in waiting["message"], waiting["message"])
    true("it does not run", not live("runs-as-root"))
