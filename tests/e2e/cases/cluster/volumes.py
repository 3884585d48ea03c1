"""The volumes that every pod of an API server carries: configMap, secret, a projected token, the
downward API; a changed ConfigMap comes through."""

import base64
import json
import subprocess

from agent import same, true, until
from member import shell

VOLUMES = [
    {"name": "config", "configMap": {"name": "config", "defaultMode": 0o440}},
    {"name": "secret", "secret": {"secretName": "secret", "items": [{"key": "a", "path": "x/y"}]}},
    {
        "name": "about",
        "downwardAPI": {
            "items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {
                    "path": "memory",
                    "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"},
                },
            ]
        },
    },
    {
        "name": "all",
        "projected": {
            "sources": [
                {"configMap": {"name": "config", "items": [{"key": "one", "path": "one"}]}},
                {
                    "serviceAccountToken": {
                        "path": "token",
                        "audience": "us",
                        "expirationSeconds": 600,
                    }
                },
            ]
        },
    },
]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def case(w):
    w.create(
        {"kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"one": "1", "two": "2"}}
    )
    hidden = base64.b64encode(b"hidden").decode()
    w.create({"kind": "Secret", "metadata": {"name": "secret"}, "data": {"a": hidden}})
    mounts = [{"name": one["name"], "mountPath": "/" + one["name"]} for one in VOLUMES]
    env = [
        {"name": "TWO", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "two"}}},
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "a"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    limits = {"limits": {"memory": "64Mi"}}
    pod = shell("box", container={"volumeMounts": mounts, "env": env, "resources": limits})
    pod["spec"].update(volumes=VOLUMES, automountServiceAccountToken=True)
    w.create(pod)
    pod = w.running("box")

    [container] = w.containers(pod)
    there = ["nsenter", "--target", str(container["pid"]), "--mount", "--", "/bin/sh", "-c"]
    with open(f"/proc/{container['pid']}/environ") as file:
        variables = dict(line.split("=", 1) for line in file.read().split("\0") if line)

    def sh(script):
        return subprocess.run(
            [*there, script], env=variables, capture_output=True, text=True
        ).stdout

    same("configMap", sh("cat /config/one /config/two"), "12")
    same("its mode", sh("stat -Lc %a /config/one"), "440\n")
    same("secret", sh("cat /secret/x/y"), "hidden")
    same("labels", sh("cat /about/labels").strip(), 'app="box"')
    same("a limit", sh("cat /about/memory").strip(), str(64 << 20))
    same("environment", sh("echo $TWO $A $IP"), f"2 hidden {pod['status']['podIP']}\n")
    have = claims(sh("cat /all/token"))
    same("audience of the token", have["aud"], ["us"])
    same("bound to the pod", have["kubernetes.io"]["pod"]["uid"], pod["metadata"]["uid"])
    same("the account's folder", sh(f"ls {ACCOUNT}").split(), ["ca.crt", "namespace", "token"])
    same("namespace", sh(f"cat {ACCOUNT}/namespace"), w.namespace)
    true("the root's certificate", "BEGIN CERTIFICATE" in sh(f"cat {ACCOUNT}/ca.crt"))

    w.cluster.patch(w.path("configmaps", "config"), {"data": {"one": "uno"}})
    until("the change comes through", lambda: sh("cat /config/one /all/one") == "unouno", 150)

    mount = {"volumeMounts": [{"name": "later", "mountPath": "/later"}]}
    later = [{"name": "later", "configMap": {"name": "later"}}]
    w.create(shell("waits", container=mount, volumes=later))
    until("it is told what is missing", lambda: "FailedMount" in w.events("waits"))
    w.create({"kind": "ConfigMap", "metadata": {"name": "later"}, "data": {}})
    w.running("waits", 150)
