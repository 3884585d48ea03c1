"""/metrics tells what these managers own; /configz, /runningpods and the health pages answer as upstream's."""

import json

from agent import Agent, get, place, running, same, true, until


def case():
    Agent().start()
    place("hello.yaml")
    running("hello")
    status, body = get("/metrics", port=10255)
    text = body.decode()
    same("status of /metrics", status, 200)
    for name in (
        "kubelet_running_pods", "kubelet_running_containers", "kubelet_pleg_relist_duration_seconds_bucket",
        "kubelet_runtime_operations_total", "kubelet_runtime_operations_duration_seconds_bucket",
    ):
        true(f"{name} is told", f"\n{name}" in text)
    line = next(line for line in text.splitlines() if line.startswith("kubelet_running_pods"))
    same("running pods", float(line.split()[-1]), 1.0)

    config = json.loads(get("/configz", port=10250)[1])["kubeletconfig"]
    same("configz", (config["staticPodPath"], config["readOnlyPort"], config["maxPods"]), ("/etc/kubernetes/manifests", 10255, 110))
    listed = until("/runningpods/ has the pod", lambda: (l := json.loads(get("/runningpods/", port=10250)[1])) and l["items"] and l)
    same("running pods", [pod["metadata"]["name"] for pod in listed["items"]], ["hello-node1"])
    same("their containers", [c["name"] for c in listed["items"][0]["spec"]["containers"]], ["hello"])
    same("healthz", get("/healthz", port=10250), (200, b"ok"))
    true("verbose", b"[+]ping ok" in get("/healthz?verbose", port=10250)[1])
    same("healthz on 10248", get("/healthz", port=10248), (200, b"ok"))
    same("what nobody serves", get("/nothing", port=10250)[0], 404)
    same("10255 has no logs", get("/containerLogs/default/hello-node1/hello", port=10255)[0], 404)
