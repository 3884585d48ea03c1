"""GET /containerLogs: tail, since, limit, timestamps, previous; follow, also across a rotation."""

import os
import re
import threading
import time
import urllib.parse

import cri
from agent import (
    Agent,
    container_status,
    get,
    live,
    log_folder,
    place,
    pods,
    running,
    same,
    true,
    until,
)

PATH = "/containerLogs/default/log-writer-node1/writer"


def logs(**options):
    status, body = get(PATH + "?" + urllib.parse.urlencode(options), port=10250)
    same(f"status of {options}", status, 200)
    return body.decode()


def numbers(lines):
    """In order: two streams are two pipes, and the runtime may read them in either order."""
    return sorted(int(line.split()[1]) for line in lines)


class Follower(threading.Thread):
    """Reads a followed log until it ends."""

    def __init__(self, **options):
        super().__init__(daemon=True)
        self.path, self.lines, self.ended = (
            PATH + "?" + urllib.parse.urlencode({"follow": "true", **options}),
            [],
            False,
        )
        self.start()

    def run(self):
        import http.client
        import ssl

        link = http.client.HTTPSConnection(
            "127.0.0.1", 10250, timeout=60, context=ssl._create_unverified_context()
        )
        link.request("GET", self.path)
        for line in link.getresponse():
            self.lines.append(line.decode().rstrip("\n"))
        self.ended = True


def case():
    Agent().start()
    place("log-writer.yaml")
    pod = running("log-writer")
    until("twenty lines", lambda: logs().count("\n") >= 20)

    true(
        "the beginning of both streams",
        {"line 1", "line 2", "line 5", "line 10"} <= set(logs().splitlines()),
    )
    same("tail of nothing", logs(tailLines=0), "")
    tail = logs(tailLines=3).splitlines()
    same("a tail of three", len(tail), 3)
    true("which are the last", "\n".join(tail) in "\n".join(logs().splitlines()[-5:]), tail)
    true(
        "a limit cuts within a line",
        re.fullmatch(r"line \d\nlin", logs(limitBytes=10)),
        logs(limitBytes=10),
    )
    stamped = logs(timestamps="true", limitBytes=2000).splitlines()[0]
    true(
        "a timestamp",
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(Z|[+-]\d\d:\d\d) line \d", stamped),
        stamped,
    )
    same("since the future", logs(sinceTime="2999-01-01T00:00:00Z"), "")
    time.sleep(3)
    recent = logs(sinceSeconds=1).splitlines()
    true("since a second ago", 1 <= len(recent) <= 3, recent)
    true("since long ago", "line 1\n" in logs(sinceTime="2000-01-01T00:00:00Z"))

    for path, want in {
        "/containerLogs/default/nobody-node1/writer": 404,
        "/containerLogs/default/log-writer-node1/nobody": 404,
        PATH + "?tailLines=-1": 422,
        PATH + "?tailLines=x": 400,
        PATH + "?limitBytes=0": 422,
        PATH + "?sinceSeconds=1&sinceTime=2000-01-01T00:00:00Z": 422,
    }.items():
        same(f"status of {path}", get(path, port=10250)[0], want)

    follower = Follower(tailLines=1)
    until("the follower follows", lambda: len(follower.lines) >= 3)
    path = f"{log_folder(pod, 'writer')}/0.log"
    os.rename(path, path + ".20260101-000000")
    time.sleep(1.5)  # the runtime writes on into the renamed file
    [container] = live("log-writer")
    cri.reopen_log(container["ID"])
    until("a new file", lambda: os.path.getsize(path) > 0)
    count = len(follower.lines)
    until("the follower goes on in the new file", lambda: len(follower.lines) >= count + 3)
    seen = numbers(follower.lines)
    same("no line is lost or doubled", seen, list(range(seen[0], seen[0] + len(seen))))

    same("no previous one yet", get(PATH + "?previous=true", port=10250)[0], 400)
    with open("/run/orders/die", "w"):
        pass
    until("restarted", lambda: container_status(pods()["log-writer"])["restartCount"] == 1)
    until("the follower ended with its container", lambda: follower.ended, 15)
    running("log-writer")
    last = logs(previous="true", tailLines=1)
    true("the log before", int(last.split()[1]) >= seen[-1], last)
    until("the new one starts at the beginning", lambda: "line 1\n" in logs())
