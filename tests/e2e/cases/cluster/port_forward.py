"""kubectl port-forward: requests one by one and side by side, a large answer, a port that nobody
listens on."""

import concurrent.futures
import hashlib
import http.client
import os
import subprocess

from agent import same, true, until
from cluster import ETC, PROGRAMS
from member import shell

SERVER = """\
mkdir /www; cd /www; echo hello >small; head -c 5000000 /dev/urandom >large
exec httpd -f -p 8080 -h /www
"""


def fetch(port, path):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        link.request("GET", path)
        return link.getresponse().read()
    finally:
        link.close()


def case(w):
    w.create(shell("server", SERVER))
    w.running("server")
    until("it has its files", lambda: "large" in w.kubectl("exec", "server", "--", "ls", "/www"))
    log = "/run/port-forward.log"
    with open(log, "wb") as out, subprocess.Popen(
        [f"{PROGRAMS}/kubectl", "--kubeconfig", f"{ETC}/admin.conf", "-n", w.namespace]
        + ["port-forward", "pod/server", "18080:8080", "18081:9"],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
    ) as child:
        try:
            same("an answer", until("it forwards", lambda: fetch(18080, "/small")), b"hello\n")
            want = w.kubectl("exec", "server", "--", "sha256sum", "/www/large").split()[0]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for body in pool.map(lambda _: fetch(18080, "/large"), range(4)):
                    same("a large answer", hashlib.sha256(body).hexdigest(), want)
            try:
                refused = fetch(18081, "/")
            except (OSError, http.client.HTTPException):
                refused = None
            same("nobody listens", refused, None)
            said = until(
                "kubectl says so", lambda: "refused" in open(log).read() and open(log).read()
            )
            true("which is an error of that one", "error" in said, said)
        finally:
            child.terminate()
    os.unlink(log)
