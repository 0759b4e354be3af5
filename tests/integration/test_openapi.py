"""/openapi.json of the running daemon: a public linter finds nothing in it, and what the daemon
answers fits its schemas."""

import json
import os
import subprocess
import tempfile
import unittest
import uuid

from gateway import ROOT, Gateway

PACKAGES = os.path.join(ROOT, "build", "openapi-lint")
JUDGE = os.path.join(ROOT, "tests", "tools", "openapi", "judge.js")
METHODS = {"get", "put", "post", "patch", "delete"}


def require_packages():
    """Installed by scripts/npm.sh, which `make test` runs."""
    if os.path.exists(os.path.join(PACKAGES, "installed")):
        return
    try:
        with open(os.path.join(PACKAGES, "install.log"), encoding="utf-8") as text:
            why = "the npm registry did not give the linter:\n" + text.read()
    except FileNotFoundError:
        why = f"run: scripts/npm.sh tests/tools/openapi {PACKAGES}"
    raise AssertionError(why)


class Document(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        status, headers, cls.document = cls.gateway.rest("GET", "//openapi.json", key="")
        assert (status, headers["Content-Type"]) == (200, "application/json")

    def operations(self):
        for path, item in self.document["paths"].items():
            for method in METHODS & set(item):
                yield path, method, item[method]

    def resolve(self, value):
        """What a reference stands for."""
        while "$ref" in value:
            found = self.document
            for step in value["$ref"].split("/")[1:]:
                found = found[step]
            value = found
        return value

    def parameters(self, operation):
        return map(self.resolve, operation["parameters"])

    def judge(self, answers, document=None):
        """What the linter and the schemas find."""
        require_packages()
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("openapi.json", "answers.json")]
            for name, content in zip(files, (document or self.document, answers)):
                with open(name, "w", encoding="utf-8") as out:
                    json.dump(content, out)
            done = subprocess.run(
                ["node", JUDGE, PACKAGES, *files],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if done.stdout else 0)
        return done.stdout.splitlines()

    def test_a_public_linter_finds_nothing(self):
        self.assertEqual(self.judge([]), [])

    def test_the_judge_is_awake(self):
        broken = json.loads(json.dumps(self.document))
        del broken["paths"]["/api/v1/chats/{chat_id}"]["get"]["parameters"]
        answers = [{"what": "a chat", "schema": "#/components/schemas/Chat", "value": {"title": 1}}]
        found = "\n".join(self.judge(answers, broken))
        self.assertIn("path-parameters-defined", found)
        self.assertIn("a chat: /title must be string", found)
        self.assertIn("a chat:  must have required property 'chat_id'", found)

    def test_every_operation_has_a_unique_id_and_a_sentence(self):
        ids = [operation["operationId"] for _, _, operation in self.operations()]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue(all(operation["summary"] for _, _, operation in self.operations()))

    def test_every_member_has_a_description(self):
        bare = []

        def look(where, schema):
            for name, member in schema.get("properties", {}).items():
                if "$ref" not in json.dumps(member) and "description" not in member:
                    bare.append(f"{where}.{name}")
                look(f"{where}.{name}", member)
            if "items" in schema:
                look(where, schema["items"])

        for name, schema in self.document["components"]["schemas"].items():
            look(name, schema)
        for path, method, operation in self.operations():
            for parameter in self.parameters(operation):
                if "description" not in parameter:
                    bare.append(f"{method} {path} {parameter['name']}")
        self.assertEqual([name for name in bare if not name.startswith("Problem.errors")], [])

    def test_it_names_the_refusals_of_rates_ranges_and_preconditions(self):
        told = {o["operationId"]: set(o["responses"]) for _, _, o in self.operations()}
        self.assertLess({"403", "416", "429"}, told["object.get"])
        self.assertLess({"412", "416", "429"}, told["file.get"])
        self.assertLess({"412", "429", "507"}, told["file.put"])
        for _, _, operation in self.operations():
            if operation.get("security") != []:
                self.assertIn("429", operation["responses"])
                self.assertEqual(
                    self.resolve(operation["responses"]["429"])["description"],
                    "rate_limited, lease_quota_exceeded",
                )

    def test_the_daemon_serves_each_path_that_is_written(self):
        for path, method, operation in self.operations():
            for parameter in self.parameters(operation):
                path = path.replace("{%s}" % parameter["name"], str(uuid.uuid4()))
            status, headers, body = self.gateway.rest(method.upper(), "/" + path, key="")
            self.assertNotEqual(status, 405, path)
            keyless = operation.get("security") == []
            wanted = [p for p in self.parameters(operation) if p["in"] == "query" and p.get("required")]
            expected = 401 if not keyless else 422 if wanted else 200
            self.assertEqual(status, expected, (path, body))

    def test_answers_fit_their_schemas(self):
        answers = []

        def ask(status, method, path, body=None, key=None):
            got, _, value = self.gateway.rest(method, path, body, key=key)
            self.assertEqual(got, status, value)
            schema = self.schema(method, path, got)
            if schema is None:
                self.assertEqual(value, b"")
            else:
                answers.append({"what": f"{method} {path}", "schema": schema, "value": value})
            return value

        user = str(uuid.uuid4())
        ask(200, "GET", "/health")
        ask(200, "GET", "//healthz")
        ask(200, "GET", "//readyz")
        ask(201, "POST", "/api-keys", {"name": "n", "role": "bot", "allowed_users": [user]})
        key = ask(201, "POST", "/api-keys", {"name": "n", "role": "viewer"})["api_key"]["key_id"]
        ask(200, "PATCH", f"/api-keys/{key}", {"name": "other"})
        ask(200, "GET", "/api-keys")
        ask(204, "DELETE", f"/api-keys/{key}")
        chat = ask(201, "POST", "/chats", {"user_id": user, "metadata": {"a": 1}})
        ask(200, "GET", f"/chats/{chat['chat_id']}")
        ask(200, "GET", f"/chats?user_id={user}")
        ask(200, "GET", f"/users/{user}/workspace")
        opened = ask(201, "POST", "/sandboxes", {"chat_id": chat["chat_id"]})
        session = opened["sandbox"]["session_id"]
        ask(200, "POST", "/sandboxes", {"chat_id": chat["chat_id"], "lease": {}})
        ask(200, "POST", "/create", {"chat_id": chat["chat_id"]})
        ask(200, "GET", f"/sandboxes/{session}")
        ask(200, "GET", "/sandboxes?limit=1")
        ask(200, "POST", f"/sandboxes/{session}/renew", {"idle_ttl_s": 60})
        lease = ask(201, "POST", "/leases", {"session_id": session})["lease"]["lease_id"]
        ask(200, "GET", f"/leases/{lease}")
        ask(200, "GET", f"/leases?session_id={session}")
        ask(200, "POST", f"/leases/{lease}/renew", {})
        ask(200, "DELETE", f"/leases/{lease}?wait_ms=5000")
        ask(200, "POST", f"/sandboxes/{session}/stop")
        ask(200, "GET", f"/leases/{lease}")
        ask(202, "POST", "/sandboxes", {"chat_id": chat["chat_id"], "wait": False})
        other = ask(201, "POST", "/chats", {"user_id": user})["chat_id"]
        ask(204, "DELETE", f"/chats/{other}")
        ask(404, "GET", f"/chats/{uuid.uuid4()}")
        ask(422, "POST", "/chats", {"user_id": 1})
        ask(401, "GET", f"/leases/{lease}", key="lhk_none")
        self.assertEqual(self.judge(answers), [])

    def schema(self, method, path, status):
        """Where the document describes this answer."""
        asked = (path[1:] if path.startswith("//") else "/api/v1" + path).partition("?")[0]
        for template, known, operation in self.operations():
            if known == method.lower() and self.fits(template, asked):
                break
        else:
            self.fail(f"the document has no {method} {path}")
        answer = self.resolve(operation["responses"][str(status)])
        if "content" not in answer:
            return None
        [media] = answer["content"].values()
        return media["schema"]["$ref"]

    @staticmethod
    def fits(template, path):
        wanted, got = template.split("/"), path.split("/")
        return len(wanted) == len(got) and all(
            w == g or w.startswith("{") for w, g in zip(wanted, got)
        )


if __name__ == "__main__":
    unittest.main()
