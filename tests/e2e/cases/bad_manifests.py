"""Broken, huge and hostile manifests: each is named with file and line, and the good one beside them runs."""

import os

from agent import MANIFESTS, Agent, place, pods, running, same, true

BAD = {
    "tabs.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: tabs\n",
    "no-kind.yaml": "apiVersion: v1\nmetadata: {name: no-kind}\n",
    "wrong-kind.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: wrong-kind}\n",
    "no-containers.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: no-containers}\nspec: {containers: []}\n",
    "bad-name.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: Not_A_Name}\nspec: {containers: [{name: c, image: i}]}\n",
    "type.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: type}\nspec:\n  terminationGracePeriodSeconds: soon\n  containers: [{name: c, image: i}]\n",
    "bomb.yaml": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
    "deep.yaml": "[" * 100000,
    "binary.yaml": "\x00\x01\x02 apiVersion",
    "empty.yaml": "",
    "array.json": "[1, 2, 3]",
}


def case():
    for name, text in BAD.items():
        place(name, text=text)
    with open(f"{MANIFESTS}/huge.yaml", "w") as file:
        file.write("apiVersion: v1\nkind: Pod\n" + "# filler filler filler filler\n" * 400000)  # over 10 MiB
    os.mkfifo(f"{MANIFESTS}/pipe.yaml")
    os.mkdir(f"{MANIFESTS}/folder.yaml")
    os.symlink("/nowhere", f"{MANIFESTS}/dangling.yaml")
    place("hello.yaml")
    agent = Agent()
    agent.start()
    running("hello")
    same("pods", sorted(pods()), ["hello"])
    for name in ("tabs.yaml", "no-kind.yaml", "wrong-kind.yaml", "no-containers.yaml", "bad-name.yaml", "type.yaml", "bomb.yaml", "deep.yaml", "huge.yaml"):
        agent.says(name)
    if not agent.reference:
        line = agent.says("type.yaml")
        true("the line names the key", "terminationGracePeriodSeconds" in line, line)
        true("and the line of the file", ":5" in line or "line 5" in line, line)
