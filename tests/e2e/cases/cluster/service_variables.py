"""A pod sees in its environment where the services of its namespace are, and the API server;
without enableServiceLinks the API server alone."""

from agent import same, true, until
from member import shell


def variables(w, name):
    [container] = w.containers(w.running(name))
    with open(f"/proc/{container['pid']}/environ") as file:
        return dict(line.split("=", 1) for line in file.read().split("\0") if line)


def case(w):
    ports = [{"name": "http", "port": 80}]
    service = {"kind": "Service", "metadata": {"name": "my-web"}, "spec": {"ports": ports}}
    address = w.create(service)["spec"]["clusterIP"]

    def seen():
        """The agent may hear of the service later than of the pod: as many tries as it takes."""
        seen.tries += 1
        w.create(shell(f"box-{seen.tries}"))
        have = variables(w, f"box-{seen.tries}")
        return have if "MY_WEB_SERVICE_HOST" in have else None

    seen.tries = 0
    have = until("a pod that sees the service", seen)
    same("its address", have["MY_WEB_SERVICE_HOST"], address)
    same("its port", have["MY_WEB_SERVICE_PORT_HTTP"], "80")
    same("the API server", have["KUBERNETES_SERVICE_HOST"], "10.96.0.1")
    same("its port", have["KUBERNETES_PORT_443_TCP"], "tcp://10.96.0.1:443")
    w.create(shell("alone", enableServiceLinks=False))
    have = variables(w, "alone")
    true("the API server all the same", "KUBERNETES_SERVICE_HOST" in have, have)
    true("no other", "MY_WEB_SERVICE_HOST" not in have, have)
