"""A Deployment is rolled out, scaled up and down, given another template, and deleted."""

from agent import true
from member import deployment


def case(w):
    w.create(deployment("web", 3))
    first = w.have("web", 3)
    w.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    w.kubectl("scale", "deployment/web", "--replicas=6")
    six = w.have("web", 6)
    true("the first ones are among them", uids(first) <= uids(six))
    true("addresses differ", len({pod["status"]["podIP"] for pod in six}) == 6)
    w.kubectl("scale", "deployment/web", "--replicas=2")
    two = w.have("web", 2)
    for pod in six:
        if pod["metadata"]["uid"] not in uids(two):
            w.gone(pod)
    w.kubectl("set", "env", "deployment/web", "ROUND=2")
    w.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    new = w.have("web", 2)
    true("all are new", not uids(new) & uids(two))
    w.kubectl("delete", "deployment", "web")
    for pod in two + new:
        w.gone(pod)


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods}
