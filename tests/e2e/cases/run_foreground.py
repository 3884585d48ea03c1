"""steplet run: a pod in the foreground on the containerd that it finds; it ends by itself or by
Ctrl-C, and leaves nothing."""

import os
import signal
import subprocess
import time

import containerd
from agent import FIXTURES, STEPLET, same, steplet, true, until

OURS = True


def case():
    manifest = os.path.join(FIXTURES, "hello.yaml")
    begin = time.monotonic()
    code, out = steplet("run", manifest, "--for", "8s")
    same(f"exit code ({out[-500:]})", code, 0)
    true("it ended when told", 8 <= time.monotonic() - begin < 20, time.monotonic() - begin)
    true("it told of the pod", "hello" in out and "Running" in out, out)
    true("plain lines without a terminal", "\x1b" not in out)
    same("tasks left", containerd.tasks(), {})

    child = subprocess.Popen(
        [STEPLET, "run", manifest], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until(
        "a task runs", lambda: any(status == "RUNNING" for _, status in containerd.tasks().values())
    )
    until("both do", lambda: len(containerd.tasks()) == 2)
    child.send_signal(signal.SIGINT)
    out = child.communicate(timeout=20)[0]
    same(f"exit code after Ctrl-C ({out[-500:]})", child.returncode, 0)
    same("tasks left", containerd.tasks(), {})

    containerd.stop()
    os.unlink(containerd.SOCKET) if os.path.exists(containerd.SOCKET) else None
    code, out = steplet("run", manifest, "--for", "8s")
    true("without a runtime it refuses", code not in (0, 101), code)
    true("and says how to get one", "containerd" in out, out)
