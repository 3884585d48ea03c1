"""emptyDir on disk and in memory: size, mode, group, sharing; kept over a container's restart."""

import os
import signal

from agent import STATE, Agent, container_status, live, log_lines, place, pods, running, same, until


def case():
    Agent().start()
    place("emptydir.yaml")
    pod = running("emptydir")
    until(
        "the logs",
        lambda: len(log_lines(pod, "writer")) == 4 and len(log_lines(pod, "reader")) == 2,
    )
    same(
        "what the writer saw",
        log_lines(pod, "writer"),
        ["memory tmpfs 8192", "mode 3777 2777", "group 3000 3000", "no room"],
    )
    same("what the reader saw", log_lines(pod, "reader"), ["kept", "read only"])
    folder = f"{STATE}/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir"
    same("on the node", sorted(os.listdir(folder)), ["disk", "memory"])
    writer = next(
        info
        for info in live("emptydir")
        if info["Labels"]["io.kubernetes.container.name"] == "writer"
    )
    os.kill(writer["pid"], signal.SIGKILL)
    until(
        "restarted once",
        lambda: container_status(pods()["emptydir"], "writer")["restartCount"] == 1,
    )
    running("emptydir")
    with open(f"{folder}/disk/file") as file:
        same("the file was kept", file.read(), "kept\n")
