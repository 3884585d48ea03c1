"""What is measured on a node that has joined a real API server. Runs inside tests/e2e/world/enter.

`joined.py SUBJECT` prints one line of JSON, as stage.py does. Pods are bound by their nodeName, so
that no scheduler is in the figures, and a watch tells when they are Ready or gone. They have the
volume with a token that pods have when nobody says otherwise.
"""

import http.client
import json
import os
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e/world"))
import agent as a  # noqa: E402
import cluster as c  # noqa: E402
import member  # noqa: E402
import stage  # noqa: E402

NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ONE_BY_ONE, BURST, MOST = 10, 40, 110


class Watch(threading.Thread):
    """When each object was first Ready and when it was gone, as a watch saw it."""

    def __init__(self, cluster, path):
        super().__init__(daemon=True)
        self.cluster, self.path = cluster, path
        self.ready, self.gone, self.news = {}, {}, threading.Condition()
        self.start()

    def run(self):
        """A server that has just started may refuse the first watches: its cache is behind."""
        while True:
            link = http.client.HTTPSConnection(c.ADDRESS, c.PORT, context=self.cluster.tls)
            link.request("GET", f"{self.path}?watch=1&timeoutSeconds=7200")
            for line in link.getresponse():
                self.hear(json.loads(line))
            link.close()
            time.sleep(0.2)

    def hear(self, event):
        now, thing = time.monotonic(), event["object"]
        if event["type"] == "ERROR":
            return
        name = thing["metadata"]["name"]
        with self.news:
            if event["type"] == "DELETED":
                self.gone[name] = now
                self.ready.pop(name, None)
            elif member.is_ready(thing):
                self.ready.setdefault(name, now)
            self.news.notify_all()

    def until(self, what, seen, names, seconds):
        """The time at which the last of the names was seen."""
        with self.news:
            if not self.news.wait_for(lambda: all(name in seen for name in names), seconds):
                have = sum(name in seen for name in names)
                raise a.Failure(f"{have} of {len(names)} {what} after {seconds} s")
            return max(seen[name] for name in names)


def pod(name):
    spec = {
        "nodeName": a.NODE,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "c",
                "image": "registry.k8s.io/pause:3.10",
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}},
            }
        ],
    }
    return {"metadata": {"name": name}, "spec": spec}


def first_ready(node, times):
    """Milliseconds from the program's start until the Node, which is not there yet, is Ready."""
    took = []
    for _ in range(times):
        watch = Watch(node.cluster, "/api/v1/nodes")
        time.sleep(0.5)
        begin = time.monotonic()
        node.agent.start()  # and its /healthz, which comes before
        took.append(1000 * (watch.until("nodes Ready", watch.ready, [a.NODE], 120) - begin))
        time.sleep(3)
        if len(took) < times:
            node.agent.end(signal.SIGTERM)
            node.cluster.delete(member.NODE)
    return {"median_ms": statistics.median(took), "times": times}


def made(node, watch, names):
    """Creates the pods as fast as the API takes them; {name: seconds until it was Ready}."""
    at = {}
    for name in names:
        at[name] = time.monotonic()
        node.cluster.create(PODS, pod(name))
    last = watch.until("pods Ready", watch.ready, names, 600)
    return {name: watch.ready[name] - at[name] for name in names}, last - min(at.values())


def deleted(node, watch, names):
    begin = time.monotonic()
    for name in names:
        node.cluster.delete(f"{PODS}/{name}")
    return watch.until("pods gone", watch.gone, names, 600) - begin


def quiet(node):
    """A while in which nothing is asked of the agent: its processor time, its requests."""
    stage.say(f"{stage.IDLE_SECONDS} s without work")
    since = time.time()
    found = stage.idle(node.agent)
    asked = node.cluster.asked(since)
    found["requests_a_minute"] = 60 * len(asked) / (time.time() - since)
    kinds = [f"{one['verb']} {one['resource']}/{one['subresource']}" for one in asked]
    found["requests"] = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    return found


def main():
    subject, out = sys.argv[1], {}
    reference = None if subject == "steplet" else subject
    cluster = c.Cluster()
    out["cluster"] = {"seconds": cluster.start()}
    cluster.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    a.until("the namespace has its service account", lambda: cluster.get(account))
    node = member.Member(cluster, reference)
    stage.say("start until Ready")
    out["joined_start"] = first_ready(node, 2 if reference else 5)

    watch = Watch(cluster, PODS)
    time.sleep(10)
    stage.say(f"{ONE_BY_ONE} pods one by one, a burst of {BURST}")
    single = [f"single-{number}" for number in range(ONE_BY_ONE)]
    took = [made(node, watch, [name])[1] for name in single]
    out["joined_one"] = {"p50_ms": 1000 * statistics.median(took), "worst_ms": 1000 * max(took)}
    time.sleep(stage.SETTLE_SECONDS)
    out["joined_memory_10"] = stage.memory(node.agent)
    burst = [f"burst-{number}" for number in range(BURST)]
    before = stage.cpu_seconds(node.agent.pid)
    each, last = made(node, watch, burst)
    cpu = stage.cpu_seconds(node.agent.pid) - before
    out["joined_burst"] = {"s": last, "p50_s": statistics.median(each.values()), "cpu_s": cpu}
    time.sleep(stage.SETTLE_SECONDS)
    out["joined_idle"] = quiet(node)
    stage.say("deletion, then all pods that a node takes")
    out["joined_delete"] = {"s": deleted(node, watch, single + burst)}
    made(node, watch, [f"most-{number}" for number in range(MOST)])
    time.sleep(stage.SETTLE_SECONDS)
    out["joined_memory_110"] = stage.memory(node.agent)
    print(json.dumps(out))


if __name__ == "__main__":
    try:
        main()
    except a.Failure as failure:
        stage.say(f"{failure}")
        sys.exit(1)
