"""A gateway's data directory in a file system of its own: a file that is mounted."""

import os
import shutil
import subprocess


def mount_data(test, gateway, size, *mkfs):
    """For a gateway that does not run yet; ends with the test. The path of the directory."""
    data = os.path.join(gateway.dir, "data")
    image, made = data + ".image", data + ".made"
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
