"""A node that is a member of a cluster: what the cases in cases/cluster work with.

One control plane and one node agent serve all of them, one case after the other, each with a
namespace of its own. A case leaves an agent that runs, and a node that takes pods.
"""

import contextlib
import os
import signal
import time
import traceback

import agent
import containerd
from agent import Failure, same, until
from cluster import ETC, PKI, Cluster

BUSYBOX = "docker.io/library/busybox:1"
NODE = f"/api/v1/nodes/{agent.NODE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{agent.NODE}"

# What `kubeadm init` gives a node, as far as it is not about a CNI add-on or DNS.
CONFIG = f"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {agent.MANIFESTS}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
rotateCertificates: true
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {PKI}/ca.crt}}
authorization: {{mode: Webhook}}
"""
# The reference alone: its defaults would take the disk of a busy test machine for a full one.
CALM = "evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}\n"


def conditions(thing):
    return {one["type"]: one for one in thing["status"].get("conditions", [])}


def is_ready(thing):
    """True for a node or a pod whose Ready condition is True."""
    return conditions(thing).get("Ready", {}).get("status") == "True"


def shell(name, script="sleep 100000", grace=1, **spec):
    """A pod with one busybox container `c` that runs the script, and no token in it."""
    more = spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": grace,
            "containers": [
                {
                    "name": "c",
                    "image": BUSYBOX,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                    **more,
                }
            ],
            **spec,
        },
    }


def deployment(name, replicas, script="trap exit TERM; sleep 100000 & wait", **spec):
    """A Deployment of such pods, which obey SIGTERM at once."""
    pod = shell(name, script)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]},
            **spec,
        },
    }


class Member:
    """The cluster, the agent under test, and the namespace of the case that runs."""

    def __init__(self, cluster, reference=None):
        self.cluster, self.namespace, self.agents = cluster, "default", []
        self.agent = self.make(reference)

    def make(self, reference=None, config="", **options):
        """An agent with the node's own certificate; it is not started."""
        options.setdefault("args", self.flags(f"{ETC}/kubelet.conf"))
        calm = CALM if reference or os.environ.get("REFERENCE") else ""
        made = agent.Agent(config=CONFIG + calm + config, reference=reference, **options)
        self.agents.append(made)
        return made

    @staticmethod
    def flags(config):
        return ("--kubeconfig", config, "--node-ip", "10.89.0.1", "--hostname-override", "node1")

    def join(self, seconds=60):
        """Starts the agent where it does not run; returns the seconds until the node was Ready."""
        begin = time.monotonic()
        if not self.agent.process or self.agent.process.poll() is not None:
            self.agent.start()
        self.node_ready(seconds=seconds)
        return time.monotonic() - begin

    @contextlib.contextmanager
    def instead(self, other):
        """Has another agent on the node while the block runs; the former one comes back after it."""
        former = self.agent
        same("exit code after SIGTERM", former.end(signal.SIGTERM), 0)
        self.agent = other
        try:
            self.join()
            yield other
        finally:
            if other.process.poll() is None:
                other.end(signal.SIGTERM)
            self.agent = former
        self.join()

    # ---- what the API has -----------------------------------------------------------------------

    def node(self):
        return self.cluster.get(NODE)

    def node_ready(self, want=True, seconds=60):
        return until(
            f"node1 is {'' if want else 'not '}Ready",
            lambda: (node := self.node()) and is_ready(node) == want and node,
            seconds,
        )

    def path(self, kind="pods", name="", group="/api/v1"):
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def create(self, thing):
        """Creates a pod, ConfigMap or other object of the core group, or a Deployment."""
        kind = thing["kind"].lower() + "s"
        group = "/apis/apps/v1" if thing["kind"] == "Deployment" else "/api/v1"
        return self.cluster.create(self.path(kind, group=group), thing)

    def pod(self, name):
        return self.cluster.get(self.path(name=name))

    def pods(self, app):
        return self.cluster.items(self.path(), labelSelector=f"app={app}")

    def running(self, name, seconds=60):
        """Waits until the pod is Running and Ready, and returns it."""
        return until(
            f"{name} is Running and Ready",
            lambda: (pod := self.pod(name)) and agent.ready(pod) and pod,
            seconds,
        )

    def phase(self, name, want, seconds=60):
        return until(
            f"{name} is {want}",
            lambda: (pod := self.pod(name)) and pod["status"].get("phase") == want and pod,
            seconds,
        )

    def have(self, app, count, seconds=90):
        """Waits until exactly so many pods of a Deployment are there, all Ready."""
        return until(
            f"{count} pods of {app}, all Ready",
            lambda: (
                len(pods := self.pods(app)) == count and all(map(agent.ready, pods)) and (pods or 1)
            ),
            seconds,
        )

    def events(self, name):
        """{reason: message} of the agent's events about an object, the newest of each reason."""
        found = self.cluster.items(self.path("events"), fieldSelector=f"involvedObject.name={name}")
        return {one["reason"]: one["message"] for one in found}

    def kubectl(self, *args, **options):
        return self.cluster.kubectl("-n", self.namespace, *args, **options)

    # ---- what the runtime has -------------------------------------------------------------------

    @staticmethod
    def containers(pod, kind="container", live=True):
        """The runtime's containers of that pod; only those that run, unless told otherwise."""
        return [
            info
            for info in containerd.containers()
            if containerd.label(info, "pod.uid") == pod["metadata"]["uid"]
            and info["Labels"].get("io.cri-containerd.kind") == kind
            and (not live or info["status"] == "RUNNING")
        ]

    def ids(self, pods):
        """{pod's uid: ids of its running containers and sandbox}, one look at the runtime."""
        out = {pod["metadata"]["uid"]: set() for pod in pods}
        for info in containerd.containers():
            uid = containerd.label(info, "pod.uid")
            if uid in out and info["status"] == "RUNNING":
                out[uid].add(info["ID"])
        return out

    def gone(self, pod, seconds=60):
        """Waits until the API and the runtime have nothing left of the pod."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        until(
            f"{name} left the API",
            lambda: not (now := self.pod(name)) or now["metadata"]["uid"] != uid,
            seconds,
        )
        until(f"{name} left the runtime", lambda: not self.ids([pod])[uid], seconds)


# ---- all cases of a control plane ---------------------------------------------------------------


def settle(member, name):
    """A namespace for the next case, an agent that runs, a node that takes pods."""
    member.namespace = name.replace("_", "-")
    member.cluster.create("/api/v1/namespaces", {"metadata": {"name": member.namespace}})
    until(
        "the namespace has its service account",
        lambda: member.cluster.get(member.path("serviceaccounts", "default")),
    )
    member.join()


def clear(member):
    """Deletes what the case made; the namespace goes by itself, later."""
    cluster = member.cluster
    cluster.delete(f"/api/v1/namespaces/{member.namespace}")
    cluster.patch(NODE, {"spec": {"unschedulable": None}})


def run_all(cases):
    """Runs {name: function} on one control plane. Prints a line `=== NAME ok|FAIL SECONDS` after
    what each case said; returns how many failed, and the agents."""
    cluster, failed = Cluster(), 0
    took = cluster.start()
    print(f"the control plane was ready after {took:.1f} s")
    member = Member(cluster)
    for name, case in cases.items():
        begin, good = time.monotonic(), False
        try:
            settle(member, name)
            case(member)
            clear(member)
            good = True
        except Failure as failure:
            print(failure)
        except Exception:  # noqa: BLE001, a fault of the case is a failed case
            print(traceback.format_exc())
        if not good:
            failed += 1
            print("--- the agent's last lines")
            print("\n".join(member.agent.output().splitlines()[-25:]))
            rescue(member)
        print(f"=== {name} {'ok' if good else 'FAIL'} {time.monotonic() - begin:.0f}", flush=True)
    return failed, member.agents


def rescue(member):
    """After a failed case: what it left shall not fail the next one."""
    try:
        if "kube-apiserver" not in member.cluster.processes:
            member.cluster.down()
            member.cluster.up()
        for file in os.listdir(agent.MANIFESTS):
            os.unlink(os.path.join(agent.MANIFESTS, file))
        options = {"gracePeriodSeconds": 0}
        member.cluster.call("DELETE", member.path(), options)
        clear(member)
    except Exception as error:  # noqa: BLE001, the failed case is told already
        print(f"clearing up: {error!r}")
