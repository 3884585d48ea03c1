"""A unit of systemd with its watchdog, and systemd as cgroup driver: slices of all classes with
their values, which go with their pods; containers outlive the agent, however it ends."""

import os
import signal

import unit
from agent import CONFIG, live, place, remove, running, same, true, until
from cgroup2 import ROOT, value, weight

GUEST = True
SYSTEMD = True
SECONDS = 600


def slices(uids):
    """{pod: path} below the root, and what stands there."""
    paths = {
        "guaranteed": "kubepods.slice/kubepods-pod{}.slice",
        "burstable": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
        "besteffort": "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice",
    }
    return {name: path.format(uids[name].replace("-", "_")) for name, path in paths.items()}


def check_values(path):
    same("kubepods", value("kubepods.slice", "cpu.weight"), weight(1024 * os.cpu_count()))
    same("burstable", value("kubepods.slice/kubepods-burstable.slice", "cpu.weight"), weight(204))
    same("besteffort", value("kubepods.slice/kubepods-besteffort.slice", "cpu.weight"), weight(2))
    same("guaranteed cpu.weight", value(path["guaranteed"], "cpu.weight"), weight(256))
    same("guaranteed cpu.max", value(path["guaranteed"], "cpu.max"), "25000 100000")
    same("guaranteed memory.max", value(path["guaranteed"], "memory.max"), str(64 << 20))
    same("burstable pod", value(path["burstable"], "cpu.weight"), weight(204))
    same("it has no limit", value(path["burstable"], "memory.max"), "max")
    same("besteffort pod", value(path["besteffort"], "cpu.weight"), weight(2))


def check_units(path):
    """systemd knows the same, and may write it again."""
    name = os.path.basename(path["guaranteed"])
    asked = ("CPUWeight", "CPUQuotaPerSecUSec", "MemoryMax", "MemoryAccounting", "ActiveState")
    want = [weight(256), "250ms", str(64 << 20), "yes", "active"]
    same(f"systemctl show {name}", unit.show(name, *asked), want)
    name = os.path.basename(path["burstable"])
    have = unit.show(name, "CPUWeight", "MemoryMax")
    same(f"systemctl show {name}", have, [weight(204), "infinity"])
    unit.systemctl("daemon-reload")
    check_values(path)


def case():
    unit.standalone(CONFIG.replace("cgroupDriver: cgroupfs", "cgroupDriver: systemd"))
    same("it is up", unit.show("kubelet", "ActiveState", "NotifyAccess"), ["active", "main"])
    uids = {}
    for name in ("guaranteed", "burstable", "besteffort"):
        place(f"{name}.yaml")
        uids[name] = running(name, seconds=120)["metadata"]["uid"]
    path = slices(uids)
    check_values(path)
    check_units(path)
    containers = {name: live(name)[0]["ID"] for name in uids}
    for name, id in containers.items():
        [container] = [one for one in live(name) if one["ID"] == id]
        with open(f"/proc/{container['pid']}/cgroup") as file:
            where = file.read().strip().removeprefix("0::/")
        same(f"the place of {name}", where, f"{path[name]}/cri-containerd-{id}.scope")

    pid = unit.main_pid()
    os.kill(pid, signal.SIGKILL)
    pid = unit.another(pid)
    os.kill(pid, signal.SIGSTOP)
    unit.another(pid, seconds=180)
    true("the watchdog ended it", "Watchdog timeout" in unit.journal())
    running(*uids, seconds=120)
    same("no container was touched", {name: live(name)[0]["ID"] for name in uids}, containers)
    check_values(path)

    for name in uids:
        remove(f"{name}.yaml")
    for name in uids:
        folder = f"{ROOT}/{path[name]}"
        until(f"the slice of {name} is gone", lambda f=folder: not os.path.isdir(f), 120)
        state = unit.show(os.path.basename(path[name]), "ActiveState")
        same(f"systemd has let go of {name}", state, ["inactive"])
    true("the classes stay", os.path.isdir(f"{ROOT}/kubepods.slice/kubepods-burstable.slice"))
