"""Runs the programs as a user without root.

They are copied to where that user can reach them: the clone may stand in a directory like /root.

    launcher = WithoutRoot.for_test(self, gateway.BIN)
    gateway = Gateway.for_test(self, launcher=launcher)
"""

import os
import shutil
import tempfile

UID = 12345


def copy_programs(source):
    """A directory with all the programs of `source` that everybody can reach. The caller's."""
    target = tempfile.mkdtemp(prefix="lh-bin-")
    os.chmod(target, 0o755)
    for entry in os.scandir(source):
        if entry.is_file() and os.access(entry.path, os.X_OK):
            shutil.copy(entry.path, target)
            os.chmod(os.path.join(target, entry.name), 0o755)
    return target


class WithoutRoot:
    def __init__(self, source, capabilities=()):
        self.bin = copy_programs(source)
        self.capabilities = capabilities  # names that it gets as ambient ones

    @classmethod
    def for_test(cls, test, source, capabilities=()):
        launcher = cls(source, capabilities)
        test.addCleanup(shutil.rmtree, launcher.bin)
        return launcher

    def new_dir(self, prefix):
        path = tempfile.mkdtemp(prefix=prefix)
        os.chown(path, UID, UID)
        return path

    def command(self, name, *args):
        granted = ",".join("+" + c for c in self.capabilities) or "-all"
        return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups",
                f"--inh-caps={granted}", f"--ambient-caps={granted}",
                os.path.join(self.bin, name), *args]


class RootWithout:
    """Root that lacks one capability, as in a container."""

    def __init__(self, source, capability):
        self.bin = source
        self.capability = capability

    def new_dir(self, prefix):
        return tempfile.mkdtemp(prefix=prefix)

    def command(self, name, *args):
        return ["setpriv", f"--bounding-set=-{self.capability.lower()}",
                os.path.join(self.bin, name), *args]
