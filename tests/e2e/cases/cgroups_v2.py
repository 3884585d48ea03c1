"""The kubepods tree of cgroup v2, in a guest: weights, quotas and limits of every level."""

import os

from agent import Agent, live, place, remove, running, same, until
from cgroup2 import ROOT, value, weight

GUEST = True
SECONDS = 240


def case():
    Agent().start()
    uids = {}
    for name in ("guaranteed", "burstable", "besteffort"):
        place(f"{name}.yaml")
        uids[name] = running(name, seconds=90)["metadata"]["uid"]
    same("kubepods cpu.weight", value("kubepods", "cpu.weight"), weight(1024 * os.cpu_count()))
    same("burstable cpu.weight", value("kubepods/burstable", "cpu.weight"), weight(204))
    same("besteffort cpu.weight", value("kubepods/besteffort", "cpu.weight"), weight(2))

    path = f"kubepods/pod{uids['guaranteed']}"
    same("guaranteed cpu.weight", value(path, "cpu.weight"), weight(256))
    same("guaranteed cpu.max", value(path, "cpu.max"), "25000 100000")
    same("guaranteed memory.max", value(path, "memory.max"), str(64 << 20))
    path = f"kubepods/burstable/pod{uids['burstable']}"
    same("burstable pod cpu.weight", value(path, "cpu.weight"), weight(204))
    same("burstable pod cpu.max: one container has no limit", value(path, "cpu.max"), "max 100000")
    same("burstable pod memory.max", value(path, "memory.max"), "max")
    same(
        "besteffort pod cpu.weight",
        value(f"kubepods/besteffort/pod{uids['besteffort']}", "cpu.weight"),
        weight(2),
    )

    [container] = live("guaranteed")
    with open(f"/proc/{container['pid']}/cgroup") as file:
        path = file.read().strip().removeprefix("0::/")
    same("the container's place", path, f"kubepods/pod{uids['guaranteed']}/{container['ID']}")
    same("its memory.max", value(path, "memory.max"), str(64 << 20))
    same("its cpu.max", value(path, "cpu.max"), "25000 100000")
    same("its memory.oom.group", value(path, "memory.oom.group"), "1")

    for name in uids:
        remove(f"{name}.yaml")
    for uid in uids.values():
        until(
            "its cgroup is gone",
            lambda u=uid: (
                not any(f"pod{u}" in folder for folder, _, _ in os.walk(f"{ROOT}/kubepods"))
            ),
            90,
        )
