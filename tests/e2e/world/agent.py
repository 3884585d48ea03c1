"""The node agent under test: one process, its configuration, its manifests, what it answers.

`Agent` drives `target/dist/steplet kubelet`, or the reference kubelet with the same settings. It
lives inside `enter`, where ports, paths and process ids are the node's own.
"""

import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import threading
import time

import containerd

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
STEPLET = os.environ.get("STEPLET", os.path.join(ROOT, "target/dist/steplet"))
FIXTURES = os.path.join(ROOT, "fixtures/manifests")
MANIFESTS = "/etc/kubernetes/manifests"
STATE = "/var/lib/kubelet"
LOG = "/run/agent.log"
NODE = "node1"

CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
"""


class Failure(Exception):
    """What was expected did not happen; the text says what was seen instead."""

    def __init__(self, text):
        super().__init__(text if len(text) < 2000 else text[:1900] + " ...")


def same(what, have, want):
    if have != want:
        raise Failure(f"{what}: have {have!r}, want {want!r}")


def true(what, holds, seen=""):
    if not holds:
        raise Failure(f"{what}{': ' if seen != '' else ''}{seen}")


# The reference kubelet starts in seconds, not at once.
PATIENCE = 2 if os.environ.get("REFERENCE") else 1


def until(what, probe, seconds=30, every=0.1):
    """Waits until `probe()` gives something true and returns that; errors of a probe count as not
    yet."""
    end, last = time.monotonic() + seconds * PATIENCE, None
    while True:
        try:
            last = probe()
            if last:
                return last
        except (
            OSError,
            http.client.HTTPException,
            ValueError,
            KeyError,
            LookupError,
            RuntimeError,
        ) as error:
            last = repr(error)
        if time.monotonic() > end:
            raise Failure(f"not seen in {seconds * PATIENCE} s: {what} (last: {last})")
        time.sleep(every)


def never(what, probe, seconds):
    """The opposite: fails as soon as `probe()` gives something true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = probe()
        if seen:
            raise Failure(f"{what}: {seen}")
        time.sleep(0.1)


def get(path, port=10255, tls=None, timeout=10, headers=None, host="127.0.0.1"):
    """(status, body) of one GET; port 10250 is asked over TLS, whoever signed its certificate."""
    return ask("GET", path, port, tls=tls, timeout=timeout, headers=headers, host=host)


def ask(method, path, port, body=None, tls=None, timeout=10, headers=None, host="127.0.0.1"):
    """(status, body) of one request."""
    if tls is None:
        tls = port == 10250
    if tls:
        connection = http.client.HTTPSConnection(
            host, port, timeout=timeout, context=ssl._create_unverified_context()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def pods():
    """{name without the node's suffix: pod} of GET /pods."""
    status, body = get("/pods")
    same("status of /pods", status, 200)
    return {
        pod["metadata"]["name"].removesuffix("-" + NODE): pod
        for pod in json.loads(body)["items"] or []
    }


def pod(name):
    return pods().get(name)


def container_status(pod, name=None, kind="containerStatuses"):
    """The status of one container of a pod; the first one when no name is given."""
    for status in pod["status"].get(kind, []):
        if name in (None, status["name"]):
            return status
    raise LookupError(f"no {kind} of {name}")


def ready(pod):
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return pod["status"].get("phase") == "Running" and conditions.get("Ready") == "True"


def running(*names, seconds=60):
    """Waits until these pods are Running and Ready, and returns the last one."""
    return [
        until(
            f"{name} is Running and Ready",
            lambda n=name: (p := pods()[n]) and ready(p) and p,
            seconds,
        )
        for name in names
    ][-1]


def gone(*names, seconds=60):
    """Waits until neither the agent nor the runtime knows these pods."""
    for name in names:
        until(f"{name} left /pods", lambda n=name: n not in pods(), seconds)
        until(f"{name} left the runtime", lambda n=name: not live(n), seconds)


def phase(name, want, seconds=60):
    return until(
        f"{name} is {want}",
        lambda: (p := pods()[name]) and p["status"].get("phase") == want and p,
        seconds,
    )


def of_pod(name, kind="container"):
    """What the runtime holds for the pod, newest attempt last."""
    found = [
        info
        for info in containerd.containers()
        if containerd.label(info, "pod.name") == f"{name}-{NODE}"
        and info["Labels"].get("io.cri-containerd.kind") == kind
    ]
    return sorted(found, key=lambda info: info["CreatedAt"])


def live(name, kind="container"):
    return [info for info in of_pod(name, kind) if info["status"] == "RUNNING"]


def log_folder(pod, container):
    meta = pod["metadata"]
    return f"/var/log/pods/{meta['namespace']}_{meta['name']}_{meta['uid']}/{container}"


def log_lines(pod, container=None, attempt=0):
    """The texts of a container's log file, without time and stream."""
    name = container or pod["spec"]["containers"][0]["name"]
    with open(f"{log_folder(pod, name)}/{attempt}.log") as file:
        return [line.rstrip("\n").split(" ", 3)[3] for line in file]


def fixture(name):
    with open(os.path.join(FIXTURES, name)) as file:
        return file.read()


def with_hello():
    """An agent that runs hello.yaml, and the container that must outlive what comes."""
    agent = Agent()
    agent.start()
    place("hello.yaml")
    running("hello")
    [before] = live("hello")
    return agent, before


def place(name, text=None, replace=None, into=MANIFESTS):
    """Puts a manifest in place by rename: a fixture of that name unless the text is given."""
    text = fixture(name) if text is None else text
    for old, new in (replace or {}).items():
        true(f"{name} has {old!r}", old in text)
        text = text.replace(old, new)
    os.makedirs(into, exist_ok=True)
    temporary = os.path.join(into, ".placing")  # names with a dot in front are not read
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, os.path.join(into, name))


