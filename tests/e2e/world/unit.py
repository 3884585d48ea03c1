"""The agent as a unit of systemd, installed as `kubelet` with the files of packaging/."""

import os
import shutil
import subprocess

from agent import CONFIG, ROOT, STEPLET, same, until

UNITS = "/etc/systemd/system"
ARGS = "--config /etc/kubernetes/kubelet.yaml -v 2"


def systemctl(*args, check=True):
    done = subprocess.run(["systemctl", *args], capture_output=True, text=True)
    if check:
        same(f"systemctl {' '.join(args)}: {done.stderr.strip()}", done.returncode, 0)
    return done.stdout.strip()


def show(unit, *properties):
    """Their values in order; `[not set]` and the largest number are what systemd shows for none."""
    lines = systemctl("show", unit, *(f"-p{name}" for name in properties)).splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return [values.get(name) for name in properties]


def install(dropins=None):
    """Puts the program and its unit in place; `dropins`: {name: text}."""
    if not os.path.exists("/usr/bin/kubelet"):
        os.symlink(STEPLET, "/usr/bin/kubelet")
    shutil.copy(os.path.join(ROOT, "packaging/kubelet.service"), UNITS)
    folder = f"{UNITS}/kubelet.service.d"
    os.makedirs(folder, exist_ok=True)
    for name, text in (dropins or {}).items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    systemctl("daemon-reload")


def standalone(config=CONFIG, watchdog_seconds=10):
    """Starts it with a configuration file and without an API server."""
    with open("/etc/kubernetes/kubelet.yaml", "w") as file:
        file.write(config)
    install(
        {
            "10-test.conf": f"""[Service]
ExecStart=
ExecStart=/usr/bin/kubelet {ARGS}
WatchdogSec={watchdog_seconds}
RestartSec=1
"""
        }
    )
    systemctl("start", "kubelet")


def main_pid():
    return int(show("kubelet", "MainPID")[0])


def another(pid, seconds=60):
    """Waits for a new life of the agent, and returns its process."""

    def found():
        now = main_pid()
        return now not in (0, pid) and show("kubelet", "ActiveState") == ["active"] and now

    return until("systemd has started it again", found, seconds)


def journal():
    done = subprocess.run(
        ["journalctl", "-u", "kubelet", "--no-pager", "-o", "cat"], capture_output=True, text=True
    )
    return done.stdout
