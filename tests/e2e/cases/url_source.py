"""Pods from a URL: a list of two, a change, an error that changes nothing, and an empty list that
ends them."""

import http.server
import json
import threading
import time

from agent import CONFIG, Agent, gone, live, pods, running, same, until

SERVED = {"status": 200, "body": b""}
SEEN = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802, the name that http.server looks for
        SEEN.append(self.headers.get("X-Node"))
        self.send_response(SERVED["status"])
        self.end_headers()
        self.wfile.write(SERVED["body"])

    def log_message(self, *args):
        pass


def serve(*names, status=200, second="3600"):
    one = lambda name: {  # noqa: E731
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "c",
                    "image": "docker.io/library/busybox:1",
                    "imagePullPolicy": "Never",
                    "command": ["sleep", second],
                }
            ],
        },
    }
    body = {"apiVersion": "v1", "kind": "PodList", "items": [one(name) for name in names]}
    SERVED.update(status=status, body=json.dumps(body).encode())


def case():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serve("first", "second")
    extra = """
staticPodURL: http://127.0.0.1:8000/pods
staticPodURLHeader: {X-Node: [one]}
httpCheckFrequency: 2s
"""
    Agent(config=CONFIG + extra).start()
    pod = running("first")
    running("second")
    same("source", pod["metadata"]["annotations"]["kubernetes.io/config.source"], "http")
    same("the header was sent", SEEN[-1], "one")
    [before] = live("first")

    serve(status=503)
    time.sleep(5)
    SERVED.update(status=200, body=b"<html>captive portal</html>")
    time.sleep(5)
    same("errors change nothing", sorted(pods()), ["first", "second"])
    same("the container", [c["ID"] for c in live("first")], [before["ID"]])

    serve("first")
    gone("second")
    same("the other goes on", [c["ID"] for c in live("first")], [before["ID"]])
    serve()
    until("an empty list ends the last", lambda: not live("first"), 40)
