"""A node is taken over from a running reference kubelet, and given back: same root directory, same
containers, no restart."""

import os
import signal

from agent import MANIFESTS, container_status, never, place, remove, same, until
from member import deployment, shell
from cluster import PROGRAMS

# The uid is in the file: without one it is a hash of the reference's own memory layout.
STATIC = """\
apiVersion: v1
kind: Pod
metadata: {name: static, uid: 5e7e0000-0000-4000-8000-000000000001}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "docker.io/library/busybox:1", command: [sleep, "100000"]}
"""


def case(w):
    ours = w.agent
    same("exit code after SIGTERM", ours.end(signal.SIGTERM), 0)
    theirs = w.make(reference=os.path.join(PROGRAMS, "kubelet"), log="/run/reference.log")
    theirs.start()
    w.agent = theirs
    try:
        w.node_ready()
        w.create(deployment("web", 3))
        w.create(shell("lonely", "trap exit TERM; sleep 100000 & wait"))
        place("static.yaml", STATIC)
        pods = w.have("web", 3) + [w.running("lonely")]
        static = "/api/v1/namespaces/default/pods/static-node1"
        pods.append(until("the static pod's mirror", lambda: w.cluster.get(static)))
        before = taken(w, pods)
        for agent, who in ((ours, "taken over"), (theirs, "given back"), (ours, "taken again")):
            w.agent.end(signal.SIGTERM)
            agent.start()
            w.agent = agent
            w.node_ready()
            never(f"{who}: containers differ", lambda: taken(w, pods) != before, 8)
            for pod in pods[:-1]:
                now = w.pod(pod["metadata"]["name"])
                same(f"{who}: restarts", container_status(now)["restartCount"], 0)
            w.create(shell(f"after-{who.split()[-1]}"))
            w.running(f"after-{who.split()[-1]}")
        remove("static.yaml")
        w.kubectl("delete", "deployment", "web")
        for pod in pods[:3]:
            w.gone(pod)
    finally:
        if w.agent is not ours:
            w.agent.end(signal.SIGTERM)
            w.agent = ours
        if os.path.exists(f"{MANIFESTS}/static.yaml"):
            remove("static.yaml")


def taken(w, pods):
    """The running containers; the static pod's by its own uid, which its mirror does not have."""
    static = {"metadata": {"uid": "5e7e0000-0000-4000-8000-000000000001"}}
    return w.ids(pods[:-1] + [static])
