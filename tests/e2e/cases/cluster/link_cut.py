"""The link to the API server is cut again and again during a rollout, in the middle of what is on the
way: the rollout ends as if nothing had been."""

import time

from agent import container_status, same
from cluster import ETC, by_certificate, kubeconfig
from member import deployment
from relay import Relay

CUTS = 30


def case(w):
    relay = Relay()
    config = kubeconfig(f"{ETC}/relay.conf", by_certificate("kubelet"), relay.server)
    with w.instead(w.make(args=w.flags(config), log="/run/link-cut.log")):
        w.create(deployment("web", 4))
        w.have("web", 4)
        for number in range(CUTS):
            if number % 10 == 0:
                w.kubectl("set", "env", "deployment/web", f"ROUND={number}")
            relay.cut()
            time.sleep(0.05 * (number % 9))
        w.kubectl("rollout", "status", "deployment/web", "--timeout=90s", timeout=100)
        last = w.have("web", 4)
        same("restarts", [container_status(pod)["restartCount"] for pod in last], [0] * 4)
        same("containers a pod", [len(w.containers(pod, live=False)) for pod in last], [1] * 4)
        w.kubectl("delete", "deployment", "web")
        for pod in last:
            w.gone(pod)
    relay.close()
