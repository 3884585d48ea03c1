"""A link between the agent and the API server that can go bad: bytes are passed on, until told
otherwise."""

import socket
import threading
import time

from cluster import ADDRESS, PORT


class Relay:
    """Listens on a free port of the node, passes bytes to the API server and back."""

    def __init__(self):
        self.links, self.listener = [], socket.create_server((ADDRESS, 0))
        self.server = f"https://{ADDRESS}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((ADDRESS, PORT), 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            link = {"ends": (near, far), "silent": False}
            self.links.append(link)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(link, one, other), daemon=True).start()

    def _pass(self, link, one, other):
        try:
            while data := one.recv(65536):
                while link["silent"]:
                    time.sleep(0.1)  # the sender sees a full window at last, and nothing else
                other.sendall(data)
        except OSError:
            pass
        for end in link["ends"]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def swallow(self):
        """The links that are there pass nothing more, and nobody is told; new ones are good."""
        for link in self.links:
            link["silent"] = True

    def cut(self):
        """Resets the links that are there, wherever a line or a frame is at this moment."""
        for link in self.links:
            for end in link["ends"]:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.links.clear()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # or the thread that accepts would keep it
        self.listener.close()
        for link in self.links:
            link["silent"] = False
        self.cut()
