"""hostPath volumes of every type; one that is not what it should be keeps its pod waiting until it
is."""

import os
import socket

from agent import Agent, live, log_lines, place, pods, running, same, true, until

FOLDER = "/run/host"


def case():
    os.makedirs(f"{FOLDER}/directory")
    with open(f"{FOLDER}/file", "w") as file:
        file.write("content\n")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{FOLDER}/socket")
    agent = Agent()
    agent.start()
    place("hostpath.yaml", replace={"@dir@": FOLDER})
    place("hostpath-wrong.yaml", replace={"@dir@": FOLDER})
    pod = running("hostpath")
    until("the log", lambda: len(log_lines(pod)) == 8)
    same(
        "what the pod saw",
        log_lines(pod),
        [
            "/v/character character special file",
            "/v/directory directory",
            "/v/file regular file",
            "/v/made-directory directory",
            "/v/made-file regular empty file",
            "/v/socket socket",
            "/v/untyped directory",
            "content",
        ],
    )
    until("the pod's file", lambda: os.path.exists(f"{FOLDER}/made/deep/from-pod"))
    same("mode of a made directory", oct(os.stat(f"{FOLDER}/made/deep").st_mode & 0o777), "0o755")
    same("mode of a made file", oct(os.stat(f"{FOLDER}/made-file").st_mode & 0o777), "0o644")

    waiting = pods()["hostpath-wrong"]
    same("the wrong one waits", waiting["status"]["phase"], "Pending")
    true("nothing of it runs", not live("hostpath-wrong"))
    agent.says("is not a directory")
    os.mkdir(f"{FOLDER}/later")
    running("hostpath-wrong", seconds=150)  # the next try is up to two minutes away
