"""A power cut without the API server: pods are back with their UIDs, files and restart counts
before the link is; when it is, nothing is stopped, but for a pod that was deleted meanwhile."""

import base64
import contextlib
import glob
import os
import signal
import subprocess
import time

import containerd
from agent import STATE, container_status, live, never, place, remove, same, true, until
from member import shell

SECONDS = 300
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUMES = [
    {"name": "config", "configMap": {"name": "config"}},
    {"name": "secret", "secret": {"secretName": "secret"}},
    {"name": "none", "configMap": {"name": "none", "optional": True}},
]
HIDDEN = "hidden-by-nobody"


def power_cut(w):
    """What a reboot does: to the agent, the runtime, every container, and what was in memory."""
    w.agent.kill()
    tasks = containerd.tasks()
    containerd.stop(signal.SIGKILL)
    for pid, _ in tasks.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with open("/proc/self/mounts") as file:
        mounts = [line.split()[1] for line in file if f"{STATE}/pods/" in line]
    for mount in mounts:
        subprocess.run(["umount", "-l", mount], check=True)
    containerd.start()


def case(w):
    w.create({"kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"one": "1"}})
    coded = base64.b64encode(HIDDEN.encode()).decode()
    w.create({"kind": "Secret", "metadata": {"name": "secret"}, "data": {"a": coded}})
    mounts = [{"name": one["name"], "mountPath": "/" + one["name"]} for one in VOLUMES]
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "a"}}}]
    box = shell("box", container={"volumeMounts": mounts, "env": env})
    box["spec"].update(volumes=VOLUMES, automountServiceAccountToken=True)
    w.create(box)
    w.create(shell("deleted"))
    job = shell("job", "sleep 1")
    job["spec"]["restartPolicy"] = "Never"
    w.create(job)
    place("hello.yaml")
    box, deleted = w.running("box"), w.running("deleted")
    job = w.phase("job", "Succeeded")
    until("the static pod runs", lambda: live("hello"))
    until("everything is kept", lambda: len(glob.glob(f"{STATE}/steplet/offline/pod-*")) >= 3)
    time.sleep(7)
    for file in glob.glob(f"{STATE}/steplet/offline/*"):
        same(f"mode of {file}", os.stat(file).st_mode & 0o777, 0o600)
        with open(file, "rb") as content:
            data = content.read()
        true("it is encrypted", HIDDEN.encode() not in data and coded.encode() not in data)

    w.cluster.down()
    power_cut(w)
    remove("hello.yaml")
    begin = time.monotonic()
    w.agent.start()
    until("box runs", lambda: w.containers(box))
    print(f"the pods were back after {time.monotonic() - begin:.1f} s")
    until("the other runs", lambda: w.containers(deleted))
    [container] = w.containers(box)
    there = ["nsenter", "--target", str(container["pid"]), "--mount", "--", "/bin/sh", "-c"]

    def sh(script):
        return subprocess.run([*there, script], capture_output=True, text=True).stdout

    same("configMap", sh("cat /config/one"), "1")
    same("secret", sh("cat /secret/a"), HIDDEN)
    true("a token", sh(f"cat {ACCOUNT}/token").startswith("eyJ"))
    true("the root's certificate", "BEGIN CERTIFICATE" in sh(f"cat {ACCOUNT}/ca.crt"))
    with open(f"/proc/{container['pid']}/environ") as file:
        variables = file.read().split("\0")
    true("a variable", f"A={HIDDEN}" in variables, variables)
    true("services", any(v.startswith("KUBERNETES_SERVICE_HOST=") for v in variables), variables)
    until("the static pod has obeyed", lambda: not live("hello"))
    never("the job runs again", lambda: w.containers(job), 5)

    # The agent alone once more: all that runs goes on.
    before = w.ids([box, deleted])
    w.agent.restart()
    never("a pod ends", lambda: w.ids([box, deleted]) != before, 10)

    # Somebody deletes a pod while nobody listens.
    w.agent.kill()
    w.cluster.up()
    w.cluster.delete(w.path(name="deleted"), gracePeriodSeconds=0)
    until("it is gone", lambda: not w.pod("deleted"))
    w.agent.start()
    w.node_ready()
    until("what was deleted ends", lambda: not w.ids([deleted])[deleted["metadata"]["uid"]])
    until("the restart is told", lambda: container_status(w.pod("box"))["restartCount"] >= 1, 60)
    same("box is the same", w.ids([box]), {box["metadata"]["uid"]: before[box["metadata"]["uid"]]})
    same("its UID too", w.running("box")["metadata"]["uid"], box["metadata"]["uid"])
    same("the job has ended", w.pod("job")["status"]["phase"], "Succeeded")
    until("it is told why", lambda: "PodGone" in w.cluster.kubectl("get", "events", "-A"))
    w.kubectl("delete", "pod/box", "pod/job")
    w.gone(box)
