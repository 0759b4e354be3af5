"""Ports for servers that have to be told one before they listen.

    port = ports.reserve()      # for this process and what it starts, until it ends

A port that was free a moment ago is anybody's: of the kernel, too, for a connection of another test. So
it stays bound here, by a socket that never listens. A server that sets SO_REUSEADDR, as all do, binds
beside it; nobody is given it by chance.
"""

import socket

_held = []


def reserve(host="127.0.0.1"):
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    _held.append(held)
    return held.getsockname()[1]