def remove(name):
    os.unlink(os.path.join(MANIFESTS, name))


class Agent:
    """One process of the agent. What it printed is in `log`, over all its starts."""

    def __init__(self, config=CONFIG, args=(), reference=None, log=LOG, state=STATE):
        self.reference = reference or os.environ.get("REFERENCE")
        self.log, self.state, self.process = log, state, None
        self.threads_max = self.rss_max_kib = 0
        path = f"{log}.config.yaml"
        with open(path, "w") as file:
            file.write(config)
        program = [self.reference] if self.reference else [STEPLET, "kubelet"]
        wrap = shlex.split(os.environ.get("AGENT_WRAP", ""))
        self.command = [
            *wrap,
            *program,
            "--config",
            path,
            "--root-dir",
            state,
            "--cert-dir",
            f"{state}/pki",
            "-v",
            "2",
            *args,
        ]

    def start(self, wait=True):
        """Starts it; returns the seconds until /healthz answered."""
        begin = time.monotonic()
        out = open(self.log, "ab")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()
        if wait:
            until("the agent answers /healthz", lambda: self._healthy(), 30, every=0.01)
        return time.monotonic() - begin

    def _healthy(self):
        true(
            "the agent runs",
            self.process.poll() is None,
            f"it ended with {self.process.poll()}: {self.last_line()}",
        )
        return get("/healthz", port=10248)[0] == 200

    def _watch(self, process):
        while process.poll() is None:
            try:
                self.threads_max = max(self.threads_max, status_number(process.pid, "Threads"))
                self.rss_max_kib = max(self.rss_max_kib, status_number(process.pid, "VmRSS"))
            except (OSError, LookupError):
                return
            time.sleep(0.2)

    @property
    def pid(self):
        return self.process.pid

    def end(self, how=signal.SIGTERM, seconds=20):
        """Sends a signal and returns the exit code, negative for a signal's."""
        self.process.send_signal(how)
        return self.wait(seconds)

    def kill(self):
        return self.end(signal.SIGKILL)

    def wait(self, seconds=20):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"the agent still runs after {seconds} s") from None

    def restart(self, how=signal.SIGKILL):
        self.end(how)
        return self.start()

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def last_line(self):
        lines = [line for line in self.output().splitlines() if line.strip()]
        return lines[-1] if lines else "(it said nothing)"

    def says(self, text, seconds=30):
        """Waits until the output has the text, and returns the line."""
        return until(
            f"the agent says {text!r}",
            lambda: next((l for l in self.output().splitlines() if text in l), None),
            seconds,
        )


def status_number(pid, key):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    raise LookupError(key)


def steplet(*args, timeout=120):
    """Runs another subcommand; (exit code, output with errors)."""
    done = subprocess.run(
        [STEPLET, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout


def connect(port, timeout=10):
    return socket.create_connection(("127.0.0.1", port), timeout)
