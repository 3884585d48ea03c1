"""200 junk connections, half-open ones, headers of 1 MiB: the servers stay small and go on
answering."""

import os
import time

from agent import Agent, connect, get, place, running, same, status_number, true


def case():
    agent = Agent()
    agent.start()
    place("hello.yaml")
    running("hello")
    same("10250 answers", get("/pods", port=10250)[0], 200)
    before = status_number(agent.pid, "VmRSS")
    held = []
    for number in range(200):
        port = (10250, 10255, 10248)[number % 3]
        one = connect(port)
        one.setblocking(False)
        try:
            one.send(
                (os.urandom(700), b"GET / HT", b"", b"\r\n\r\n\r\n", b"\x16\x03\x01\xff\xff")[
                    number % 5
                ]
            )
        except OSError:
            pass
        held.append(one)
    same("10255 answers beside them", get("/pods")[0], 200)
    same("10250 answers beside them", get("/pods", port=10250)[0], 200)

    for port, tls in ((10255, False), (10250, True)):
        try:
            status = get("/pods", port=port, tls=tls, headers={"X-Big": "a" * (1 << 20)})[0]
            true(f"1 MiB of headers on {port} is answered", status in (200, 400, 413, 431), status)
        except OSError:
            pass  # the connection was closed on it, which is an answer too
    endless = connect(10255)
    endless.settimeout(5)
    try:
        endless.sendall(b"GET /pods HTTP/1.1\r\n")
        for _ in range(3000):
            endless.sendall(b"X-More: " + b"b" * 1000 + b"\r\n")
        refused = endless.recv(100)
        true(
            "3 MB of headers are refused",
            b" 431 " in refused or b" 400 " in refused or refused == b"",
            refused,
        )
    except OSError:
        pass
    same("it answers still", get("/pods", port=10250)[0], 200)
    grown = status_number(agent.pid, "VmRSS") - before
    if not agent.reference:
        true("memory grew by less than 8 MiB", grown < 8192, f"{grown} KiB")
    for one in held:
        one.close()
    time.sleep(1)
    same("and when they are gone", get("/healthz", port=10248)[0], 200)
    same("descriptors are given back", len(os.listdir(f"/proc/{agent.pid}/fd")) < 100, True)
