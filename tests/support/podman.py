"""Podman's service of the Docker API, of the test's own, with all its files below /tmp.

Podman demands RLIMIT_NPROC for each container, and more of it than a machine without CAP_SYS_RESOURCE may
give; crun knows no hybrid control groups. So it is given a runtime that leaves out the first and is runc.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from docker import DockerError, UnixConnection, needed, tar_of

START_S = 60
RUNTIME = """#!{python}
import json, os, sys
words = sys.argv[1:]
if "create" in words:
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words else os.getcwd()
    with open(os.path.join(bundle, "config.json"), "r+", encoding="utf-8") as file:
        config = json.load(file)
        limits = config["process"].get("rlimits", [])
        config["process"]["rlimits"] = [l for l in limits if l["type"] != "RLIMIT_NPROC"]
        file.seek(0)
        file.truncate()
        json.dump(config, file)
os.execv({runc!r}, ["runc", *words])
"""


class Podman:
    """`insecure`: registries whose certificates it takes without an authority's word."""

    def __init__(self, insecure=()):
        needed("podman", "podman")
        self.dir = tempfile.mkdtemp(prefix="lhm-", dir="/tmp")
        self.socket = os.path.join(self.dir, "p.sock")
        self.url = "unix://" + self.socket
        self.process = None
        self.registries = os.path.join(self.dir, "registries.conf")
        with open(self.registries, "w", encoding="utf-8") as out:
            for address in insecure:
                out.write(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        try:
            self._start()
        except BaseException:
            self.cleanup()
            raise

    def _command(self, *words):
        places = [f"--{name}={os.path.join(self.dir, name)}" for name in ("root", "runroot", "tmpdir")]
        return ["podman", *places, "--runtime=" + os.path.join(self.dir, "runc"),
                "--cgroup-manager=cgroupfs", "--events-backend=file", *words]  # fmt: skip

    def _start(self):
        runtime = os.path.join(self.dir, "runc")
        with open(runtime, "w", encoding="utf-8") as out:
            out.write(RUNTIME.format(python=sys.executable, runc=needed("runc", "runc")))
        os.chmod(runtime, 0o755)
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(
                self._command("system", "service", "--time=0", self.url),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "CONTAINERS_REGISTRIES_CONF": self.registries},
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.request("GET", "/_ping")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as text:
            raise DockerError(f"podman is not ready:\n{text.read()[-2000:]}")

    def request(self, method, path):
        connection = UnixConnection(self.socket, 60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data

    def image(self, name, files):
        path = os.path.join(self.dir, "image.tar")
        with open(path, "wb") as out:
            out.write(tar_of(files))
        subprocess.run(self._command("import", path, name), check=True, capture_output=True)

    def containers(self):
        return self.request("GET", "/containers/json?all=1")[1]

    def cleanup(self):
        if self.process:
            subprocess.run(self._command("rm", "-fa"), check=False, capture_output=True)
            self.process.terminate()
            self.process.wait()
        with open("/proc/self/mounts", encoding="utf-8") as text:
            points = [line.split()[1] for line in text if line.split()[1].startswith(self.dir + "/")]
        for point in sorted(points, key=len, reverse=True):
            subprocess.run(["umount", "-l", point], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
