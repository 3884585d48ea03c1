"""The node's containerd: start, stop, stall, and the facts it holds, read with `ctr`.

Used inside `enter`. As a program: `containerd.py start`.
"""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import images  # noqa: E402

SOCKET = "/run/containerd/containerd.sock"
PID_FILE = "/run/containerd.pid"
LOG = "/run/containerd.log"


def ctr(*args, check=True):
    """Output of `ctr` in the namespace that CRI uses."""
    done = subprocess.run(
        ["ctr", "-a", SOCKET, "-n", "k8s.io", *args], capture_output=True, text=True
    )
    if check and done.returncode:
        raise RuntimeError(f"ctr {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def start(timeout_seconds=60):
    """Starts containerd, waits until CRI answers, and brings the images in when they are
    missing."""
    log = open(LOG, "ab")
    child = subprocess.Popen(
        ["containerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    with open(PID_FILE, "w") as file:
        file.write(str(child.pid))
    end = time.monotonic() + timeout_seconds
    while subprocess.run(["ctr", "-a", SOCKET, "version"], capture_output=True).returncode:
        if child.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"containerd did not come up:\n{tail(LOG)}")
        time.sleep(0.1)
    have = ctr("images", "ls", "-q").split()
    if images.BUSYBOX not in have:
        for archive in images.build("/run/images"):
            ctr("images", "import", archive)


def pid():
    with open(PID_FILE) as file:
        return int(file.read())


def stop(how=signal.SIGTERM):
    """Ends containerd; pods go on, since their shims do."""
    target = pid()
    os.kill(target, how)
    for _ in range(200):
        if not alive(target):
            return
        time.sleep(0.05)
    raise RuntimeError("containerd does not end")


def alive(process):
    """True while the process runs; a zombie counts as ended, whoever is to reap it."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def stall():
    os.kill(pid(), signal.SIGSTOP)


def resume():
    os.kill(pid(), signal.SIGCONT)


def tail(path, lines=20):
    with open(path, errors="replace") as file:
        return "".join(file.readlines()[-lines:])


def tasks():
    """{container id: (pid, status)}"""
    rows = [line.split() for line in ctr("tasks", "ls").splitlines()[1:]]
    return {row[0]: (int(row[1]), row[2]) for row in rows if len(row) == 3}


def containers():
    """All sandboxes and containers of CRI, each as `ctr containers info` tells it, with its task's
    state."""
    running = tasks()
    out = []
    for name in ctr("containers", "ls", "-q").split():
        try:
            info = json.loads(ctr("containers", "info", name))
        except RuntimeError:
            continue  # removed since the list
        info["pid"], info["status"] = running.get(name, (0, "NONE"))
        out.append(info)
    return out


def label(info, key):
    return info.get("Labels", {}).get("io.kubernetes." + key, "")


def wipe():
    """Removes every container, for the next case."""
    for name in tasks():
        ctr("tasks", "kill", "-s", "SIGKILL", name, check=False)
    for name in ctr("containers", "ls", "-q").split():
        ctr("tasks", "rm", "-f", name, check=False)
        ctr("containers", "rm", name, check=False)


if __name__ == "__main__":
    if sys.argv[1:] != ["start"]:
        sys.exit(__doc__)
    try:
        start()
    except RuntimeError as error:
        sys.exit(f"world: {error}")
