"""A static pod has a mirror pod, with its status; deleting the mirror brings another one and leaves
the container alone; without the file both go."""

from agent import container_status, place, ready, remove, same, true, until

PATH = "/api/v1/namespaces/default/pods/hello-node1"


def case(w):
    place("hello.yaml")

    def seen():
        return (pod := w.cluster.get(PATH)) and ready(pod) and pod

    mirror = until("a mirror pod that is Ready", seen)
    meta = mirror["metadata"]
    notes = meta["annotations"]
    same("source", notes["kubernetes.io/config.source"], "file")
    same("mirror of", notes["kubernetes.io/config.mirror"], notes["kubernetes.io/config.hash"])
    [owner] = meta["ownerReferences"]
    node = w.node()["metadata"]
    same(
        "owner",
        (owner["kind"], owner["name"], owner["uid"], owner.get("controller")),
        ("Node", "node1", node["uid"], True),
    )
    same("node", mirror["spec"]["nodeName"], "node1")
    true("a uid of its own", meta["uid"] != notes["kubernetes.io/config.hash"])
    container = container_status(mirror)["containerID"]
    true("its log", "hello 1" in w.cluster.kubectl("logs", "hello-node1"))

    w.cluster.kubectl("delete", "pod", "hello-node1", "--wait=false")
    again = until(
        "another mirror pod",
        lambda: (pod := seen()) and pod["metadata"]["uid"] != meta["uid"] and pod,
    )
    same("the same container", container_status(again)["containerID"], container)
    same("restarts", container_status(again)["restartCount"], 0)

    place("hello.yaml", replace={"app: hello": "app: goodbye"})
    until(
        "the mirror of the changed file",
        lambda: (pod := seen()) and pod["metadata"]["labels"]["app"] == "goodbye" and pod,
        90,
    )
    remove("hello.yaml")
    until("no mirror pod", lambda: not w.cluster.get(PATH), 60)
