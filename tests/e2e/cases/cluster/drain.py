"""cordon keeps new pods away, drain evicts the others, uncordon takes them back; pods that belong
to the node stay."""

from agent import MANIFESTS, place, remove, same, true, until
from member import deployment, shell


def case(w):
    w.create(deployment("web", 2))
    w.create(shell("lonely"))
    before = w.have("web", 2) + [w.running("lonely")]
    place("hello.yaml")
    until("a mirror pod", lambda: w.cluster.get("/api/v1/namespaces/default/pods/hello-node1"))

    w.kubectl("cordon", "node1")
    true("unschedulable", w.node()["spec"]["unschedulable"])
    until("with a taint", lambda: [t["key"] for t in w.node()["spec"]["taints"]])
    w.create(shell("late"))
    until("it must wait", lambda: "FailedScheduling" in w.events("late"))

    said = w.kubectl(
        "drain", "node1", "--force", "--ignore-daemonsets", "--timeout=90s", timeout=120
    )
    true("drained", "node/node1 drained" in said, said)
    for pod in before:
        w.gone(pod)
    mirror = w.cluster.get("/api/v1/namespaces/default/pods/hello-node1")
    same("the static pod runs on", mirror["status"]["phase"], "Running")

    w.kubectl("uncordon", "node1")
    w.have("web", 2)
    w.running("late")
    remove("hello.yaml")
    until(
        f"nothing is left of what was in {MANIFESTS}",
        lambda: not w.cluster.get("/api/v1/namespaces/default/pods/hello-node1"),
        60,
    )
