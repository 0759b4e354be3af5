"""Real S3 servers on loopback, from Debian packages: Ceph RGW and OpenStack Swift with s3api.

    with Rgw() as server: server.port, server.client, server.args(bucket)
    s3_servers.py rgw|swift DIR      runs one until it is interrupted and prints how to reach it

Both keep all in a directory of their own and are children of the caller. What is not installed is
an error that names the packages: nothing is left out.
"""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import ports
from s3_client import S3Client

START_TIMEOUT_S = 90


def is_listening(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Server:
    programs = {}  # program: the package that has it
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"

    def __init__(self, directory=None):
        missing = [
            package for name, package in self.programs.items() if not shutil.which(name, path=self.path)
        ]
        if missing:
            raise RuntimeError(f"missing packages: apt-get install {' '.join(sorted(set(missing)))}")
        self.owned = directory is None
        self.dir = directory or tempfile.mkdtemp(prefix="leasehold-s3-")
        self.children = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def spawn(self, name, *command, env=None):
        with open(os.path.join(self.dir, name + ".out"), "ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PATH": self.path, **(env or {})},
            )
        self.children.append(child)
        return child

    def run(self, *command):
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": self.path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait(self, what, holds):
        until = time.monotonic() + START_TIMEOUT_S
        while not holds():
            if time.monotonic() > until:
                raise RuntimeError(f"{what} did not start: see {self.dir}")
            time.sleep(0.05)

    def stop(self):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        until = time.monotonic() + 3
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.01, until - time.monotonic()))
                continue
            child.kill()
            child.wait()
        self.children.clear()
        if self.owned:
            shutil.rmtree(self.dir, ignore_errors=True)

    def args(self, bucket, **more):
        """The options of objects_tool for a bucket of this server."""
        options = {
            "kind": "s3",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": self.client.region,
            "bucket": bucket,
            "access_key": self.client.access_key,
            "secret": self.client.secret,
        }
        return [f"{name}={value}" for name, value in {**options, **more}.items()]


CEPH_CONF = """\
[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{mon_port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr2 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
log_file = {dir}/$name.log
admin_socket = {dir}/$name.asok
run_dir = {dir}
crash_dir = {dir}/crash
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 2
osd_pool_default_pgp_num = 2
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_crush_chooseleaf_type = 0
osd_class_load_list = *
osd_class_default_list = *

[mon]
mon_data = {dir}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_initial_members = a
paxos_propose_interval = 0.05
paxos_min_wait = 0.01

[osd]
osd_data = {dir}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory_bytes}

[client]
rgw_dns_name = s3.localhost
rgw_data = {dir}/rgw
rgw_thread_pool_size = 32
rgw_run_sync_thread = false
rgw_override_bucket_index_max_shards = 1
rgw_relaxed_region_enforcement = false
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 10
rgw_gc_processor_max_time = 10
"""


