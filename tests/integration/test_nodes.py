"""GET /nodes: the machine that runs the sandboxes, for an operator."""

import os
import platform
import unittest

from gateway import Gateway


class Nodes(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"app": {"node": "node-7", "instance": "blue"}})

    def node(self, **options):
        answer = self.gateway.expect(200, "GET", "/nodes", **options)
        self.assertIsNone(answer["next_cursor"])
        [node] = answer["items"]
        return node

    def test_a_node_tells_its_engine_versions_load_and_warnings(self):
        node = self.node()
        self.assertEqual((node["node"], node["instance"]), ("node-7", "blue"))
        self.assertEqual((node["engine"], node["available"]), ("local", True))
        self.assertRegex(node["versions"]["engine"], r"^bubblewrap \d+\.\d+")
        self.assertRegex(node["versions"]["leasehold"], r"^\d+\.\d+")
        self.assertEqual(node["versions"]["kernel"], platform.release())
        load = node["load"]
        self.assertEqual(load["cpus"], os.cpu_count())
        self.assertGreater(load["memory_bytes"], load["memory_available_bytes"])
        self.assertIsInstance(node["warnings"], list)

    def test_sandboxes_are_counted_while_they_live(self):
        self.assertEqual(self.node()["load"]["sandboxes"], 0)
        sandbox, _ = self.gateway.open(self.gateway.new_chat()["chat_id"])
        self.assertEqual(self.node()["load"]["sandboxes"], 1)
        self.gateway.expect(200, "DELETE", f"/sandboxes/{sandbox['session_id']}")
        self.assertEqual(self.node()["load"]["sandboxes"], 0)

    def test_viewers_may_look_and_nobody_without_a_key(self):
        self.node(key=self.gateway.new_key("viewer"))
        self.gateway.expect(401, "GET", "/nodes", key="")

    def test_no_cursor_is_one_of_a_single_page(self):
        problem = self.gateway.expect(422, "GET", "/nodes?cursor=abc")
        self.assertEqual(problem["errors"][0]["pointer"], "/cursor")


if __name__ == "__main__":
    unittest.main()
