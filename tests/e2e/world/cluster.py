"""A control plane on the throw-away node: etcd, kube-apiserver, controller manager and scheduler.

Flags, paths and names are those of kubeadm: RBAC and Node authorization, NodeRestriction, bootstrap
tokens, /etc/kubernetes/pki. Every key is made at the start and goes with the node. Leader election
is off: after a minute without the API server the controllers would end themselves.
"""

import base64
import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse

from agent import Failure, until

PROGRAMS = os.environ.get("CLUSTER_PROGRAMS", "")
ETC = "/etc/kubernetes"
PKI = f"{ETC}/pki"
ROOM = "/run/cluster"
ADDRESS = "10.89.0.1"
PORT = 6443
SERVER = f"https://{ADDRESS}:{PORT}"

OPENSSL = """\
[req]
distinguished_name = name
prompt = no
[name]
[ca]
basicConstraints = critical, CA:true
keyUsage = critical, digitalSignature, keyEncipherment, keyCertSign
subjectKeyIdentifier = hash
[client]
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = clientAuth
[server]
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, \
DNS:kubernetes.default.svc, IP:127.0.0.1, IP:10.96.0.1, IP:10.89.0.1
"""

# File name: subject, section above. `kubelet` is the node's own, as after a finished bootstrap.
CERTIFICATES = {
    "apiserver": ("/CN=kube-apiserver", "server"),
    "apiserver-kubelet-client": (
        "/O=system:masters/CN=kube-apiserver-kubelet-client",
        "client",
    ),
    "admin": ("/O=system:masters/CN=kubernetes-admin", "client"),
    "controller-manager": ("/CN=system:kube-controller-manager", "client"),
    "scheduler": ("/CN=system:kube-scheduler", "client"),
    "kubelet": ("/O=system:nodes/CN=system:node:node1", "client"),
}

# Who asked for what, for the cases that count requests and for the reader of a failed case.
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:nodes", "system:bootstrappers"]}
- {level: None}
"""

ROLES = {  # what `kubeadm init` binds for nodes that join with a token
    "kubeadm:kubelet-bootstrap": (
        "system:node-bootstrapper",
        "system:bootstrappers:kubeadm:default-node-token",
    ),
    "kubeadm:node-autoapprove-bootstrap": (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:bootstrappers:kubeadm:default-node-token",
    ),
    "kubeadm:node-autoapprove-certificate-rotation": (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
}


def write(path, text, mode=0o600):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)


def openssl(*args):
    return subprocess.Popen(
        ["openssl", *args], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(*children):
    for child in children:
        said = child.communicate()[1]
        if child.returncode:
            raise Failure(f"openssl: {said.strip()}")


def certificate(name, subject, section, days=365):
    """Begins to make a key and a certificate signed by the cluster's authority."""
    config = f"{ROOM}/openssl.cnf"
    return openssl(
        *["req", "-x509", "-config", config, "-extensions", section, "-subj", subject],
        *["-newkey", "rsa:2048", "-nodes", "-keyout", f"{PKI}/{name}.key"],
        *["-out", f"{PKI}/{name}.crt", "-days", str(days)],
        *["-CA", f"{PKI}/ca.crt", "-CAkey", f"{PKI}/ca.key"],
    )


def pki():
    """Makes every key and certificate; two cores, some at a time, about a second."""
    os.makedirs(PKI, exist_ok=True)
    write(f"{ROOM}/openssl.cnf", OPENSSL)
    account = openssl("genrsa", "-out", f"{PKI}/sa.key", "2048")
    finish(
        openssl(
            *["req", "-x509", "-config", f"{ROOM}/openssl.cnf", "-extensions", "ca"],
            *["-newkey", "rsa:2048", "-nodes", "-keyout", f"{PKI}/ca.key"],
            *["-out", f"{PKI}/ca.crt", "-days", "3650", "-subj", "/CN=kubernetes"],
        )
    )
    finish(account, *[certificate(name, *what) for name, what in CERTIFICATES.items()])
    finish(openssl("rsa", "-in", f"{PKI}/sa.key", "-pubout", "-out", f"{PKI}/sa.pub"))


