"""One network a pod, the node's for hostNetwork; hosts, resolv.conf, environment."""

from agent import Agent, log_lines, place, running, same, true, until


def case():
    Agent().start()
    place("two-containers.yaml")
    place("host-network.yaml")
    pod = running("two-containers")
    until("the log", lambda: "nameserver" in "\n".join(log_lines(pod, "client")))
    lines = log_lines(pod, "client")
    same("over the loopback, with an expanded variable", lines[0], "hello from server")
    same("host name", lines[1], "two-containers-node1")
    same(
        "hosts",
        lines[2:13],
        [
            "# Kubernetes-managed hosts file.",
            "127.0.0.1\tlocalhost",
            "::1\tlocalhost ip6-localhost ip6-loopback",
            "fe00::0\tip6-localnet",
            "fe00::0\tip6-mcastprefix",
            "fe00::1\tip6-allnodes",
            "fe00::2\tip6-allrouters",
            f"{pod['status']['podIP']}\ttwo-containers-node1",
            "",
            "# Entries added by HostAliases.",
            "192.0.2.7\tseven\tseven.example",
        ],
    )
    pod = running("host-network")
    until("the log", lambda: len(log_lines(pod)) == 3)
    lines = log_lines(pod)
    same("host name", lines[0], "node1")
    true("the node's address", "10.89.0.1/24" in lines[1], lines[1])
    same("hosts", lines[2], "# Kubernetes-managed hosts file (host network).")
    same("its address", pod["status"].get("podIP", "10.89.0.1"), "10.89.0.1")
