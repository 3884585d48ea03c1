"""Termination messages: from the file, from another file, from the log; at most 12 KiB a pod,
shared by its containers."""

from agent import Agent, container_status, phase, place, same


def case():
    Agent().start()
    place("termination-message.yaml")
    pod = phase("termination-message", "Failed")

    def words(name):
        return container_status(pod, name)["state"]["terminated"].get("message", "")

    same("default file", words("default-file"), "from the file")
    same("other file", words("other-file"), "from another file")
    same("end of the log", words("from-log"), "one\ntwo\n")
    same("length of the long one, a quarter of 12 KiB", len(words("long-file")), 3072)
    same("its end", words("long-file")[-16:], "0123456\n0123456\n")
