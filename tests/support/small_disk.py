"""A disk that can be full: ext4 on a loop device, over a directory whose content it takes along.

    disk = SmallDisk(self, gateway.run_dir, 16)
    disk.fill()
    disk.free()

Nothing of it is kept back for root, so root is refused as everybody is.
"""

import os
import shutil
import subprocess

FILLER = "filler"


class SmallDisk:
    def __init__(self, test, directory, mib):
        """`test`: unmounts it at its end, or at that of its class when it is one."""
        self.directory = directory
        image, made = directory + ".image", directory + ".made"
        os.rename(directory, made)
        os.mkdir(directory)
        with open(image, "wb") as file:
            file.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, directory], check=True)
        (test.addClassCleanup if isinstance(test, type) else test.addCleanup)(self.unmount)
        os.rmdir(os.path.join(directory, "lost+found"))
        subprocess.run(["cp", "-a", "--sparse=always", made + "/.", directory], check=True)
        shutil.rmtree(made)

    def unmount(self):
        if os.path.ismount(self.directory):  # an engine's cleanup takes its mounts along
            subprocess.run(["umount", "-l", self.directory], check=True)

    def fill(self):
        """To the last block, and again for what comes free meanwhile."""
        with open(os.path.join(self.directory, FILLER), "ab", buffering=0) as out:
            for size in (1 << 20, 4096, 1, 4096, 1):
                try:
                    while True:
                        out.write(bytes(size))
                except OSError:
                    pass

    def free(self):
        os.unlink(os.path.join(self.directory, FILLER))
