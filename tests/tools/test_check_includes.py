"""The include checker catches each kind of breach, and nothing else."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check_includes  # noqa: E402


class CheckIncludes(unittest.TestCase):
    def faults(self, path, text, others=()):
        with tempfile.TemporaryDirectory() as root:
            for name, body in [(path, text), *((other, "") for other in others)]:
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as out:
                    out.write(body)
            return check_includes.check(root)

    def assert_caught(self, path, text, part, others=()):
        faults = self.faults(path, text, others)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(part, faults[0])

    def assert_clean(self, path, text, others=()):
        self.assertEqual(self.faults(path, text, others), [])

    def test_a_lower_layer_may_not_use_a_higher_one(self):
        for path, header in [
            ("base/log.c", "token.h"),
            ("storage/store.c", "engine.h"),
            ("runtime/local.c", "store.h"),
            ("lease/broker.c", "chatdir.h"),
            ("lease/door/main.c", "store.h"),
            ("gateway/cli/main.c", "store.h"),
            ("include/leasehold/err.h", "store.h"),
            ("include/leasehold/engine.h", "token.h"),
        ]:
            with self.subTest(path=path):
                self.assert_caught(path, f'#include "leasehold/{header}"\n', "may not use")

    def test_the_programs_inside_a_sandbox_use_nothing(self):
        self.assert_caught("runtime/init/x.c", '#include "leasehold/err.h"\n', "may not use")
        self.assert_clean("runtime/init/x.c", '#include "leasehold/agent_link.h"\n')

    def test_what_the_layers_allow_passes(self):
        for path, header in [
            ("lease/broker.c", "store.h"),
            ("lease/door/main.c", "token.h"),
            ("gateway/ops_lease.c", "engine.h"),
            ("include/leasehold/store.h", "lanes.h"),
        ]:
            with self.subTest(path=path):
                self.assert_clean(path, f'#include "leasehold/{header}"\n')

    def test_folders_do_not_reach_into_each_other(self):
        for target in ("../storage/sql.h", "door/conn.h"):
            with self.subTest(target=target):
                self.assert_caught("lease/x.c", f'#include "{target}"\n', "another folder")

    def test_a_private_header_stands_in_the_same_folder(self):
        self.assert_caught("lease/x.c", '#include "sql.h"\n', "private", ["storage/sql.h"])
        self.assert_clean("lease/x.c", '#include "heap.h"\n', ["lease/heap.h"])

    def test_a_public_header_without_owner_is_caught(self):
        self.assert_caught("gateway/x.c", '#include "leasehold/new.h"\n', "no owner")

    def test_a_folder_without_layer_is_caught(self):
        self.assert_caught("misc/x.c", "", "no layer")

    def test_public_headers_show_no_third_party_type(self):
        for header in ("openssl/evp.h", "sqlite3.h", "uthash.h"):
            with self.subTest(header=header):
                self.assert_caught(
                    "include/leasehold/err.h", f"#include <{header}>\n", "no third-party"
                )

    def test_a_library_stays_in_its_files(self):
        for path, header in [
            ("gateway/ops.c", "libwebsockets.h"),
            ("gateway/ops.c", "uv.h"),
            ("runtime/local.c", "curl/curl.h"),
            ("base/config.c", "cjson/cJSON.h"),
            ("lease/broker.c", "sqlite3.h"),
            ("base/id.c", "openssl/rand.h"),
            ("gateway/auth.c", "jwt.h"),
            ("base/err.c", "cmocka.h"),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_caught(path, f"#  include <{header}>\n", "does not belong")
        self.assert_clean("gateway/server.c", "#include <libwebsockets.h>\n")
        self.assert_clean("lease/heap.c", "#include <uthash.h>\n#include <sys/random.h>\n")

    def test_an_unknown_library_is_caught(self):
        self.assert_caught("base/x.c", "#include <zlib.h>\n", "neither libc")

    def test_only_main_names_a_backend(self):
        for name in ("engine_local_new", "engine_docker_new", "store_sqlite_open"):
            with self.subTest(name=name):
                self.assert_caught("gateway/x.c", f"int x = {name}(c);\n", "concrete backend")
        self.assert_clean("gateway/main.c", "int x = engine_local_new(c);\n")
        self.assert_clean("runtime/local.c", "int engine_local_new(int c);\n")
        self.assert_clean("gateway/x.c", "/* engine_local_new(c) */\n")

    def test_tests_are_free(self):
        self.assert_clean("tests/unit/x.c", '#include "../../lease/heap.h"\n#include <jwt.h>\n')


if __name__ == "__main__":
    unittest.main()
