"""The real daemon for integration tests: a directory of its own, REST, doors, kill and restart.

    from gateway import Gateway  # the runner puts tests/support on the path

    class Cut(unittest.TestCase):
        def setUp(self):
            self.gateway = Gateway.for_test(self, {"lease": {"ttl_seconds": 30}})

        def test_revoke_cuts(self):
            chat = self.gateway.new_chat()
            sandbox, grant = self.gateway.open(chat["chat_id"], lease={})
            client = self.gateway.connect(grant)
            …

Nothing here retries or hides an answer. The clean-up ends what this gateway has started and no
other process. LEASEHOLD_BIN names the binaries; LEASEHOLD_KEEP=1 keeps the directory.
"""

import glob
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
import uuid

import yaml

import canary
import processes
from waiting import PATIENCE_S
from ws import WsClient, WsClosed, WsConn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LEASEHOLD_BIN") or os.path.join(ROOT, "build", "release", "bin")

DOOR_PROTOCOL = "leasehold.door.v1"
# Generous: the same tests run under sanitizers on a busy machine.
READY_S = 30
STOP_S = 30
SETTLE_S = 30
STALE_S = 10
CLOSE_NOT_LIVE = 4503
REST_S = 60

WsConn.note = staticmethod(canary.note)

OWN_PROGRAMS = {"leasedoor", "leasekeep", "leaseinit", "bwrap"}


class ConfigLoader(yaml.SafeLoader):
    """YAML 1.1 takes `tls: off` for a false; the daemon takes it for the word."""


ConfigLoader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in rules if not (tag.endswith(":bool") and first in "yYnNoO")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class GatewayError(Exception):
    """The daemon did not do what every test needs; the end of its log is in the text."""


def merge(base, overrides):
    """Overrides laid over base, section by section; anything but a section replaces."""
    result = dict(base)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            value = merge(result[key], value)
        result[key] = value
    return result


