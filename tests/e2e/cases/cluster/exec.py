"""kubectl exec and attach: output and errors apart, exit codes, input, a terminal with a size."""

import os
import pty
import subprocess
import threading

from agent import same, true, until
from cluster import ETC, PROGRAMS
from member import shell


def case(w):
    w.create(shell("box"))
    w.running("box")
    command = [f"{PROGRAMS}/kubectl", "--kubeconfig", f"{ETC}/admin.conf", "-n", w.namespace]
    done = subprocess.run(
        [*command, "exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    same("exit code", done.returncode, 7)
    same("output", done.stdout, "out\n")
    true("errors", done.stderr.startswith("err\n"), done.stderr)

    text = "word " * 100000
    same("input", w.kubectl("exec", "-i", "box", "--", "wc", "-c", input=text), "500000\n")
    same("there and back", w.kubectl("exec", "-i", "box", "--", "cat", input=text), text)
    said = w.kubectl("exec", "box", "--", "/bin/nothing", code=None)
    true("no such program", "nothing" in said, said)

    master, slave = pty.openpty()
    subprocess.run(["stty", "rows", "33", "cols", "44"], stdin=slave, check=True)
    seen = b""
    with subprocess.Popen(
        [*command, "exec", "-it", "box", "--", "sh", "-c", "read word; stty size; echo $word; tty"],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    ) as child:
        os.close(slave)
        threading.Timer(1, os.write, (master, b"hello\r")).start()
        try:
            while part := os.read(master, 4096):
                seen += part
        except OSError:
            pass  # the last writer is gone
        child.wait(30)
    os.close(master)
    true("the size of the terminal", b"33 44" in seen, seen)
    true("what was typed, as echo and as answer", seen.count(b"hello") == 2, seen)
    true("a terminal in there", b"/dev/pts/" in seen, seen)

    reader = {"stdin": True, "stdinOnce": False}
    w.create(shell("reader", "while read a; do echo got $a; done; sleep 1000", container=reader))
    w.running("reader")
    with subprocess.Popen(
        [*command, "attach", "-i", "reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        child.stdin.write("ping\n")
        child.stdin.flush()
        same("attached", child.stdout.readline(), "got ping\n")
        child.kill()
    until("it is in the log too", lambda: "got ping" in w.kubectl("logs", "reader"))
