"""Called as a kubelet is: by that name, with flags alone, with klog's; a bad flag ends it with one
message."""

import os
import subprocess

import containerd
from agent import MANIFESTS, STATE, STEPLET, Agent, place, running, same, true, until

OURS = True


def case():
    os.symlink(STEPLET, "/run/kubelet")
    done = subprocess.run(["/run/kubelet", "--version"], capture_output=True, text=True)
    true(
        "--version",
        done.returncode == 0 and done.stdout.startswith("Kubernetes v1.36"),
        done.stdout + done.stderr,
    )
    done = subprocess.run(["/run/kubelet", "--no-such-flag"], capture_output=True, text=True)
    true(
        "a bad flag",
        done.returncode == 1 and "no-such-flag" in done.stderr,
        done.stdout + done.stderr,
    )
    done = subprocess.run(["/run/kubelet", "surplus"], capture_output=True, text=True)
    true(
        "a surplus word",
        done.returncode == 1 and "surplus" in done.stderr,
        done.stdout + done.stderr,
    )

    for program in (["/run/kubelet"], [STEPLET]):  # by its name, and with a flag as the first word
        agent = Agent()
        agent.command = [
            *program,
            "--pod-manifest-path",
            MANIFESTS,
            "--fail-swap-on=false",
            f"--root-dir={STATE}",
            "--v=2",
            "--log-flush-frequency=5s",
            f"--container-runtime-endpoint=unix://{containerd.SOCKET}",
            "--read-only-port=10255",
            "--hostname-override=Node1",
            "--max-pods",
            "20",
            "--config=/run/flags.yaml",
        ]
        with open("/run/flags.yaml", "w") as file:
            file.write(
                "apiVersion: kubelet.config.k8s.io/v1beta1\n"
                "kind: KubeletConfiguration\nfailCgroupV1: false\n"
            )
        agent.start()
        place("hello.yaml")
        running("hello")
        same("exit code", agent.end(), 0)
    until("the pod still runs", lambda: len(containerd.tasks()) == 2)