def kubeconfig(path, user, server=SERVER):
    """Writes a kubeconfig in the form that kubeadm writes; `user` are the user's fields."""
    authority = os.path.join(PKI, "ca.crt")
    write(
        path,
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "kubernetes",
                        "cluster": {"server": server, "certificate-authority": authority},
                    }
                ],
                "users": [{"name": "user", "user": user}],
                "contexts": [
                    {"name": "default", "context": {"cluster": "kubernetes", "user": "user"}}
                ],
                "current-context": "default",
            },
            indent=1,
        ),
    )
    return path


def by_certificate(name):
    return {"client-certificate": f"{PKI}/{name}.crt", "client-key": f"{PKI}/{name}.key"}


class Cluster:
    """The control plane's processes, and a client with the administrator's certificate."""

    def __init__(self):
        self.processes, self.tls, self._local = {}, None, threading.local()

    # ---- processes ------------------------------------------------------------------------------

    def start(self, seconds=60):
        """From nothing until pods can be made, each step within so many seconds; returns how
        many it took."""
        begin = time.monotonic()
        self.run("etcd", *etcd_flags())
        pki()
        write(f"{ROOM}/audit.yaml", AUDIT)
        for name in ("admin", "controller-manager", "scheduler", "kubelet"):
            kubeconfig(f"{ETC}/{name}.conf", by_certificate(name))
        self.tls = ssl.create_default_context(cafile=f"{PKI}/ca.crt")
        self.tls.load_cert_chain(f"{PKI}/admin.crt", f"{PKI}/admin.key")
        self.up(seconds)
        for name, (role, group) in ROLES.items():
            self.bind(name, role, group)
        until(
            "the controller manager made the default service account",
            lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default"),
            seconds,
        )
        return time.monotonic() - begin

    def run(self, program, *flags):
        os.makedirs(ROOM, exist_ok=True)
        log = open(f"{ROOM}/{program}.log", "ab")
        self.processes[program] = subprocess.Popen(
            [os.path.join(PROGRAMS, program), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def up(self, seconds=60):
        """Starts all but etcd."""
        self.run("kube-apiserver", *api_server_flags())
        until("the API server is ready", self._is_ready, seconds, every=0.05)
        self.run("kube-controller-manager", *controller_flags())
        self.run("kube-scheduler", *component_flags("scheduler"))

    def down(self):
        """As if the power of the other machine were cut; what etcd has is kept."""
        for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            if program in self.processes:
                self.end(program)

    def _is_ready(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise Failure(f"{name} ended with {process.returncode}: {tail(name)}")
        return self.request("GET", "/readyz")[0] == 200

    def end(self, program, how=signal.SIGKILL):
        process = self.processes.pop(program)
        process.send_signal(how)
        process.wait(30)

    def stop(self):
        for program in reversed(list(self.processes)):
            self.end(program)

    # ---- the API --------------------------------------------------------------------------------

    def request(self, method, path, body=None, kind="application/json", timeout=30):
        """(status, body) of one request, over this thread's connection."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        for again in (True, False):
            link = getattr(self._local, "link", None)
            if link is None:
                link = self._local.link = http.client.HTTPSConnection(
                    ADDRESS, PORT, context=self.tls, timeout=timeout
                )
            try:
                link.request(method, path, data, {"Content-Type": kind})
                answer = link.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                link.close()
                self._local.link = None
                if not again:
                    raise

    def call(self, method, path, body=None, kind="application/json"):
        """The object that the API answered with; a refusal is a Failure with the API's words."""
        status, text = self.request(method, path, body, kind)
        answer = json.loads(text)
        if status >= 300:
            raise Failure(f"{method} {path}: {status} {answer.get('message', answer)}")
        return answer

    def get(self, path):
        """The object, or None when there is none."""
        status, text = self.request("GET", path)
        if status == 404:
            return None
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {text[:200]!r}")
        return json.loads(text)

    def items(self, path, **query):
        query = "?" + urllib.parse.urlencode(query) if query else ""
        return self.get(path + query)["items"]

    def create(self, path, body):
        return self.call("POST", path, body)

    def patch(self, path, body, kind="strategic-merge-patch"):
        return self.call("PATCH", path, body, f"application/{kind}+json")

    def delete(self, path, **options):
        return self.call("DELETE", path, options or None)

    def kubectl(self, *args, input=None, timeout=60, code=0):
        """What kubectl printed, errors after output; another exit code than `code` is a Failure."""
        done = subprocess.run(
            [os.path.join(PROGRAMS, "kubectl"), "--kubeconfig", f"{ETC}/admin.conf", *args],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        if code is not None and done.returncode != code:
            said = (done.stderr + done.stdout).strip()
            raise Failure(f"kubectl {' '.join(args)}: exit code {done.returncode}: {said}")
        return done.stdout + done.stderr

    def bind(self, name, role, group):
        api = "rbac.authorization.k8s.io"
        self.create(
            f"/apis/{api}/v1/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
            },
        )

    def bootstrap_token(self):
        """A new token with which a node may join, as `kubeadm token create` makes it."""
        name, secret = secrets.token_hex(3), secrets.token_hex(8)
        fields = {
            "token-id": name,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        }
        self.create(
            "/api/v1/namespaces/kube-system/secrets",
            {
                "metadata": {"name": f"bootstrap-token-{name}"},
                "type": "bootstrap.kubernetes.io/token",
                "data": {k: base64.b64encode(v.encode()).decode() for k, v in fields.items()},
            },
        )
        return f"{name}.{secret}"

    def asked(self, since=0.0, user="system:node:node1"):
        """The node agent's requests since that time of the clock, from the API server's audit log:
        each a dictionary with verb, resource, subresource and status."""
        out = []
        with open(f"{ROOM}/audit.log") as file:
            for line in file:
                row = json.loads(line)
                when, code = row["requestReceivedTimestamp"], row["responseStatus"]["code"]
                if row["user"]["username"] != user or clock(when) < since:
                    continue
                if row["verb"] == "watch" and row["stage"] == "ResponseComplete" and code < 400:
                    continue  # it was counted when it began
                what = row.get("objectRef", {})
                out.append(
                    {
                        "verb": row["verb"],
                        "resource": what.get("resource", row["requestURI"]),
                        "subresource": what.get("subresource", ""),
                        "name": what.get("name", ""),
                        "status": code,
                    }
                )
        return out


def clock(stamp):
    """RFC 3339 in UTC to seconds since 1970."""
    import datetime

    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def tail(program, lines=5):
    with open(f"{ROOM}/{program}.log", errors="replace") as file:
        return "".join(file.readlines()[-lines:]).strip()


# ---- flags --------------------------------------------------------------------------------------


def etcd_flags():
    return [
        f"--data-dir={ROOM}/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        "--log-level=warn",
    ]


def api_server_flags():
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        f"--secure-port={PORT}",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt",
        f"--service-account-key-file={PKI}/sa.pub",
        f"--service-account-signing-key-file={PKI}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={PKI}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={PKI}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={ROOM}/audit.yaml",
        f"--audit-log-path={ROOM}/audit.log",
    ]


def component_flags(name):
    config = f"{ETC}/{name}.conf"
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]


def controller_flags():
    return component_flags("controller-manager") + [
        f"--client-ca-file={PKI}/ca.crt",
        f"--root-ca-file={PKI}/ca.crt",
        f"--cluster-signing-cert-file={PKI}/ca.crt",
        f"--cluster-signing-key-file={PKI}/ca.key",
        f"--service-account-private-key-file={PKI}/sa.key",
        "--use-service-account-credentials=true",
        "--controllers=*,bootstrapsigner,tokencleaner",
    ]
