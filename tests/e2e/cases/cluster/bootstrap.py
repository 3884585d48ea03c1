"""A node joins with a bootstrap token: it asks for a certificate, gets it approved, registers with
it, and starts again without the token."""

import os
import shutil
import signal
import subprocess

from agent import same, true, until
from cluster import ETC, PKI, kubeconfig
from member import NODE, shell

STATE = "/var/lib/kubelet/joined"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def case(w):
    old = w.agent
    old.end(signal.SIGTERM)
    w.cluster.delete(NODE)
    token = w.cluster.bootstrap_token()
    first = kubeconfig(f"{ETC}/bootstrap-kubelet.conf", {"token": token})
    joined = f"{ETC}/joined.conf"
    args = (*w.flags(joined), "--bootstrap-kubeconfig", first)
    w.agent = w.make(args=args, state=STATE, log="/run/joined.log")
    try:
        w.agent.start(wait=False)
        w.node_ready()
        [request] = [
            one
            for one in w.cluster.items(CSRS)
            if one["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
        ]
        true(
            "asked for with the token", request["spec"]["username"].startswith("system:bootstrap:")
        )
        same(
            "usages",
            sorted(request["spec"]["usages"]),
            ["client auth", "digital signature"],
        )
        current = f"{STATE}/pki/kubelet-client-current.pem"
        subject = subprocess.run(
            ["openssl", "x509", "-in", current, "-noout", "-subject"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        true("the node's name in it", "system:nodes" in subject and "system:node:node1" in subject)
        true("a link to the pair", os.path.islink(current))
        same("nobody else reads the key", os.stat(current).st_mode & 0o077, 0)
        with open(joined) as file:
            config = file.read()
        true("the kubeconfig names it", current in config, config)
        true("and not the token", token.split(".")[1] not in config)

        os.unlink(first)
        w.agent.restart()
        w.create(shell("box"))
        w.running("box")
        same("one certificate was enough", len(w.cluster.items(CSRS)), 1)
        w.kubectl("delete", "pod", "box")
    finally:
        if w.agent.process.poll() is None:
            w.agent.end(signal.SIGTERM)
        w.agent = old
        shutil.rmtree(STATE, ignore_errors=True)
        true("the authority is still there", os.path.exists(f"{PKI}/ca.crt"))
    w.join()
    until("it registered again", w.node)