class Rgw(Server):
    """Ceph's gateway over a monitor and an OSD that keeps objects in memory."""

    programs = {
        "ceph-mon": "ceph-mon",
        "ceph-osd": "ceph-osd",
        "radosgw": "radosgw",
        "ceph": "ceph-common",
        "radosgw-admin": "radosgw",
        "faketime": "faketime",
    }
    fsid, osd_id = "6d0a6b1c-5b0e-4f53-8f5b-0a8c1c0d2e3f", "6d0a6b1c-5b0e-4f53-8f5b-0a8c1c0d2e40"

    def __init__(self, directory=None, memory_bytes=6 << 30):
        super().__init__(directory)
        self.memory_bytes = memory_bytes
        self.conf = os.path.join(self.dir, "ceph.conf")
        self.port, self.mon_port = ports.reserve(), ports.reserve()
        secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
        self.client = S3Client(self.port, "AKIDRGWTEST00000001", secret)

    def ceph(self, program, *args):
        return self.run(program, "-c", self.conf, *args)

    def admin_socket(self, name, *command):
        done = subprocess.run(
            ["ceph", "--admin-daemon", f"{self.dir}/{name}.asok", *command],
            env={**os.environ, "PATH": self.path},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def start(self):
        for name in ("mon", "osd", "rgw"):
            os.makedirs(os.path.join(self.dir, name), exist_ok=True)
        with open(self.conf, "w", encoding="utf-8") as conf:
            conf.write(CEPH_CONF.format(**{**vars(self), "fsid": self.fsid}))
        self.start_monitor()
        self.start_osd()
        self.add_user("test", self.client.access_key)
        self.start_gateway(self.port)

    def add_user(self, name, access_key):
        """One who may nothing yet in the buckets of others; the secret is the client's."""
        keys = [f"--access-key={access_key}", f"--secret-key={self.client.secret}"]
        self.ceph("radosgw-admin", "user", "create", f"--uid={name}", f"--display-name={name}", *keys)

    def change_key(self, access_key, secret):
        """Another pair of credentials for the same user; a function that ends the former one."""
        former, self.client.access_key, self.client.secret = self.client.access_key, access_key, secret
        keys = [f"--access-key={access_key}", f"--secret-key={secret}"]
        self.ceph("radosgw-admin", "key", "create", "--uid=test", "--key-type=s3", *keys)
        return lambda: self.ceph(
            "radosgw-admin", "key", "rm", "--uid=test", "--key-type=s3", f"--access-key={former}"
        )

    def start_gateway(self, port, *options, env=None, front="endpoint"):
        """One more gateway to the same objects, with options of its own."""
        front = f"--rgw_frontends=beast {front}=127.0.0.1:{port}"
        command = ["radosgw", "-c", self.conf, "-n", "client.rgw", "-f", front, *options]
        self.spawn(f"rgw-{port}", *command, env=env)
        self.wait("radosgw", lambda: is_listening(port))

    def another(self, *options, off_s=0):
        """A function like `args` for such a gateway, whose clock is off by so many seconds."""
        port = ports.reserve()
        # Not by the program faketime: a signal to it would not reach the gateway.
        (shim,) = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        env = {"LD_PRELOAD": shim, "FAKETIME": f"{off_s:+d}"} if off_s else None
        self.start_gateway(port, *options, env=env)
        return lambda bucket, **more: self.args(
            bucket, **{"endpoint": f"http://127.0.0.1:{port}", **more}
        )

    def collect_garbage(self):
        """What was deleted or replaced is gone from the store, and not some time later."""
        self.ceph("radosgw-admin", "gc", "process", "--include-all")

    def cpu_seconds(self):
        """That all its processes have used so far."""
        ticks = 0
        for child in self.children:
            with open(f"/proc/{child.pid}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def another_with_tls(self, folder):
        """The port of such a gateway for HTTPS alone; the certificate in `folder` is certs/issue.sh's."""
        port = ports.reserve()
        files = f"ssl_certificate={folder}/server.pem ssl_private_key={folder}/server.key ssl_endpoint"
        self.start_gateway(port, front=files)
        return port

    def start_monitor(self):
        monmap = os.path.join(self.dir, "monmap")
        address = f"v1:127.0.0.1:{self.mon_port}"
        self.run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", address, monmap)
        self.ceph("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.spawn("mon", "ceph-mon", "-c", self.conf, "-i", "a", "-f")
        self.wait("monitor", self.has_osd)

    def has_osd(self):
        """A monitor that has just begun may refuse to say which commands it knows."""
        try:
            self.ceph("ceph", "osd", "new", self.osd_id, "0")
        except RuntimeError as refused:
            if "EPERM" in str(refused):
                return False
            raise
        return True

    def start_osd(self):
        self.ceph("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", self.osd_id)
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            # It may lose a race with the new monitor, and ends: once more.
            osd = self.spawn("osd", "ceph-osd", "-c", self.conf, "-i", "0", "-f")
            while osd.poll() is None and time.monotonic() < until:
                if '"state": "active"' in self.admin_socket("osd.0", "status"):
                    return
                time.sleep(0.1)
            if osd.poll() is not None:
                self.children.remove(osd)
        raise RuntimeError(f"ceph-osd did not start: see {self.dir}")


SWIFT_SERVER = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {dir}
devices = {dir}/srv
mount_check = false
log_level = WARNING
fallocate_reserve = 0
disable_fallocate = true
recon_cache_path = {dir}/cache
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

SWIFT_PROXY = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {dir}
log_level = WARNING
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats bulk s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached_port}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
storage_domain = s3.localhost
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
allow_async_delete = false
[filter:dlo]
use = egg:swift#dlo
"""


class Swift(Server):
    """OpenStack Swift, one node, S3 by its s3api: stricter about regions and signed headers."""

    programs = {
        "swift-proxy-server": "swift-proxy",
        "swift-account-server": "swift-account",
        "swift-container-server": "swift-container",
        "swift-object-server": "swift-object",
        "swift-ring-builder": "swift",
        "memcached": "memcached",
    }
    kinds = ("account", "container", "object")

    def __init__(self, directory=None):
        super().__init__(directory)
        self.port, self.memcached_port, *self.ports = (ports.reserve() for _ in range(2 + len(self.kinds)))
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.client = S3Client(self.port, "test:tester", "testing")

    def configure(self, file, text, **values):
        path = os.path.join(self.dir, file + ".conf")
        with open(path, "w", encoding="utf-8") as conf:
            conf.write(text.format(**{**vars(self), **values}))
        return path

    def build_ring(self, kind, port):
        ring = os.path.join(self.dir, kind + ".builder")
        self.run("swift-ring-builder", ring, "create", "2", "1", "1")
        self.run("swift-ring-builder", ring, "add", f"r1z1-127.0.0.1:{port}/d1", "1")
        self.run("swift-ring-builder", ring, "rebalance")

    def start(self):
        for name in ("srv/d1", "cache"):
            os.makedirs(os.path.join(self.dir, name), exist_ok=True)
        hash_text = "[swift-hash]\nswift_hash_path_suffix = test\nswift_hash_path_prefix = test\n"
        self.configure("swift", hash_text)
        port, user = str(self.memcached_port), self.user
        self.spawn("memcached", "memcached", "-u", user, "-l", "127.0.0.1", "-p", port, "-U", "0")
        for kind, kind_port in zip(self.kinds, self.ports):
            self.build_ring(kind, kind_port)
            conf = self.configure(kind + "-server", SWIFT_SERVER, name=kind, port=kind_port)
            self.spawn(kind, f"swift-{kind}-server", conf)
        self.spawn("proxy", "swift-proxy-server", self.configure("proxy-server", SWIFT_PROXY))
        for port in (*self.ports, self.memcached_port, self.port):
            self.wait("swift", lambda port=port: is_listening(port))


def start_rgw(bucket):
    """One with an empty bucket, until the module of tests that asks for it has ended."""
    server = Rgw()
    unittest.addModuleCleanup(server.stop)
    server.start()
    server.client.make_bucket(bucket)
    return server


def main(argv):
    kind, directory = argv[1:]
    os.makedirs(directory, exist_ok=True)
    with {"rgw": Rgw, "swift": Swift}[kind](directory) as server:
        server.client.make_bucket("leasehold")
        print(" ".join(server.args("leasehold")), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main(sys.argv)
