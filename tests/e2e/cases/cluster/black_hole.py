"""The connection to the API server passes nothing more and is not closed: it is replaced before the
node counts as lost, and pods come and go again."""

from agent import same, true, until
from cluster import ETC, by_certificate, kubeconfig
from member import LEASE, conditions, deployment
from relay import Relay


def case(w):
    relay = Relay()
    config = kubeconfig(f"{ETC}/relay.conf", by_certificate("kubelet"), relay.server)
    with w.instead(w.make(args=w.flags(config), log="/run/black-hole.log")):
        w.create(deployment("web", 2))
        before = w.have("web", 2)
        true("it goes through the relay", relay.links)
        relay.swallow()
        renewed = w.cluster.get(LEASE)["spec"]["renewTime"]
        w.kubectl("scale", "deployment/web", "--replicas=3")
        w.have("web", 3, 60)
        until("the lease is renewed", lambda: w.cluster.get(LEASE)["spec"]["renewTime"] > renewed)
        same("the node was not lost", conditions(w.node())["Ready"]["status"], "True")
        w.kubectl("delete", "deployment", "web")
        for pod in before:
            w.gone(pod)
    relay.close()
