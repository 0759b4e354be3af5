"""A Docker Engine of the test's own: Debian's dockerd on a socket, data and exec root below /tmp.

    from docker import Docker

    class Box(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.docker = Docker()
            cls.addClassCleanup(cls.docker.cleanup)
            cls.docker.image("lh/busybox", busybox())

Images are made here and imported: no registry is asked for anything. Nothing is left behind: what
the engine started ends, what it mounted is unmounted, its directory is removed.
"""

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.parse

from gateway import Gateway, merge

START_S = 60
STOP_S = 30
BUSYBOX = "/bin/busybox"
APPLETS = "sh cat echo sleep ls id env head tail tr kill mkdir touch ln dd ps mount grep pwd wget ip nc stat chmod true false test".split()

LEFT_OUT = ("__pycache__", "test", "tests", "lib2to3", "idlelib", "tkinter", "ensurepip", "distutils")


class DockerError(Exception):
    """The engine did not do what a test needs."""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("docker", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def needed(program, package):
    found = shutil.which(program) or (program if os.path.exists(program) else None)
    if not found:
        raise DockerError(f"{program} is missing: apt-get install {package}")
    return found


class Docker:
    def __init__(self, live_restore=False, hosts=(), start=True, options=()):
        needed("dockerd", "docker.io")
        # Short: the engine's own sockets stand below it, and a path of one has 107 bytes.
        self.dir = tempfile.mkdtemp(prefix="lhd-", dir="/tmp")
        self.socket = os.path.join(self.dir, "d.sock")
        self.log_file = os.path.join(self.dir, "log")
        self.live_restore = live_restore
        self.hosts = list(hosts)
        self.options = list(options)
        self.process = None
        try:
            if start:
                self.start()
        except BaseException:
            self.cleanup()
            raise

    @property
    def url(self):
        return "unix://" + self.socket

    # -- life ------------------------------------------------------------------------------------

    def start(self):
        command = [
            "dockerd",
            "--data-root", os.path.join(self.dir, "data"),
            "--exec-root", os.path.join(self.dir, "exec"),
            "--pidfile", os.path.join(self.dir, "pid"),
            "--userland-proxy=false",
            "--iptables=false",
            "--ip-forward=false",
            "--ip-masq=false",
            "--bridge=none",
            "-H", self.url,
        ]  # fmt: skip
        for host in self.hosts:
            command += ["-H", host]
        if self.live_restore:
            command.append("--live-restore")
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                command + self.options, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DockerError(f"dockerd ended with {self.process.returncode}:\n{self.log_tail()}")
            try:
                if self.request("GET", "/_ping", timeout=2)[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise DockerError(f"dockerd is not ready after {START_S} s:\n{self.log_tail()}")

    def log_tail(self):
        try:
            with open(self.log_file, encoding="utf-8", errors="replace") as text:
                return text.read()[-3000:]
        except FileNotFoundError:
            return ""

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def kill(self):
        """As with kill -9: its containers go on, its containerd dies with it. Into a dying one the
        next engine would run and give up, so that is waited for."""
        self.process.kill()
        self.process.wait()
        self.process = None
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            if not any(name == b"containerd" for _, name in self._processes()):
                break
            time.sleep(0.01)
        # Where nobody reaps it, the next engine takes the zombie for alive.
        pid_file = os.path.join(self.dir, "exec", "containerd", "containerd.pid")
        if os.path.exists(pid_file):
            os.unlink(pid_file)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def cleanup(self):
        try:
            if self.process and self.process.poll() is None:
                self.go_on()
                for container in self.containers():
                    self.remove(container["Id"])
                for network in self.networks():
                    self.request("DELETE", f"/networks/{network['Id']}")
        except OSError:
            pass
        self.stop()
        self._end_rest()
        self._unmount()
        if not os.environ.get("LEASEHOLD_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def _processes(self):
        """containerd, shims and what runs below them name our directory in their arguments."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as text:
                    words = text.read().split(b"\0")
            except OSError:
                continue
            name = os.path.basename(words[0])
            if name in (b"containerd", b"containerd-shim-runc-v2", b"dockerd", b"runc") and any(
                self.dir.encode() in word for word in words
            ):
                yield int(pid), name

    def _end_rest(self):
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            rest = list(self._processes())
            if not rest:
                return
            for pid, _ in rest:
                for child in self.children(pid):
                    self._end(child)
                self._end(pid)
            time.sleep(0.05)

    @staticmethod
    def children(pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as text:
                return [int(word) for word in text.read().split()]
        except OSError:
            return []

    @staticmethod
    def _end(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _unmount(self):
        with open("/proc/self/mounts", encoding="utf-8") as text:
            points = [line.split()[1] for line in text if line.split()[1].startswith(self.dir + "/")]
        for point in sorted(points, key=len, reverse=True):
            subprocess.run(["umount", "-l", point], check=False)

    # -- its API ---------------------------------------------------------------------------------

    def request(self, method, path, body=None, content_type="application/json", timeout=60):
        connection = UnixConnection(self.socket, timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, {"Content-Type": content_type} if body else {})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(data) if data else None
        except ValueError:
            return answer.status, data

    def ok(self, method, path, body=None):
        status, answer = self.request(method, path, body)
        if status >= 300:
            raise DockerError(f"{method} {path}: {status} {answer}")
        return answer

    def image(self, name, files, changes=()):
        """Imports a root file system: {path: bytes | path of a file | ("link", target)}."""
        query = [("fromSrc", "-"), ("repo", name), ("tag", "latest")]
        query += [("changes", change) for change in changes]
        status, answer = self.request(
            "POST",
            "/images/create?" + urllib.parse.urlencode(query),
            tar_of(files),
            "application/x-tar",
        )
        if status != 200 or b"error" in (answer if isinstance(answer, bytes) else b""):
            raise DockerError(f"import of {name}: {status} {answer}")

    def containers(self, **filters):
        query = urllib.parse.quote(json.dumps({key: [value] for key, value in filters.items()}))
        return self.ok("GET", f"/containers/json?all=1&filters={query}")

    def of_gateway(self, gateway):
        """The containers of a gateway, by its run directory."""
        return self.containers(label="leasehold.run_dir=" + os.path.realpath(gateway.run_dir))

    def remove(self, ref):
        self.request("DELETE", f"/containers/{ref}?force=1&v=1")

    def gateway(self, test, overrides=None, image="lh/busybox", url=None, **options):
        """A gateway on this engine; what it leaves is removed at the end of the test."""
        own = {
            "sandbox": {"engine": "docker", "image": image},
            "docker": {"base_url": url or self.url},
            "app": {"instance": test.id().rsplit(".", 1)[1][:60]},
        }
        gateway = Gateway.for_test(test, merge(own, overrides or {}), **options)
        test.addCleanup(self._remove_rest, gateway)
        return gateway

    def _remove_rest(self, gateway):
        if self.process:
            for container in self.of_gateway(gateway):
                self.remove(container["Id"])

    def networks(self):
        return [n for n in self.ok("GET", "/networks") if n["Name"] not in ("none", "host", "bridge")]

    def inspect(self, ref):
        return self.ok("GET", f"/containers/{ref}/json")


# -- images ----------------------------------------------------------------------------------------


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, what in files.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode = 0o755
            if isinstance(what, tuple):
                info.type, info.linkname = tarfile.SYMTYPE, what[1]
                tar.addfile(info)
                continue
            if isinstance(what, str):
                with open(what, "rb") as data:
                    what = data.read()
            info.size = len(what)
            tar.addfile(info, io.BytesIO(what))
    return out.getvalue()


def busybox():
    """A static shell and tools, nothing else."""
    files = {"bin/busybox": needed(BUSYBOX, "busybox-static")}
    files.update({f"bin/{applet}": ("link", "busybox") for applet in APPLETS})
    return files


def scratch(program):
    """One static program and nothing else: no shell, no library."""
    return {"agent": program}


def glibc(program):
    """A dynamic program of this machine with the libraries it names."""
    return {"bin/agent": program, **libraries(program)}


def libraries(*programs):
    """Those that these name, with the loader."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    words = [w for w in listed.split() if w.startswith("/") and not w.endswith(":")]
    return {word.lstrip("/"): os.path.realpath(word) for word in words}


def musl(source, directory):
    """A C program linked against musl's shared library, and that library."""
    compiler = needed("musl-gcc", "musl-tools")
    path = os.path.join(directory, "musl-agent")
    subprocess.run([compiler, "-O1", "-o", path, "-x", "c", "-"], input=source, text=True, check=True)
    return {"bin/agent": path, "lib/ld-musl-x86_64.so.1": os.path.realpath("/lib/ld-musl-x86_64.so.1")}


def python():
    """The Python of this machine, without what no agent of a test needs."""
    program = os.path.realpath(needed("/usr/bin/python3", "python3"))
    files = {"usr/bin/python3": program}
    lib = "/usr/lib/" + os.path.basename(program)
    for directory, below, names in os.walk(lib):
        below[:] = [n for n in below if n not in LEFT_OUT]
        for name in names:
            path = os.path.join(directory, name)
            if name.endswith((".py", ".so")) and os.path.isfile(path):
                files[path.lstrip("/")] = path
    modules = [path for path in files.values() if path.endswith(".so")]
    return {**files, **libraries(program, *modules)}
