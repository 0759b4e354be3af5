"""An agent that speaks raw bytes: `tcp PORT` or `unix PATH`. Runs inside a sandbox.

Echoes, each connection on its own, until the first bytes of one are an order:
    !end        closes this connection          !exit       ends the agent with status 3
    !flood      sends a running count for ever  !stall      reads no more
What it has done is in the chat's files: sent, received, connections (numbers as text).
"""

import os
import socket
import sys
import threading
import time

NOTES = "/workspace/chat/"


def note(name, value):
    """For the test outside, which must never see half a number."""
    new = f"{NOTES}{name}.{threading.get_ident()}"
    with open(new, "w", encoding="utf-8") as out:
        out.write(str(value))
    os.rename(new, NOTES + name)


def counting(start, size):
    """`size` bytes of a sequence that shows any loss: 8-byte numbers."""
    return b"".join(n.to_bytes(8, "big") for n in range(start // 8, (start + size) // 8))


def flood(conn):
    sent = 0
    while True:
        piece = counting(sent, 65536)
        while piece:
            n = conn.send(piece)
            sent += n
            piece = piece[n:]
            note("sent", sent)


def obey(conn, order):
    if order.startswith(b"!exit"):
        os._exit(3)
    if order.startswith(b"!flood"):
        flood(conn)
    while order.startswith(b"!stall"):
        time.sleep(60)
    return order.startswith(b"!end")


def serve(conn):
    received = 0
    try:
        while data := conn.recv(1 << 18):
            received += len(data)
            if data.startswith(b"!") and obey(conn, data):
                break
            note("received", received)
            conn.sendall(data)
    except OSError:
        pass
    conn.close()


def main(kind, address):
    if kind == "tcp":
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(address)))
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
    listener.listen(64)
    served = 0
    while True:
        conn, _ = listener.accept()
        served += 1
        note("connections", served)
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main(*sys.argv[1:3])
