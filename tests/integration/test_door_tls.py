"""TLS at the doors: the internal CA, the operator's files, and that plain is not served beside it."""

import hashlib
import os
import signal
import socket
import ssl
import subprocess
import unittest
import urllib.parse

import canary
from gateway import Gateway
from waiting import PATIENCE_S, wait_for
from ws import WsClient


def echo(test, client, line):
    client.send_text(line)
    _, got = client.recv()
    test.assertEqual(got.decode(), line)


def trusting(ca_pem):
    return ssl.create_default_context(cadata=ca_pem)


def served_certificate(endpoint):
    address = urllib.parse.urlsplit(endpoint["url"])
    context = ssl._create_unverified_context()  # pylint: disable=protected-access
    with socket.create_connection((address.hostname, address.port), PATIENCE_S) as plain:
        with context.wrap_socket(plain) as tls:
            return tls.getpeercert(binary_form=True), tls.version()


class InternalCa(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, {"door": {"tls": "internal-ca"}})

    def open(self):
        return self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})

    def test_a_client_that_trusts_the_ca_of_its_grant_talks_to_the_agent(self):
        _, grant = self.open()
        endpoint = grant["endpoint"]
        self.assertTrue(endpoint["url"].startswith("wss://127.0.0.1:"))
        client = self.gateway.connect(grant, ssl_context=trusting(endpoint["ca_pem"]))
        echo(self, client, "hello")
        echo(self, client, "x" * 262144)
        client.close()

    def test_the_certificate_is_the_pinned_one_and_each_sessions_own(self):
        pins = set()
        for _ in range(2):
            _, grant = self.open()
            der, version = served_certificate(grant["endpoint"])
            self.assertEqual(hashlib.sha256(der).hexdigest(), grant["endpoint"]["cert_sha256"])
            self.assertIn(version, ("TLSv1.2", "TLSv1.3"))
            pins.add(grant["endpoint"]["cert_sha256"])
        self.assertEqual(len(pins), 2)

    def test_another_authority_and_another_name_are_refused_by_the_client(self):
        _, grant = self.open()
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.gateway.connect(grant, ssl_context=ssl.create_default_context())
        endpoint = grant["endpoint"]
        address = urllib.parse.urlsplit(endpoint["url"])
        context = trusting(endpoint["ca_pem"])
        with socket.create_connection((address.hostname, address.port), PATIENCE_S) as plain:
            with self.assertRaises(ssl.SSLCertVerificationError):
                context.wrap_socket(plain, server_hostname="elsewhere.example")

    def test_a_revocation_cuts_with_its_code_over_tls_too(self):
        _, grant = self.open()
        client = self.gateway.connect(grant, ssl_context=trusting(grant["endpoint"]["ca_pem"]))
        lease = grant["lease"]["lease_id"]
        answer = self.gateway.expect(200, "DELETE", f"/leases/{lease}?wait_ms=5000")
        self.assertEqual(answer["doors"][0]["cut"], 1)
        self.assertEqual(client.wait_closed(), 4403)

    def test_plain_websocket_is_not_served_beside_tls(self):
        _, grant = self.open()
        plain = "ws" + grant["endpoint"]["url"][3:]
        with self.assertRaises(Exception):
            WsClient.connect(plain, headers={"Authorization": "Bearer " + grant["token"]})

    def test_the_ca_outlives_a_restart_and_its_key_is_ours_alone(self):
        _, grant = self.open()
        client = self.gateway.connect(grant, ssl_context=trusting(grant["endpoint"]["ca_pem"]))
        self.gateway.kill9()
        self.gateway.start()
        echo(self, client, "still here")
        again = self.gateway.expect(
            201, "POST", "/leases", {"session_id": grant["lease"]["session_id"]}
        )
        self.assertEqual(again["endpoint"], grant["endpoint"])
        key = os.stat(os.path.join(self.gateway.dir, "certs", "ca.key"))
        self.assertEqual(key.st_mode & 0o777, 0o600)

    def test_leasectl_connects_over_tls(self):
        chat = self.gateway.new_chat()["chat_id"]
        done = self.gateway.ctl("connect", chat, input="over tls\n")
        self.assertEqual((done.returncode, done.stdout), (0, "over tls\n"), done.stderr)

    def test_the_key_is_in_no_command_line_environment_or_log(self):
        self.open()
        for process in self.gateway.sandboxes_left():
            for name in ("cmdline", "environ"):
                self.assertNotIn(b"PRIVATE KEY", canary.read(f"/proc/{process.pid}/{name}"))
        self.assertNotIn("PRIVATE KEY", self.gateway.log_text())


