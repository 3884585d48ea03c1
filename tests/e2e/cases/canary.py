"""A known secret in a header and in the registry's credentials: nothing that the agent writes or
answers has it."""

import base64
import http.server
import json
import os
import threading

from agent import CONFIG, STATE, Agent, get, place, running, steplet, true, until

CANARY = "canary-5a1f0c93"
SEEN = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802, the name that http.server looks for
        SEEN.append(self.headers.get("Authorization"))
        self.send_response(404)
        self.end_headers()

    def log_message(self, *args):
        pass


OURS = True  # upstream shows the header in /configz


def case():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    auth = base64.b64encode(f"user:{CANARY}".encode()).decode()
    with open(f"{STATE}/config.json", "w") as file:
        json.dump({"auths": {"127.0.0.1:1": {"auth": auth}}}, file)
    extra = f"""
staticPodURL: http://127.0.0.1:8000/pods
staticPodURLHeader: {{Authorization: ['Bearer {CANARY}']}}
httpCheckFrequency: 2s
"""
    agent = Agent(config=CONFIG + extra, args=["-v", "9"])
    agent.start()
    place("hello.yaml")
    place("image-unreachable.yaml")
    running("hello")
    until("the header was sent", lambda: f"Bearer {CANARY}" in SEEN)
    answers = {
        path: get(path, port=10250)[1]
        for path in ("/configz", "/pods", "/metrics", "/runningpods/")
    }
    agent.end()
    answers["tape show"] = steplet("tape", "show", f"{STATE}/tapes")[1].encode()
    answers["log"] = agent.output().encode()
    for folder, _, files in os.walk(STATE):
        for name in files:
            path = os.path.join(folder, name)
            if name != "config.json" and os.path.isfile(path):
                with open(path, "rb") as file:
                    answers[path] = file.read()
    for where, body in answers.items():
        true(f"no secret in {where}", CANARY.encode() not in body and auth.encode() not in body)
