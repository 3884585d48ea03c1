"""Certificates of forty seconds: the client's is renewed again and again while pods come and go, and
10250 shows one of the cluster's authority as soon as somebody has approved it."""

import os
import shutil
import signal
import subprocess

from agent import NODE as NAME
from agent import same, true, until
from cluster import ADDRESS, ETC, controller_flags, kubeconfig
from member import NODE, shell

STATE = "/var/lib/kubelet/rotated"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LIFE = "--cluster-signing-duration=40s"
ROUNDS = 2


def controllers(w, *flags):
    w.cluster.end("kube-controller-manager")
    w.cluster.run("kube-controller-manager", *controller_flags(), *flags)


def case(w):
    old = w.agent
    old.end(signal.SIGTERM)
    w.cluster.delete(NODE)
    controllers(w, LIFE)
    token = w.cluster.bootstrap_token()
    first = kubeconfig(f"{ETC}/bootstrap-rotate.conf", {"token": token})
    args = (*w.flags(f"{ETC}/rotated.conf"), "--bootstrap-kubeconfig", first)
    w.agent = w.make(
        args=args, config="serverTLSBootstrap: true\n", state=STATE, log="/run/rotate.log"
    )
    current = f"{STATE}/pki/kubelet-client-current.pem"
    try:
        w.agent.start(wait=False)
        w.node_ready()
        os.unlink(first)
        w.create(shell("stays", "while true; do echo line; sleep 1; done"))
        serving(w)
        seen = {os.readlink(current)}
        for number in range(ROUNDS):
            until("there is another pair", lambda: os.readlink(current) not in seen, 60)
            seen.add(os.readlink(current))
            name = f"box{number}"
            w.create(shell(name))
            w.running(name)
            w.kubectl("delete", "pod", name)
        same("pairs, each kept", {os.path.exists(path) for path in seen}, {True})
        same("the node is Ready", bool(w.node_ready()), True)
        same("nothing was refused", "Unauthorized" in w.agent.output(), False)
        users = {
            one["spec"]["username"]
            for one in w.cluster.items(CSRS)
            if one["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
        }
        true("the node asks for itself", f"system:node:{NAME}" in users, users)
        w.kubectl("delete", "pod", "stays")
    finally:
        if w.agent.process.poll() is None:
            w.agent.end(signal.SIGTERM)
        w.agent = old
        controllers(w)
        shutil.rmtree(STATE, ignore_errors=True)
    w.join()
    until("it registered again", w.node)


def serving(w):
    """Approves what 10250 wants, and looks at what it shows then."""

    def wanted():
        return [
            one["metadata"]["name"]
            for one in w.cluster.items(CSRS)
            if one["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
            and not one["status"]
        ]

    [name] = until("one certificate is asked for", wanted)
    w.kubectl("certificate", "approve", name)
    path = f"{STATE}/pki/kubelet-server-current.pem"
    until("it is stored", lambda: os.path.exists(path))
    hello = ["openssl", "s_client", "-connect", f"{ADDRESS}:10250", "-verify_ip", ADDRESS]
    shown = subprocess.run(
        [*hello, "-CAfile", "/etc/kubernetes/pki/ca.crt", "-verify_return_error"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    same("openssl believes it", (shown.returncode, shown.stderr[-300:] * shown.returncode), (0, ""))
    w.running("stays")
    until("kubectl logs", lambda: "line" in w.kubectl("logs", "stays"))
