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
    tapes = "/var/lib/steplet/tapes"
    same("the last line", out.splitlines()[-1], f"tape: {tapes} (steplet replay {tapes})")
    same("replay", steplet("replay", tapes)[0], 0)
    same("tasks left", containerd.tasks(), {})

    code, out = steplet("run", manifest, "/none.yaml")
    true("a missing file is named", code == 1 and "/none.yaml: No such file" in out, (code, out))
    bad = "/run/bad.yaml"
    with open(bad, "w") as file:
        file.write(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec:\n"
            "  contaners: [{name: a, image: a}]\n"
        )
    code, out = steplet("run", manifest, bad, manifest, "--for", "5s", "--logs")
    same(f"exit code ({out[-500:]})", code, 0)
    true("the output is shown", "default/hello-node1/hello: hello 2" in out, out)
    true("a slip is named by the user's path", f"refused {bad}: line " in out, out)
    true("with what was meant", "contaners is no field: is containers meant?" in out, out)

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
    socket = f"--container-runtime-endpoint=unix://{containerd.SOCKET}"
    out = steplet("run", manifest, "--for", "8s", socket)[1]
    true("also for a socket by name", "apt-get install containerd" in out, out)
