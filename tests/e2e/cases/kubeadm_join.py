"""`kubeadm join` with the agent installed as kubelet: kubeadm writes its configuration and starts
it through systemd, it gets a certificate, registers and runs a pod in a slice."""

import os
import subprocess

import cluster
import unit
from agent import ROOT, Failure, same, true, until
from member import is_ready, shell

GUEST = True
SYSTEMD = True
CONTROL_PLANE = True
MEMORY_MB = 3000
SECONDS = 1500
NODE = "/api/v1/nodes/node1"
ROOM = "/run/plane"
# What the guest lacks, whatever the kubelet: its kernel has no cpuset and tells no configuration.
LACKS = "SystemVerification,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: 10.89.0.1:6443
networking: {dnsDomain: cluster.local, serviceSubnet: 10.96.0.0/12}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.89.0.1, bindPort: 6443}
bootstrapTokens:
- token: abcdef.0123456789abcdef
  groups: ["system:bootstrappers:kubeadm:default-node-token"]
  usages: [signing, authentication]
"""


def kubeadm(*args, timeout=600):
    """What it printed; a failure has it all."""
    done = subprocess.run(
        [os.path.join(cluster.PROGRAMS, "kubeadm"), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        raise Failure(f"kubeadm {args[0]}: exit code {done.returncode}: {done.stdout[-1800:]}")
    return done.stdout


def control_plane():
    """One whose files are not where a joining node has its own, with what `kubeadm init` leaves."""
    cluster.ETC, cluster.PKI = ROOM, f"{ROOM}/pki"
    cluster.ROLES.clear()  # kubeadm binds them
    plane = cluster.Cluster()
    plane.start(seconds=300)
    whole = plane.kubectl("config", "view", "--raw", "--flatten")
    cluster.write(f"{ROOM}/whole.conf", whole)
    cluster.write(f"{ROOM}/kubeadm.yaml", CONFIG)
    where = ("--config", f"{ROOM}/kubeadm.yaml", "--kubeconfig", f"{ROOM}/whole.conf")
    kubeadm("init", "phase", "upload-config", "all", *where)
    kubeadm("init", "phase", "bootstrap-token", *where)
    return plane


def case():
    plane = control_plane()
    with open(os.path.join(ROOT, "packaging/10-kubeadm.conf")) as file:
        unit.install({"10-kubeadm.conf": file.read(), "20-test.conf": "[Service]\nRestartSec=2\n"})
    unit.systemctl("enable", "kubelet")
    os.environ["PATH"] += f":{cluster.PROGRAMS}"
    try:
        said = kubeadm(
            *["join", "10.89.0.1:6443", "--token", "abcdef.0123456789abcdef", "-v1"],
            *["--discovery-token-unsafe-skip-ca-verification"],
            *[f"--ignore-preflight-errors={LACKS}"],
        )
    except Failure:
        print(unit.journal()[-3000:])
        raise
    true("kubeadm is content", "This node has joined the cluster" in said, said[-500:])
    until("the node is Ready", lambda: is_ready(plane.get(NODE)), 120)
    same("one life was enough", unit.show("kubelet", "ActiveState", "NRestarts"), ["active", "0"])
    true("its own certificate", os.path.islink("/var/lib/kubelet/pki/kubelet-client-current.pem"))
    true("the token is gone", not os.path.exists("/etc/kubernetes/bootstrap-kubelet.conf"))

    pods = "/api/v1/namespaces/default/pods"
    plane.create(pods, shell("box", "echo hello; sleep 100000"))
    pod = until("the pod runs", lambda: (p := plane.get(f"{pods}/box")) and is_ready(p) and p, 180)
    name = f"kubepods-besteffort-pod{pod['metadata']['uid'].replace('-', '_')}.slice"
    same("its slice", unit.show(name, "ActiveState"), ["active"])
    same("its log", plane.kubectl("logs", "box"), "hello\n")
    plane.delete(f"{pods}/box")
    until("the pod is gone", lambda: plane.get(f"{pods}/box") is None, 120)
    until("so is its slice", lambda: unit.show(name, "ActiveState") == ["inactive"], 60)
