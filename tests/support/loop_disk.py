"""A gateway's data directory in a file system of its own: a file that is mounted."""

import contextlib
import os
import shutil
import subprocess


def mount_data(test, gateway, size, *mkfs, image=None):
    """For a gateway that does not run yet; ends with the test. The path of the directory."""
    data = os.path.join(gateway.dir, "data")
    image, made = image or data + ".image", data + ".made"
    shutil.copytree(data, made, symlinks=True)
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run([*mkfs, image], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", image, data], check=True)
    test.addCleanup(_unmount, gateway, data)
    subprocess.run(["cp", "-a", "--sparse=always", made + "/.", data], check=True)
    return data


def _unmount(gateway, data):
    try:
        if gateway.process and gateway.process.poll() is None:
            gateway.stop()
    finally:
        subprocess.run(["umount", "-l", data], check=True)


class ThinDisk:
    """A data directory whose disk promises more than there is behind it: what is written is refused only
    when it is synced, as whole as it stands in the files."""

    def __init__(self, test, gateway, mib):
        self.store = os.path.join(gateway.dir, "thin")
        os.mkdir(self.store)
        options = f"size={mib}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "thin-disk", self.store], check=True)
        test.addCleanup(subprocess.run, ["umount", "-l", self.store], check=True)
        # No journal: it would end the file system at the first fault. All that describes it is there.
        mkfs = ["mkfs.ext4", "-q", "-m", "0", "-b", "4096", "-O", "^has_journal",
                "-E", "nodiscard,lazy_itable_init=0"]
        mount_data(test, gateway, 2 * mib << 20, *mkfs, image=os.path.join(self.store, "image"))

    @contextlib.contextmanager
    def used_up(self):
        filler = os.path.join(self.store, "filler")
        with open(filler, "wb", buffering=0) as out:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        out.write(bytes(size))
        try:
            yield
        finally:
            os.unlink(filler)
