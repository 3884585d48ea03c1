"""A pod from a file runs, and has the names, labels, annotations and logs that the field's tools
expect."""

import os

from agent import (
    Agent,
    container_status,
    live,
    log_folder,
    log_lines,
    of_pod,
    place,
    running,
    same,
    true,
    until,
)


def case():
    place("hello.yaml")
    Agent().start()
    pod = running("hello")
    meta, status = pod["metadata"], pod["status"]
    same("name", meta["name"], "hello-node1")
    same("namespace", meta["namespace"], "default")
    same("source", meta["annotations"]["kubernetes.io/config.source"], "file")
    same("hash is the uid", meta["annotations"]["kubernetes.io/config.hash"], meta["uid"])
    same("node", pod["spec"]["nodeName"], "node1")
    same(
        "host, which only a node with an API has to tell",
        status.get("hostIP", "10.89.0.1"),
        "10.89.0.1",
    )
    true("an address of the pod network", status["podIP"].startswith("10.88."), status["podIP"])
    same("QoS class", status["qosClass"], "BestEffort")
    for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        same(kind, {c["type"]: c["status"] for c in status["conditions"]}[kind], "True")
    have = container_status(pod)
    same("restarts", have["restartCount"], 0)
    true("started", have["started"] and have["ready"])

    [container], [sandbox] = live("hello"), of_pod("hello", "sandbox")
    same("container id", have["containerID"], "containerd://" + container["ID"])
    labels = container["Labels"]
    same("label app of the sandbox", sandbox["Labels"]["app"], "hello")
    for key, want in {
        "io.kubernetes.pod.name": "hello-node1",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": meta["uid"],
        "io.kubernetes.container.name": "hello",
    }.items():
        same(f"label {key}", labels[key], want)

    until("three lines in the log", lambda: len(log_lines(pod)) > 2)
    same("first lines", log_lines(pod)[:2], ["hello 1", "hello 2"])
    link = f"/var/log/containers/hello-node1_default_hello-{container['ID']}.log"
    same("link to the log", os.path.realpath(link), f"{log_folder(pod, 'hello')}/0.log")
