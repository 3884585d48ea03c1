"""A removed manifest: graceful ones say goodbye, stubborn ones are killed when their grace is over;
nothing is left."""

import os
import time

from agent import STATE, Agent, gone, live, of_pod, place, remove, running, same, true, until


def case():
    Agent().start()
    uids = {}
    for name in ("graceful", "stubborn", "emptydir"):
        place(f"{name}.yaml")
        uids[name] = running(name)["metadata"]["uid"]
    begin = time.monotonic()
    for name in uids:
        remove(f"{name}.yaml")
    until("the graceful one ended", lambda: not live("graceful"), 15)
    with open("/run/traces/graceful-node1") as file:
        true("it ended by itself", file.read().splitlines()[-1].startswith("end one"))
    until("the stubborn one ended", lambda: not live("stubborn"), 15)
    true("not before its grace", time.monotonic() - begin >= 3.5, time.monotonic() - begin)
    gone(*uids)
    for name, uid in uids.items():
        until(
            f"the folder of {name} is gone", lambda u=uid: not os.path.exists(f"{STATE}/pods/{u}")
        )
        until(
            f"the runtime has nothing of {name}",
            lambda n=name: not of_pod(n) and not of_pod(n, "sandbox"),
            30,
        )
    with open("/proc/mounts") as file:
        same(
            "mounts left below the pods' folder",
            [line for line in file if f"{STATE}/pods/" in line],
            [],
        )
