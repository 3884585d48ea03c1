"""/metrics tells what these managers own; /configz, /runningpods and the health pages answer as
upstream's."""

import json

from agent import Agent, get, place, running, same, true, until


def case():
    Agent().start()
    place("hello.yaml")
    running("hello")
    same("status of /metrics", get("/metrics")[0], 200)
    for name in (
        "kubelet_running_pods",
        "kubelet_running_containers",
        "kubelet_pleg_relist_duration_seconds_bucket",
        "kubelet_runtime_operations_total",
        "kubelet_runtime_operations_duration_seconds_bucket",
    ):
        until(f"{name} is told", lambda n=name: f"\n{n}" in get("/metrics")[1].decode())
    until("one running pod", lambda: "\nkubelet_running_pods 1\n" in get("/metrics")[1].decode())

    config = json.loads(get("/configz", port=10250)[1])["kubeletconfig"]
    same(
        "configz",
        (config["staticPodPath"], config["readOnlyPort"], config["maxPods"]),
        ("/etc/kubernetes/manifests", 10255, 110),
    )
    listed = until(
        "/runningpods/ has the pod",
        lambda: (l := json.loads(get("/runningpods/", port=10250)[1])) and l["items"] and l,
    )
    same("running pods", [pod["metadata"]["name"] for pod in listed["items"]], ["hello-node1"])
    same(
        "their containers", [c["name"] for c in listed["items"][0]["spec"]["containers"]], ["hello"]
    )
    same("healthz", get("/healthz", port=10250), (200, b"ok"))
    true("verbose", b"[+]ping ok" in get("/healthz?verbose", port=10250)[1])
    same("healthz on 10248", get("/healthz", port=10248), (200, b"ok"))
    same("what nobody serves", get("/nothing", port=10250)[0], 404)
    same("10255 has no logs", get("/containerLogs/default/hello-node1/hello", port=10255)[0], 405)
