"""Programs of C that a test brings into a sandbox."""

import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def compile_c(source, path, *flags):
    command = ["gcc", "-x", "c", "-w", "-I", HERE, "-o", path, *flags, "-"]
    subprocess.run(command, input=source, text=True, check=True)
