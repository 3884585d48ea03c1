"""Deleting a pod: its grace is kept, the object goes after the last container, and nothing is left
of it on the node."""

import os
import time

from agent import STATE, true, until
from member import shell


def took(do):
    begin = time.monotonic()
    do()
    return time.monotonic() - begin


def case(w):
    w.create(shell("polite", "trap 'sleep 2; exit 0' TERM; sleep 1000 & wait; wait", grace=20))
    w.create(shell("deaf", "trap '' TERM; while :; do sleep 1; done", grace=3))
    w.create(shell("forced", "trap '' TERM; while :; do sleep 1; done", grace=600))
    polite, deaf, forced = (w.running(name) for name in ("polite", "deaf", "forced"))
    true("its folder", os.path.isdir(f"{STATE}/pods/{polite['metadata']['uid']}"))

    seconds = took(lambda: w.kubectl("delete", "pod", "polite"))
    true("it had the time that it took", 2 <= seconds < 12, seconds)
    w.gone(polite, 5)
    seconds = took(lambda: w.kubectl("delete", "pod", "deaf"))
    true("it was killed when its grace was over", 3 <= seconds < 13, seconds)
    w.gone(deaf, 5)

    w.kubectl("delete", "pod", "forced", "--grace-period=0", "--force")
    w.gone(forced, 30)

    for pod in (polite, deaf, forced):
        uid = pod["metadata"]["uid"]
        until(
            f"the folder of {pod['metadata']['name']} is gone",
            lambda u=uid: not os.path.exists(f"{STATE}/pods/{u}"),
            90,
        )
        until("its sandbox is gone", lambda p=pod: not w.containers(p, "sandbox"), 90)
