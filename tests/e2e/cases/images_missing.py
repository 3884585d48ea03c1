"""Images that are not there: ErrImageNeverPull; ErrImagePull, then back-off; the others run."""

from agent import Agent, container_status, place, pods, running, true, until


def case():
    Agent().start()
    place("image-absent.yaml")
    place("image-unreachable.yaml")
    place("hello.yaml")
    running("hello")

    def waiting(name):
        return container_status(pods()[name])["state"]["waiting"]

    until("ErrImageNeverPull", lambda: waiting("image-absent")["reason"] == "ErrImageNeverPull")
    until(
        "ErrImagePull or its back-off",
        lambda: waiting("image-unreachable")["reason"] in ("ErrImagePull", "ImagePullBackOff"),
    )
    until("ImagePullBackOff", lambda: waiting("image-unreachable")["reason"] == "ImagePullBackOff")
    true(
        "the message",
        'Back-off pulling image "127.0.0.1:1/absent:1"' in waiting("image-unreachable")["message"],
        waiting("image-unreachable"),
    )
