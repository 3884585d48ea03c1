"""kubectl cp: a folder into a container and back, byte for byte."""

import filecmp
import os

from agent import same, true
from member import shell


def case(w):
    w.create(shell("box"))
    w.running("box")
    os.makedirs("/run/cp/there/deep")
    with open("/run/cp/there/noise", "wb") as file:
        file.write(os.urandom(3_000_000))
    with open("/run/cp/there/deep/word", "w") as file:
        file.write("word\n")
    w.kubectl("cp", "/run/cp/there", "box:/tmp/there")
    same("a file in there", w.kubectl("exec", "box", "--", "cat", "/tmp/there/deep/word"), "word\n")
    w.kubectl("cp", "box:/tmp/there", "/run/cp/back")
    equal, other, errors = filecmp.cmpfiles(
        "/run/cp/there", "/run/cp/back", ["noise", "deep/word"], shallow=False
    )
    true("all came back as it went", not other and not errors and len(equal) == 2, (other, errors))