class Gateway:
    def __init__(self, overrides=None, env=None, start=True, launcher=None):
        self.launcher = launcher  # of the programs: who runs them (without_root.py); None: we do
        self.dir = launcher.new_dir("lh-") if launcher else tempfile.mkdtemp(prefix="lh-")
        self.config = os.path.join(self.dir, "leasehold.yaml")
        self.run_dir = os.path.join(self.dir, "run")
        self.log_file = os.path.join(self.dir, "gateway.log")
        self.env = env or {}
        self.process = None
        self.url = None
        self.admin_key = None
        self.ssl_context = None  # of REST, when it speaks TLS
        self._starts = 0  # connections of an earlier life are not used again
        self._local = threading.local()
        try:
            self._init(overrides or {})
            if start:
                self.start()
        except BaseException:
            self.cleanup()
            raise

    @classmethod
    def for_test(cls, test, overrides=None, env=None, start=True, launcher=None):
        gateway = cls(overrides, env, start, launcher)
        test.addCleanup(gateway.cleanup)
        return gateway

    @classmethod
    def for_class(cls, tests, overrides=None, **options):
        """For setUpClass: one gateway for all its tests."""
        gateway = cls(overrides, **options)
        tests.addClassCleanup(gateway.cleanup)
        return gateway

    # -- life ------------------------------------------------------------------------------------

    def _init(self, overrides):
        done = self.run_program("leasehold", "init", "--dir", self.dir)
        if done.returncode != 0:
            raise GatewayError(f"init: {done.stderr}{done.stdout}")
        with open(os.path.join(self.dir, "admin.key"), encoding="ascii") as text:
            self.admin_key = canary.note(text.read().strip())
        # No limit of calls a second, unless it is what the test is about: tests are in a hurry.
        # A machine that stands still for some seconds is no gateway that is silent.
        base = {
            "http": {"port": 0},
            "security": {"rate_limit": {"requests_per_second": 0}},
            "lease": {"stale_after_seconds": STALE_S},
        }
        self.edit_config(merge(base, overrides))

    def edit_config(self, overrides):
        """For the next start."""
        with open(self.config, encoding="utf-8") as text:
            config = yaml.load(text, ConfigLoader) or {}
        with open(self.config, "w", encoding="utf-8") as out:
            yaml.safe_dump(merge(config, overrides), out, sort_keys=False)

    def start(self):
        """Starts the daemon and returns when it says that it is ready."""
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                self._command("leasehold", "run", "--config", self.config),
                cwd=self.dir,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._starts += 1
        self._wait_ready()

    def _wait_ready(self):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            url, pid = self._read_ready()
            # After a kill -9 the file of the former daemon is still there for a moment.
            if pid == str(self.process.pid):
                self.url = url
                return
            if self.process.poll() is not None:
                raise GatewayError(f"ended with {self.process.returncode}:\n{self.log_tail()}")
            time.sleep(0.01)
        raise GatewayError(f"not ready after {READY_S} s:\n{self.log_tail()}")

    def _read_ready(self):
        try:
            with open(os.path.join(self.run_dir, "ready"), encoding="utf-8") as text:
                lines = text.read().splitlines()
        except FileNotFoundError:
            return None, None
        return (lines[0], lines[1]) if len(lines) >= 2 else (None, None)

    def kill9(self):
        """The daemon alone; doors and sandboxes go on."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; the exit status. Doors and sandboxes go on."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise GatewayError(f"no end {STOP_S} s after SIGTERM:\n{self.log_tail()}") from None

    def restart(self):
        """Starts it again, after kill9, stop, or by itself."""
        if self.process.poll() is None:
            self.stop()
        self.start()

    def cleanup(self):
        """Ends everything it has started, looks for secrets where none may be, removes its directory."""
        try:
            try:
                self._look_at_what_lives()
            finally:
                if self.process and self.process.poll() is None:
                    self.stop()
        finally:
            self._end_sandboxes()
            try:
                self._look_at_what_is_left()
            finally:
                if not os.environ.get("LEASEHOLD_KEEP"):
                    shutil.rmtree(self.dir)

    # -- secrets (canary.py) -----------------------------------------------------------------------

    def _secret_hashes(self):
        return canary.hashes_in(glob.glob(os.path.join(self.dir, "data", "*.db")))

    def _note_key_files(self):
        for path in glob.glob(os.path.join(self.dir, "keys", "*.pem")):
            canary.SEEN.note_key_file(path)

    def _look_at_what_lives(self):
        self._note_key_files()
        pids = [process.pid for process in self.sandboxes_left()]
        if self.process and self.process.poll() is None:
            pids.append(self.process.pid)
            canary.SEEN.check("/metrics", self._metrics_text())
        canary.check_processes(pids, self._secret_hashes())

    def _metrics_text(self):
        """Empty of a gateway that does not answer: a test may have stopped it."""
        address = urllib.parse.urlsplit(self.url)
        if address.scheme != "http" or processes.is_stopped(self.process.pid):
            return b""
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=STOP_S)
        try:
            connection.request(
                "GET", "/metrics", headers={"Authorization": f"Bearer {self.admin_key}"}
            )
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            connection.close()

    def _look_at_what_is_left(self):
        """Configuration, key files and what users keep are no place of ours."""
        self._note_key_files()
        hashes = self._secret_hashes()
        logs = glob.glob(os.path.join(self.dir, "*.log"))
        canary.check_files([*logs, *canary.regular_files(self.run_dir)], hashes)
        canary.check_files(canary.database_files(os.path.join(self.dir, "data")), frozenset())

    def _end_sandboxes(self):
        """Asks the supervisors first: only they can remove their control groups."""
        known = set()  # a child whose parent has gone is found no more
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + SETTLE_S
            known.update(self.sandboxes_left())
            for process in known:
                if number == signal.SIGKILL or process.name in ("leasekeep", "leasedoor"):
                    process.send(number)
            while any(p.alive() for p in known) and time.monotonic() < deadline:
                time.sleep(0.02)
        left = [process for process in known if process.alive()]
        if left:
            raise GatewayError(f"cannot be ended: {left}")

    # -- what it leaves ----------------------------------------------------------------------------

    def sandboxes_left(self):
        """Processes of this gateway's doors and sandboxes, with all below them."""
        found = processes.all_processes()
        roots = self._pid_files(found)
        for process in found.values():
            if process.name in OWN_PROGRAMS and self._is_under(process.pid):
                roots.add(process.pid)
        return sorted(processes.with_descendants(roots, found).values(), key=lambda p: p.pid)

    def _is_under(self, pid):
        """By directory or argument: a door and leasekeep stand in the run directory, bwrap names it."""
        words = [processes.cwd(pid), *processes.arguments(pid)]
        return any(w == self.run_dir or w.startswith(self.run_dir + "/") for w in words)

    def _pid_files(self, found):
        pids = set()
        for name in ("door.pid", "keep.pid"):
            for path in glob.glob(os.path.join(self.run_dir, "*", name)):
                try:
                    with open(path, encoding="ascii") as text:
                        pid, start = map(int, text.read().split())
                except (OSError, ValueError):
                    continue
                if pid in found and found[pid].start_ticks == start:
                    pids.add(pid)
        return pids

    def log_text(self):
        with open(self.log_file, encoding="utf-8", errors="replace") as text:
            return text.read()

    def log_tail(self, lines=40):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_lines(self, event=None):
        """The structured events, of one name if given."""
        events = []
        for line in self.log_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and event in (None, entry.get("event")):
                events.append(entry)
        return events

    # -- programs ----------------------------------------------------------------------------------

    def _environment(self):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        return {**inherited, **self.env}

    def _command(self, name, *args):
        if self.launcher:
            return self.launcher.command(name, *args)
        return [os.path.join(BIN, name), *args]

    def run_program(self, name, *args, env=None, **options):
        """Runs one of our binaries to its end: CompletedProcess with text output."""
        done = subprocess.run(
            self._command(name, *args),
            env={**self._environment(), **(env or {})},
            stdin=subprocess.DEVNULL if "input" not in options else None,
            capture_output=True,
            text=True,
            timeout=REST_S,
            check=False,
            **options,
        )
        canary.note(done.stdout)
        return done

    def ctl(self, *args, key=None, **options):
        """leasectl, as admin or with another key."""
        env = {"LEASEHOLD_URL": self.url, "LEASEHOLD_KEY": key or self.admin_key}
        return self.run_program("leasectl", *args, env=env, **options)

    # -- REST --------------------------------------------------------------------------------------

    def connection(self, fresh=False):
        """The kept-alive connection of this thread to this life of the daemon."""
        kept = getattr(self._local, "kept", None)
        if fresh or not kept or kept[0] != self._starts:
            if kept:
                kept[1].close()
            address = urllib.parse.urlsplit(self.url)
            if address.scheme == "https":
                connection = http.client.HTTPSConnection(
                    address.hostname, address.port, timeout=REST_S, context=self.ssl_context
                )
            else:
                connection = http.client.HTTPConnection(
                    address.hostname, address.port, timeout=REST_S
                )
            self._local.kept = kept = (self._starts, connection)
        return kept[1]

    def rest(self, method, path, body=None, key=None, headers=None):
        """(status, headers, body); the body decoded if it is JSON, else bytes.

        `body`: an object is sent as JSON, bytes as they are. `key`: None = the admin's, "" = none.
        `path`: below /api/v1, unless it starts with another root ("//healthz" = "/healthz").
        """
        sent = {"Authorization": f"Bearer {self.admin_key if key is None else key}"}
        if key == "":
            del sent["Authorization"]
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        target = path[1:] if path.startswith("//") else "/api/v1" + path
        connection = self.connection()
        connection.request(method, target, body, {**sent, **(headers or {})})
        response = connection.getresponse()
        data = canary.note(response.read())
        if response.status >= 400:
            canary.check_error(method, target, data)
        if method != "HEAD" and "json" in (response.headers.get("Content-Type") or ""):
            data = json.loads(data)
        return response.status, response.headers, data

    def expect(self, status, method, path, body=None, **options):
        """The body of an answer that must have this status (or one of these)."""
        got, _, answer = self.rest(method, path, body, **options)
        wanted = (status,) if isinstance(status, int) else status
        if got not in wanted:
            raise AssertionError(f"{method} {path}: {got} instead of {wanted}: {answer}")
        return answer

    def new_chat(self, user_id=None, **members):
        body = {"user_id": user_id or str(uuid.uuid4()), **members}
        return self.expect((200, 201), "POST", "/chats", body)

    def new_key(self, role="bot", **members):
        """The secret text of a new API key."""
        body = {"name": f"test {role}", "role": role, **members}
        return self.expect(201, "POST", "/api-keys", body)["key"]

    def open(self, chat_id, lease=None, **members):
        """(sandbox, grant) of a sandbox that is ready; grant is None without a lease."""
        body = {"chat_id": chat_id, **members}
        if lease is not None:
            body["lease"] = lease
        answer = self.expect((200, 201), "POST", "/sandboxes", body)
        return answer["sandbox"], answer["grant"]

    # -- doors -------------------------------------------------------------------------------------

    def dial(self, endpoint, token, **options):
        """Upgrades at a door with this token (None: without); nothing is read yet."""
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        headers.update(options.pop("headers", {}))
        options.setdefault("protocols", [DOOR_PROTOCOL])
        return WsClient.connect(endpoint["url"], headers=headers, **options)

    def connect_again(self, grant, **options):
        """Once the door is live: one whose gateway was away, or which stood still, says "try again"."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.connect(grant, **options)
            except WsClosed as closed:
                if closed.code != CLOSE_NOT_LIVE or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def connect(self, grant, timeout=PATIENCE_S, **options):
        """A connection over which the agent is there: the door's `ready` is read into .ready."""
        client = self.dial(grant["endpoint"], grant["token"], **options)
        try:
            _, text = client.recv(timeout)
            client.ready = json.loads(text)
            if client.ready.get("type") != "ready":
                raise AssertionError(f"the door said {text!r} instead of ready")
        except BaseException:
            client.close()
            raise
        return client
