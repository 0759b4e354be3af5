"""An agent that speaks WebSocket on 127.0.0.1:PORT (`ws PORT`). Runs inside a sandbox, with ws.py of
tests/support before it as the module ws.

Answers each message by the same one, in fragments of random lengths. A text message may be an order:
    !close CODE [REASON]  !end (no Close)  !exit (status 3)  !flood  !stall  !path  !ping
    !bad-text  !masked  !too-long
What it has done is in the chat's files: sent, received, connections, code (of the last Close).
"""

import os
import random
import socket
import sys
import threading
import time

import ws

NOTES = "/workspace/chat/"


def note(name, value):
    """For the test outside, which must never see half a number."""
    new = f"{NOTES}{name}.{threading.get_ident()}"
    with open(new, "w", encoding="utf-8") as out:
        out.write(str(value))
    os.rename(new, NOTES + name)


def counting(start, size):
    return b"".join(n.to_bytes(8, "big") for n in range(start // 8, (start + size) // 8))


def flood(conn):
    sent = 0
    while True:
        conn.send_binary(counting(sent, 65536))
        sent += 65536
        note("sent", sent)


def send_in_fragments(conn, opcode, payload):
    cuts = sorted(random.randint(0, len(payload)) for _ in range(random.randint(0, 6)))
    edges = [0, *cuts, len(payload)]
    conn.send_fragments(opcode, [payload[a:b] for a, b in zip(edges, edges[1:])])


def obey(conn, order):
    """True when it was one."""
    words = order.split(" ", 2)
    if words[0] == "!close":
        conn.send_close(int(words[1]), words[2] if len(words) > 2 else "")
        conn.wait_closed(5)
    elif words[0] == "!end":
        conn.close()
    elif words[0] == "!exit":
        os._exit(3)
    elif words[0] == "!flood":
        flood(conn)
    elif words[0] == "!path":
        conn.send_text(conn.path + " " + conn.headers["host"])
    elif words[0] == "!bad-text":
        conn.send_frame(ws.OP_TEXT, b"\xe2\x82", fin=False)
        conn.send_frame(ws.OP_CONT, b"\x41")
    elif words[0] == "!masked":
        conn.send_raw(ws.frame(ws.OP_TEXT, b"hello", mask=b"1234"))
    elif words[0] == "!too-long":
        conn.send_raw(b"\x82\x7f" + (16 * 1024 * 1024 + 1).to_bytes(8, "big") + b"x")
    elif words[0] == "!ping":
        conn.send_frame(ws.OP_PING, b"are you there")
        while conn.recv_frame(5)[1:] != (ws.OP_PONG, b"are you there"):
            pass
        conn.send_text("pong")
    else:
        return False
    return True


def serve(conn):
    received = 0
    try:
        while True:
            opcode, payload = conn.recv(600)
            received += len(payload)
            note("received", received)
            if opcode == ws.OP_TEXT and payload[:1] == b"!":
                while payload == b"!stall":
                    time.sleep(60)
                if obey(conn, payload.decode()):
                    continue
            send_in_fragments(conn, opcode, payload)
    except (OSError, ws.WsError, ValueError):
        pass
    except ws.WsClosed as closed:
        note("code", f"{closed.code} {closed.reason}")
    conn.close()


def main(port):
    server = ws.WsServer(("127.0.0.1", int(port)))
    served = 0
    while True:
        try:
            conn = server.accept(600)
        except (OSError, ws.WsError):
            continue
        conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.sock.settimeout(None)
        served += 1
        note("connections", served)
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main(sys.argv[2])
