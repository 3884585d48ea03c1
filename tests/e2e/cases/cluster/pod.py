"""A pod made by kubectl is scheduled, runs, and shows the status and events that it has with a
kubelet."""

import json

from agent import container_status, same, true, until
from member import BUSYBOX, conditions, shell


def case(w):
    w.kubectl("apply", "-f", "-", input=json.dumps(shell("one")))
    pod = w.running("one")
    status = pod["status"]
    same("phase", status["phase"], "Running")
    true("an address of the pod network", status["podIP"].startswith("10.88."), status["podIP"])
    same("addresses", status["podIPs"], [{"ip": status["podIP"]}])
    same("host", (status["hostIP"], status["hostIPs"]), ("10.89.0.1", [{"ip": "10.89.0.1"}]))
    same("QoS class", status["qosClass"], "BestEffort")
    true("a start time", status["startTime"] >= pod["metadata"]["creationTimestamp"])
    same("generation seen", status["observedGeneration"], pod["metadata"]["generation"])
    kinds = "ContainersReady Initialized PodReadyToStartContainers PodScheduled Ready".split()
    same("conditions", sorted(conditions(pod)), kinds)
    for kind in kinds:
        same(kind, conditions(pod)[kind]["status"], "True")

    have = container_status(pod)
    true("it runs", "startedAt" in have["state"]["running"], have)
    same("no life before", (have["restartCount"], have["lastState"]), (0, {}))
    true("started and ready", have["started"] and have["ready"])
    same("image", have["image"], BUSYBOX)
    true("image id", have["imageID"].startswith("sha256:") or "@sha256:" in have["imageID"])
    [container] = w.containers(pod)
    same("container id", have["containerID"], "containerd://" + container["ID"])
    same("label", container["Labels"]["io.kubernetes.pod.namespace"], w.namespace)

    for reason in ("Scheduled", "Pulled", "Created", "Started"):
        until(f"an event {reason}", lambda r=reason: r in w.events("one"))
    line = w.kubectl("get", "pod", "one", "--no-headers").split()
    same("what kubectl shows", line[1:4], ["1/1", "Running", "0"])

    w.create(shell("two", "echo bye; exit 3", restartPolicy="Never"))
    pod = w.phase("two", "Failed")
    ended = container_status(pod)["state"]["terminated"]
    same("end", (ended["exitCode"], ended["reason"]), (3, "Error"))
    w.create(shell("three", "exit 0", restartPolicy="Never"))
    pod = w.phase("three", "Succeeded")
    same("Ready of a completed pod", conditions(pod)["Ready"]["reason"], "PodCompleted")

    w.create(shell("four", "sleep 2; exit 1"))
    until("it is restarted", lambda: container_status(w.pod("four"))["restartCount"] == 1)
    ended = container_status(w.pod("four"))["lastState"]["terminated"]
    same("its life before", (ended["exitCode"], ended["reason"]), (1, "Error"))
    until("and has to wait", lambda: "Back-off restarting" in w.events("four")["BackOff"])
