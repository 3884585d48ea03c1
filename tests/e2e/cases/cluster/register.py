"""The node registers itself: labels, addresses, capacity, conditions, nodeInfo, images; its lease
is renewed; Ready takes the taint of a new node away."""

import os
import platform

from agent import same, true, until
from member import LEASE, NODE, conditions

REASONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}


def kib(text):
    true("a quantity in Ki", text.endswith("Ki"), text)
    return int(text[:-2])


def case(w):
    node = w.node()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    labels = node["metadata"]["labels"]
    for prefix in ("kubernetes.io", "beta.kubernetes.io"):
        same(f"{prefix}/os", labels[f"{prefix}/os"], "linux")
        same(f"{prefix}/arch", labels[f"{prefix}/arch"], arch)
    same("host name label", labels["kubernetes.io/hostname"], "node1")
    same(
        "attach and detach are the controller's",
        node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"],
        "true",
    )
    status = node["status"]
    same(
        "addresses",
        [(one["type"], one["address"]) for one in status["addresses"]],
        [("InternalIP", "10.89.0.1"), ("Hostname", "node1")],
    )
    same("port", status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250)

    capacity, allocatable = status["capacity"], status["allocatable"]
    same("cpu", (capacity["cpu"], allocatable["cpu"]), (str(os.cpu_count()),) * 2)
    same("pods", (capacity["pods"], allocatable["pods"]), ("110", "110"))
    with open("/proc/meminfo") as file:
        same("memory", kib(capacity["memory"]), int(file.readline().split()[1]))
    true("what pods may have of it", kib(allocatable["memory"]) <= kib(capacity["memory"]))
    true("a disk", kib(capacity["ephemeral-storage"]) > 0)
    true("huge pages", "hugepages-2Mi" in capacity, capacity)

    for kind, want in REASONS.items():
        have = conditions(node)[kind]
        same(f"condition {kind}", (have["status"], have["reason"]), want)
    same(
        "message of Ready", conditions(node)["Ready"]["message"], "kubelet is posting ready status"
    )
    info = status["nodeInfo"]
    true("a kubelet of 1.36", info["kubeletVersion"].startswith("v1.36."), info["kubeletVersion"])
    same("kernel", info["kernelVersion"], platform.release())
    same("system", (info["operatingSystem"], info["architecture"]), ("linux", arch))
    runtime = info["containerRuntimeVersion"]
    true("the runtime", runtime.startswith("containerd://"), runtime)
    with open("/proc/sys/kernel/random/boot_id") as file:
        same("boot id", info["bootID"], file.read().strip())
    true("an OS name", info["osImage"] != "")
    known = [name for image in status["images"] for name in image["names"]]
    true("the images it has", any("library/busybox" in name for name in known), known)

    until("no taint is left", lambda: not w.node()["spec"].get("taints"))
    found = {
        one["reason"]
        for one in w.cluster.items(
            "/api/v1/namespaces/default/events", fieldSelector="involvedObject.kind=Node"
        )
    }
    for reason in ("Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeReady"):
        true(f"an event {reason}", reason in found, sorted(found))

    lease = until("a lease", lambda: w.cluster.get(LEASE))
    spec = lease["spec"]
    same("lease", (spec["holderIdentity"], spec["leaseDurationSeconds"]), ("node1", 40))
    [owner] = lease["metadata"]["ownerReferences"]
    same("its owner", (owner["kind"], owner["uid"]), ("Node", node["metadata"]["uid"]))
    until(
        "the lease is renewed",
        lambda: w.cluster.get(LEASE)["spec"]["renewTime"] > spec["renewTime"],
        15,
    )
    w.cluster.patch(NODE, {"metadata": {"labels": {"kept": "yes", "kubernetes.io/os": "other"}}})
    w.agent.restart()
    until(
        "after a restart labels of its own are as they were",
        lambda: w.node()["metadata"]["labels"]["kubernetes.io/os"] == "linux",
    )
    same("those of others are left alone", w.node()["metadata"]["labels"]["kept"], "yes")
    w.node_ready()
