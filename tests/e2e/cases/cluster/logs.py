"""kubectl logs: all of it, a tail, with times, of the life before, and followed to the end."""

import os
import re
import signal

from agent import container_status, same, true, until
from member import shell

WRITER = """\
if [ -e /life/one ]; then echo second life; sleep 1000; fi
touch /life/one
for i in 1 2 3 4 5; do echo line $i; done
echo an error >&2
sleep 1000
"""


def case(w):
    life = {"volumes": [{"name": "life", "emptyDir": {}}]}
    mount = {"volumeMounts": [{"name": "life", "mountPath": "/life"}]}
    w.create(shell("writer", WRITER, container=mount, **life))
    w.running("writer")
    lines = until(
        "all lines", lambda: (l := w.kubectl("logs", "writer").split("\n")) and l[6:] and l
    )
    same("the lines", [one for one in lines if "line" in one], [f"line {n}" for n in range(1, 6)])
    true("both streams", "an error" in lines, lines)
    same("a tail", len(w.kubectl("logs", "writer", "--tail=2").splitlines()), 2)
    stamped = w.kubectl("logs", "writer", "--timestamps", "--tail=1")
    true("a time", re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", stamped), stamped)
    said = w.kubectl("logs", "writer", "--previous", code=1)
    true("no life before", "previous terminated container" in said, said)
    said = w.kubectl("logs", "writer", "-c", "stranger", code=1)
    true("no such container", "stranger" in said, said)

    w.create(shell("short", "for i in 1 2 3; do echo $i; sleep 1; done", restartPolicy="Never"))
    until("it began", lambda: "running" in container_status(w.pod("short"))["state"])
    same("followed to its end", w.kubectl("logs", "-f", "short").split(), ["1", "2", "3"])

    [container] = w.containers(w.pod("writer"))
    os.kill(container["pid"], signal.SIGKILL)
    until("its second life", lambda: container_status(w.pod("writer"))["restartCount"] == 1)
    until("which speaks", lambda: w.kubectl("logs", "writer") == "second life\n")
    true("the first one's words", "line 5\n" in w.kubectl("logs", "writer", "--previous"))
