"""Small agents for sandboxes, as commands of a profile. The source goes along in the arguments, so
that nothing has to be bound into the sandbox; packed and cut, because a word has a limit."""

import base64
import os
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
WORD_MAX = 4000
UNPACK = (
    "import base64, sys, zlib\n"
    "n = int(sys.argv[1])\n"
    "source = zlib.decompress(base64.b64decode(''.join(sys.argv[2 : 2 + n])))\n"
    "sys.argv[1:] = sys.argv[2 + n :]\n"
    "exec(source)\n"
)


def source(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as text:
        return text.read()


def command(program, *arguments):
    packed = base64.b64encode(zlib.compress(program.encode(), 9)).decode()
    words = [packed[i : i + WORD_MAX] for i in range(0, len(packed), WORD_MAX)]
    return ["/usr/bin/python3", "-I", "-c", UNPACK, str(len(words)), *words, *map(str, arguments)]


def stream_agent(kind, address):
    """On `tcp`, a port, or `unix`, a path."""
    return command(source("stream_agent.py"), kind, address)


def ws_agent(port):
    with_ws = (
        "import sys, types\n"
        "module = types.ModuleType('ws')\n"
        f"exec({source('..', 'ws.py')!r}, module.__dict__)\n"
        "sys.modules['ws'] = module\n"
    )
    return command(with_ws + source("ws_agent.py"), "ws", port)
