"""Landlock, which keeps the signals of a tool to itself (runtime/init/tool_scope.h), and how to be without."""

import contextlib
import ctypes
import functools
import struct
import subprocess
from unittest import mock

CREATE_RULESET = 444  # of every architecture
ABI_OF_SIGNALS = 6
PR_SET_SECCOMP, MODE_FILTER, ALLOW, ERRNO_ENOSYS = 22, 2, 0x7FFF0000, 0x50000 | 38


def keeps_signals():
    """Can this kernel?"""
    return ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1) >= ABI_OF_SIGNALS


def _refuse():
    code = b"".join(struct.pack("HBBI", *i) for i in (
        (0x20, 0, 0, 0), (0x15, 0, 1, CREATE_RULESET), (0x06, 0, 0, ERRNO_ENOSYS), (0x06, 0, 0, ALLOW)))
    held = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    if ctypes.CDLL(None).prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.create_string_buffer(program), 0, 0):
        raise OSError("no filter")


@contextlib.contextmanager
def absent():
    """What is started meanwhile finds a kernel that is older."""
    popen = functools.partial(subprocess.Popen, preexec_fn=_refuse)
    with mock.patch("subprocess.Popen", popen):
        yield