class RenewedCa(unittest.TestCase):
    def renewed(self, gateway):
        """SIGHUP, and the CA that is the first in ca.pem then."""
        seen = len(gateway.log_lines("reloaded"))
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(self, "the reload", lambda: len(gateway.log_lines("reloaded")) > seen)
        with open(os.path.join(gateway.dir, "certs", "ca.pem"), encoding="ascii") as text:
            return text.read()

    def test_sighup_takes_a_new_ca_and_clients_go_on_trusting_the_former_one(self):
        gateway = Gateway.for_test(self, {"door": {"tls": "internal-ca"}})
        chat = gateway.new_chat()["chat_id"]
        _, before = gateway.open(chat, lease={"max_connections": 2})
        old = before["endpoint"]["ca_pem"]
        client = gateway.connect(before, ssl_context=trusting(old))
        for name in ("ca.pem", "ca.key"):
            os.unlink(os.path.join(gateway.dir, "certs", name))
        both = self.renewed(gateway)
        self.assertEqual(both.count("BEGIN CERTIFICATE"), 2)
        self.assertTrue(both.endswith(old) and not both.startswith(old))
        self.assertEqual(self.renewed(gateway), both)  # once is enough
        echo(self, client, "still there")
        body = {"session_id": before["lease"]["session_id"]}
        _, after = gateway.open(gateway.new_chat()["chat_id"], lease={})
        for restart in (False, True):
            if restart:
                gateway.restart()
            again = gateway.expect(201, "POST", "/leases", body)
            echo(self, gateway.connect(again, ssl_context=trusting(again["endpoint"]["ca_pem"])), "old door")
        echo(self, gateway.connect(after, ssl_context=trusting(after["endpoint"]["ca_pem"])), "new door")
        with self.assertRaises(ssl.SSLCertVerificationError):
            gateway.connect(after, ssl_context=trusting(old))
        done = gateway.ctl("connect", chat, input="by leasectl\n")
        self.assertEqual((done.returncode, done.stdout), (0, "by leasectl\n"), done.stderr)

    def test_a_configuration_that_cannot_be_read_keeps_no_key_from_being_renewed(self):
        gateway = Gateway.for_test(self, {"door": {"tls": "internal-ca"}})
        certs = os.path.join(gateway.dir, "certs")
        with open(os.path.join(certs, "ca.pem"), encoding="ascii") as text:
            old = text.read()
        for name in ("ca.pem", "ca.key"):
            os.unlink(os.path.join(certs, name))
        with open(gateway.config, "a", encoding="utf-8") as out:
            out.write("no_such_key: 1\n")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(self, "a new CA", lambda: os.path.exists(os.path.join(certs, "ca.pem")))
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        fresh = grant["endpoint"]["ca_pem"]
        self.assertTrue(fresh.endswith(old) and fresh != old)
        echo(self, gateway.connect(grant, ssl_context=trusting(fresh)), "renewed")
        self.assertEqual(len(gateway.log_lines("reload_failed")), 1)
        self.assertEqual(gateway.log_lines("reloaded"), [])  # not all of it was

    def test_check_config_refuses_the_ca_that_a_start_would_refuse_and_makes_none(self):
        gateway = Gateway.for_test(self, {"door": {"tls": "internal-ca"}}, start=False)
        check = ("leasehold", "check-config", "--config", gateway.config)
        certs = os.path.join(gateway.dir, "certs")
        before = os.listdir(certs) if os.path.exists(certs) else None
        done = gateway.run_program(*check)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(certs) if os.path.exists(certs) else None, before)
        os.makedirs(certs, exist_ok=True)
        with open(os.path.join(certs, "ca.pem"), "w", encoding="ascii") as out:
            out.write("nonsense")
        for args in (check, ("leasehold", "run", "--config", gateway.config)):
            done = gateway.run_program(*args)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn("door.tls", done.stderr, args)

    def test_a_ca_that_does_not_fit_changes_nothing(self):
        gateway = Gateway.for_test(self, {"door": {"tls": "internal-ca"}})
        path = os.path.join(gateway.dir, "certs", "ca.pem")
        with open(path, encoding="ascii") as text:
            good = text.read()
        with open(path, "w", encoding="ascii") as out:
            out.write("nonsense")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(self, "the refusal", lambda: gateway.log_lines("reload_failed"))
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        self.assertEqual(grant["endpoint"]["ca_pem"], good)
        echo(self, gateway.connect(grant, ssl_context=trusting(good)), "as before")


