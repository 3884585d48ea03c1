"""Broken, huge and hostile manifests: each is named with file and line, and the good one beside
them runs."""

import os

from agent import MANIFESTS, Agent, place, pods, running, same, true

HEAD = "apiVersion: v1\nkind: Pod\n"
ONE = "containers: [{name: c, image: i}]"
LETTERS = "abcdefghij"

BAD = {
    "tabs.yaml": HEAD + "metadata:\n\tname: tabs\n",
    "no-kind.yaml": "apiVersion: v1\nmetadata: {name: no-kind}\n",
    "wrong-kind.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: wrong-kind}\n",
    "no-containers.yaml": HEAD + "metadata: {name: no-containers}\nspec: {containers: []}\n",
    "bad-name.yaml": HEAD + f"metadata: {{name: Not_A_Name}}\nspec: {{{ONE}}}\n",
    "type.yaml": HEAD
    + f"metadata: {{name: type}}\nspec:\n  terminationGracePeriodSeconds: soon\n  {ONE}\n",
    # Aliases of aliases: a few hundred bytes that would be gigabytes when written out.
    "bomb.yaml": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip(LETTERS, LETTERS[1:])
    ),
    "deep.yaml": "[" * 100000,
    "binary.yaml": "\x00\x01\x02 apiVersion",
    "empty.yaml": "",
    "array.json": "[1, 2, 3]",
}
NAMED = [name for name in BAD if name not in ("binary.yaml", "empty.yaml", "array.json")]


def case():
    for name, text in BAD.items():
        place(name, text=text)
    with open(f"{MANIFESTS}/huge.yaml", "w") as file:
        file.write(
            "apiVersion: v1\nkind: Pod\n" + "# filler filler filler filler\n" * 400000
        )  # over 10 MiB
    os.mkfifo(f"{MANIFESTS}/pipe.yaml")
    os.mkdir(f"{MANIFESTS}/folder.yaml")
    os.symlink("/nowhere", f"{MANIFESTS}/dangling.yaml")
    place("hello.yaml")
    agent = Agent()
    agent.start()
    running("hello")
    same("pods", sorted(pods()), ["hello"])
    for name in [*NAMED, "huge.yaml"]:
        agent.says(name)
    if not agent.reference:
        line = agent.says("type.yaml")
        true("the line names the key", "terminationGracePeriodSeconds" in line, line)
        true("and the line of the file", ":5" in line or "line 5" in line, line)
