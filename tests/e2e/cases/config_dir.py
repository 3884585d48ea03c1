"""--config-dir: drop-ins in the order of their names; a flag wins over all; a single file as
staticPodPath."""

import json
import os

from agent import CONFIG, Agent, fixture, get, place, running, same

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def case():
    os.makedirs("/run/config/deeper")
    for name, text in {
        "10-first.conf": "maxPods: 11\nsyncFrequency: 30s\nstaticPodPath: /run/single.yaml\n",
        "20-second.conf": "maxPods: 12\npodPidsLimit: 100\nregistryBurst: 20\n",
        "deeper/30-third.conf": "registryBurst: 30\n",
        "40-ignored.yaml": "maxPods: 13\n",
    }.items():
        with open(f"/run/config/{name}", "w") as file:
            file.write(HEAD + text)
    place("hello.yaml")  # not looked at: the path is another one
    place(
        "single.yaml",
        text=fixture("besteffort.yaml").replace("name: besteffort", "name: single"),
        into="/run",
    )
    Agent(config=CONFIG, args=["--config-dir", "/run/config", "--pod-max-pids", "200"]).start()
    running("single")
    have = json.loads(get("/configz", port=10250)[1])["kubeletconfig"]
    want = {
        "maxPods": 12,
        "syncFrequency": "30s",
        "podPidsLimit": 200,
        "registryBurst": 30,
        "staticPodPath": "/run/single.yaml",
    }
    same("the configuration", {key: have.get(key) for key in want}, want)
