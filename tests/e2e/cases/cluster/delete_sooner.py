"""A second deletion with a shorter grace is obeyed; the reference goes on waiting for the first
one's."""

from agent import same, until
from member import shell

OURS = True


def case(w):
    w.create(shell("deaf", "trap '' TERM; while :; do sleep 1; done", grace=600))
    pod = w.running("deaf")
    w.cluster.delete(w.path(name="deaf"), gracePeriodSeconds=300)
    until("it is told to end", lambda: w.pod("deaf")["metadata"].get("deletionTimestamp"))
    same("it still runs", len(w.containers(pod)), 1)
    w.cluster.delete(w.path(name="deaf"), gracePeriodSeconds=1)
    w.gone(pod, 20)
