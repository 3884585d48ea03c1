"""One unary CRI call, for what `ctr` cannot do: gRPC over HTTP/2 by hand, no more than that
takes."""

import socket
import struct

SOCKET = "/run/containerd/containerd.sock"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def field(number, value):
    """One protobuf field: a string, bytes (a message) or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def frame(kind, flags, stream, payload):
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def literal(name, value):
    """A header that is neither indexed nor compressed (RFC 7541, 6.2.2); both shorter than 127
    bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(method, request, timeout=30):
    """Calls runtime.v1.RuntimeService/METHOD with an encoded request; returns the encoded
    response."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/runtime.v1.RuntimeService/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout)
        link.connect(SOCKET)
        link.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(SETTINGS, 0, 0, b"")
            + frame(HEADERS, END_HEADERS, 1, b"".join(literal(*pair) for pair in headers.items()))
            + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(request)) + request)
        )
        body, ended = b"", False
        read = link.makefile("rb")
        while not ended:
            head = read.read(9)
            if len(head) < 9:
                raise RuntimeError(f"{method}: the runtime closed the connection")
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            payload = read.read(size)
            if kind == DATA:
                body += payload
            elif kind == SETTINGS and not flags & ACK:
                link.sendall(frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                link.sendall(frame(PING, ACK, 0, payload))
            elif kind == GOAWAY:
                raise RuntimeError(f"{method}: GOAWAY {payload!r}")
            ended = kind in (DATA, HEADERS) and bool(flags & END_STREAM)
        if not body:  # an answer has a message even when it is empty; an error has none
            raise RuntimeError(f"{method} failed")
        return body[5:]


def reopen_log(container_id):
    call("ReopenContainerLog", field(1, container_id))