class Files(unittest.TestCase):
    def make_pair(self, directory):
        cert, key = os.path.join(directory, "door.pem"), os.path.join(directory, "door.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
            + ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
            + ["-addext", "subjectAltName=IP:127.0.0.1"],
            check=True,
            capture_output=True,
        )
        return cert, key

    def test_the_operators_certificate_is_served(self):
        gateway = Gateway.for_test(self, start=False)
        cert, key = self.make_pair(gateway.dir)
        gateway.edit_config({"door": {"tls": "files", "cert_file": "door.pem", "key_file": "door.key"}})
        gateway.start()
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        self.assertIsNone(grant["endpoint"]["ca_pem"])
        with open(cert, encoding="ascii") as text:
            client = gateway.connect(grant, ssl_context=trusting(text.read()))
        echo(self, client, "hello")
        self.assertTrue(os.path.exists(key))

    def test_sighup_takes_a_new_pair_for_the_doors_to_come(self):
        gateway = Gateway.for_test(self, start=False)
        cert, _ = self.make_pair(gateway.dir)
        gateway.edit_config({"door": {"tls": "files", "cert_file": "door.pem", "key_file": "door.key"}})
        gateway.start()
        with open(cert, encoding="ascii") as text:
            old = text.read()
        _, before = gateway.open(gateway.new_chat()["chat_id"], lease={"max_connections": 2})
        client = gateway.connect(before, ssl_context=trusting(old))
        self.make_pair(gateway.dir)
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(self, "the reload", lambda: gateway.log_lines("reloaded"))
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        with open(cert, encoding="ascii") as text:
            echo(self, gateway.connect(grant, ssl_context=trusting(text.read())), "new")
        echo(self, client, "still there")
        echo(self, gateway.connect(before, ssl_context=trusting(old)), "as before")

    def test_a_missing_or_foreign_key_is_named_at_the_start(self):
        gateway = Gateway.for_test(self, start=False)
        cert, _ = self.make_pair(gateway.dir)
        gateway.edit_config({"door": {"tls": "files", "cert_file": cert, "key_file": "nowhere.key"}})
        self.refused(gateway, "nowhere.key")
        gateway.edit_config({"door": {"key_file": "keys/lease-signing.pem"}})
        self.refused(gateway, "no certificate with its key")

    def refused(self, gateway, why):
        for command in ("check-config", "run"):
            done = gateway.run_program("leasehold", command, "--config", gateway.config)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn(why, done.stderr, command)

    def test_what_else_a_start_would_refuse_is_refused_by_check_config(self):
        gateway = Gateway.for_test(self, start=False)
        cert, key = self.make_pair(gateway.dir)
        foreign = os.path.join(gateway.dir, "keys", "lease-signing.pem")
        gateway.edit_config({"http": {"tls": {"cert_file": cert, "key_file": foreign}}})
        self.refused(gateway, "do not serve as certificate and key")
        gateway.edit_config({"http": {"tls": {"cert_file": cert, "key_file": "nowhere.key"}}})
        self.refused(gateway, "nowhere.key")
        gateway.edit_config({"http": {"tls": {"key_file": key, "client_ca_file": key}}})
        self.refused(gateway, "http.tls.client_ca_file")
        gateway.edit_config({
            "http": {"tls": {"cert_file": "", "key_file": "", "client_ca_file": ""}},
            "objects": {"kind": "s3", "endpoint": "http://127.0.0.1:9", "bucket": "b",
                        "access_key": "a", "secret_key_file": "empty"},
        })  # fmt: skip
        with open(os.path.join(gateway.dir, "empty"), "w", encoding="ascii"):
            pass
        self.refused(gateway, "objects.secret_key_file")

    def checked(self, gateway, code=1):
        done = gateway.run_program("leasehold", "check-config", "--config", gateway.config)
        self.assertEqual(done.returncode, code, done)
        return done.stderr

    def write(self, gateway, name, text, mode=0o600):
        path = os.path.join(gateway.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def test_check_config_looks_at_what_is_read_at_its_first_use_only(self):
        gateway = Gateway.for_test(self, start=False)
        cert, key = self.make_pair(gateway.dir)
        foreign = os.path.join(gateway.dir, "keys", "lease-signing.pem")
        junk, secret = self.write(gateway, "junk", "junk"), self.write(gateway, "secret", "s")
        gateway.edit_config({"objects": {
            "kind": "s3", "endpoint": "https://127.0.0.1:9", "bucket": "b", "access_key": "a",
            "secret_key_file": secret,
        }})  # fmt: skip
        docker = {"sandbox": {"engine": "docker"}, "docker": {"base_url": "tcp://127.0.0.1:9"}}
        for section, name, wrong, why in (
            ("objects", "ca_file", "nowhere.pem", "nowhere.pem: No such file"),
            ("objects", "ca_file", junk, "junk holds no certificate"),
            ("docker", "ca_file", "nowhere.pem", "nowhere.pem: No such file"),
            ("docker", "ca_file", key, "holds no certificate"),
            ("docker", "cert_file", gateway.dir, "is no regular file"),
            ("docker", "cert_file", key, "holds no certificate"),
            ("docker", "key_file", "nowhere.key", "nowhere.key: No such file"),
            ("docker", "key_file", cert, "holds no private key"),
            ("docker", "key_file", foreign, f"{foreign} is not the key of docker.tls.cert_file {cert}"),
        ):
            with self.subTest((section, name, why)):
                good = {"ca_file": cert, "cert_file": cert, "key_file": key}
                if section == "docker":
                    docker["docker"]["tls"] = {**good, name: wrong}
                    gateway.edit_config({"objects": {"ca_file": cert}, **docker})
                else:
                    gateway.edit_config({"objects": {"ca_file": wrong}})
                told = self.checked(gateway)
                full = f"docker.tls.{name}" if section == "docker" else f"objects.{name}"
                self.assertIn(full, told)
                self.assertIn(why, told)
        docker["docker"]["tls"] = good
        gateway.edit_config(docker)
        self.assertEqual(self.checked(gateway, 0), "")

    def test_a_secret_that_others_may_read_is_told_by_check_config_and_at_the_start(self):
        gateway = Gateway.for_test(self, start=False)
        _, key = self.make_pair(gateway.dir)
        os.chmod(key, 0o640)
        files = {
            "signing key": os.path.join(gateway.dir, "keys", "lease-signing.pem"),
            "http.tls.key_file": key,
            "docker.registries[].password_file": self.write(gateway, "password", "x", 0o604),
            "profiles[].secrets": self.write(gateway, "token", "x", 0o644),
            "objects.secret_key_file": self.write(gateway, "s3", "x", 0o660),
        }
        os.chmod(files["signing key"], 0o604)
        cert = os.path.join(gateway.dir, "door.pem")
        gateway.edit_config({
            "http": {"tls": {"cert_file": cert, "key_file": key}},
            "docker": {"registries": [{
                "host": "r.example", "username": "u", "password_file": "password"}]},
            "profiles": [{"name": "default", "command": ["/bin/cat"],
                          "secrets": [{"name": "t", "file": "token"}]}],
            "objects": {"secret_key_file": "s3"},
        })  # fmt: skip
        told = self.checked(gateway, 0)
        for name, path in files.items():
            self.assertIn(f"leasehold: warning: {name} {path}: others may read it: chmod 600\n", told)
        self.assertEqual(len(told.splitlines()), len(files))
        gateway.edit_config({"http": {"tls": {"cert_file": "", "key_file": ""}}})
        gateway.start()
        logged = {(line["key"], line["path"]) for line in gateway.log_lines("secret_exposed")}
        self.assertEqual(logged, {*files.items()} - {("http.tls.key_file", key)})
        for path in files.values():
            os.chmod(path, 0o600)
        self.assertEqual(self.checked(gateway, 0), "")


if __name__ == "__main__":
    unittest.main()
