"""kill -9 of the agent, twenty times during a rollout: it ends as if nothing had been, no container
is made twice, none is left over."""

import time

import containerd
from agent import container_status, same, true, until
from member import deployment

KILLS = 20


def case(w):
    strategy = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
    w.create(deployment("web", 4, strategy=strategy))
    first = w.have("web", 4)
    for number in range(KILLS):
        if number % 5 == 0:
            w.kubectl("set", "env", "deployment/web", f"ROUND={number}")
        w.agent.restart()
        time.sleep(0.3 + 0.15 * number)
    w.kubectl("rollout", "status", "deployment/web", "--timeout=120s", timeout=130)
    last = w.have("web", 4)
    true(
        "all are new",
        not {p["metadata"]["uid"] for p in first} & {p["metadata"]["uid"] for p in last},
    )
    for pod in last:
        same("restarts", container_status(pod)["restartCount"], 0)
        same("one container a pod", len(w.containers(pod, live=False)), 1)
        same("one sandbox a pod", len(w.containers(pod, "sandbox", live=False)), 1)
        same(
            "the one that the API names",
            container_status(pod)["containerID"],
            "containerd://" + w.containers(pod)[0]["ID"],
        )
    known = {pod["metadata"]["uid"] for pod in last}

    def left_over():
        return [
            info["ID"]
            for info in containerd.containers()
            if containerd.label(info, "pod.namespace") == w.namespace
            and containerd.label(info, "pod.uid") not in known
            and info["status"] == "RUNNING"
        ]

    until("nothing of the rounds before runs", lambda: not left_over(), 60)
