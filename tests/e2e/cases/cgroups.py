"""The kubepods tree of cgroup v1: where each QoS class has its pods, and the values of every
level."""

import os

from agent import Agent, live, place, remove, running, same, true, until

V1 = "/sys/fs/cgroup"


def value(controller, path, file):
    with open(f"{V1}/{controller}/{path}/{file}") as content:
        return content.read().strip()


def case():
    Agent().start()
    uids = {}
    for name in ("guaranteed", "burstable", "besteffort"):
        place(f"{name}.yaml")
        uids[name] = running(name)["metadata"]["uid"]
    pods = {
        "guaranteed": f"kubepods/pod{uids['guaranteed']}",
        "burstable": f"kubepods/burstable/pod{uids['burstable']}",
        "besteffort": f"kubepods/besteffort/pod{uids['besteffort']}",
    }
    for name, path in pods.items():
        for container in live(name):
            same(
                f"cgroup of {name}",
                container["Spec"]["linux"]["cgroupsPath"],
                f"/{path}/{container['ID']}",
            )
            with open(f"/proc/{container['pid']}/cgroup") as file:
                true("its process is there", f":memory:/{path}/{container['ID']}\n" in file.read())

    cpus = os.cpu_count()
    same("kubepods cpu.shares", value("cpu", "kubepods", "cpu.shares"), str(1024 * cpus))
    same(
        "burstable cpu.shares",
        value("cpu", "kubepods/burstable", "cpu.shares"),
        str(200 * 1024 // 1000),
    )
    same("besteffort cpu.shares", value("cpu", "kubepods/besteffort", "cpu.shares"), "2")
    path = pods["guaranteed"]
    same("guaranteed cpu.shares", value("cpu", path, "cpu.shares"), "256")
    same("guaranteed quota", value("cpu", path, "cpu.cfs_quota_us"), "25000")
    same("guaranteed period", value("cpu", path, "cpu.cfs_period_us"), "100000")
    same("guaranteed memory", value("memory", path, "memory.limit_in_bytes"), str(64 << 20))
    path = pods["burstable"]
    same("burstable pod cpu.shares", value("cpu", path, "cpu.shares"), str(200 * 1024 // 1000))
    same(
        "burstable pod quota: one container has no limit",
        value("cpu", path, "cpu.cfs_quota_us"),
        "-1",
    )
    same("besteffort pod cpu.shares", value("cpu", pods["besteffort"], "cpu.shares"), "2")
    by_name = {c["Labels"]["io.kubernetes.container.name"]: c for c in live("burstable")}
    limited = by_name["limited"]["Spec"]["linux"]["resources"]
    same("container cpu", (limited["cpu"]["shares"], limited["cpu"]["quota"]), (102, 50000))
    same("container memory", limited["memory"]["limit"], 64 << 20)
    same(
        "container without limit",
        by_name["request"]["Spec"]["linux"]["resources"]["cpu"]["shares"],
        102,
    )

    for name in uids:
        remove(f"{name}.yaml")
    for name, path in pods.items():
        until(
            f"the cgroup of {name} is gone",
            lambda p=path: (
                not os.path.exists(f"{V1}/memory/{p}") and not os.path.exists(f"{V1}/cpu/{p}")
            ),
            60,
        )
