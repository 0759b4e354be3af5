"""On a full disk chats and histories are refused with 507, whole, and go on when there is room."""

import os
import unittest
import uuid

from test_full_disk import Case as FullDisk
from waiting import wait_for


class Chats(FullDisk):
    size = "48m"

    def fill(self):
        with open(os.path.join(self.data, "filler"), "wb", buffering=0) as out:
            size = 65536
            while size:
                try:
                    out.write(b"x" * size)
                except OSError:
                    size = 0 if size == 1 else 1

    def say(self, content):
        body = {"role": "user", "content": content}
        return self.gateway.rest("POST", f"/chats/{self.chat}/history", body)

    def messages(self):
        return self.gateway.expect(200, "GET", f"/chats/{self.chat}/history")["items"]

    def test_nothing_is_lost_or_half_written(self):
        user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(user)["chat_id"]
        said = ["one", "two" * 10_000]
        for content in said:
            self.assertEqual(self.say(content)[0], 201)
        self.fill()
        for _ in range(5):
            status, _, problem = self.say("x" * 200_000)
            self.assertEqual((status, problem["code"]), (507, "storage_full"))
            status, _, problem = self.gateway.rest("POST", "/chats", {"user_id": user})
            self.assertEqual((status, problem["code"]), (507, "storage_full"))
        self.assertEqual([m["content"] for m in self.messages()], said)
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual([m["content"] for m in self.messages()], said)
        os.remove(os.path.join(self.data, "filler"))
        self.wait_for_room()
        self.assertEqual([m["content"] for m in self.messages()], said + ["after"])
        workspace = self.gateway.expect(200, "GET", f"/users/{user}/workspace")
        chat = os.path.join(self.data, "workspaces", user, "chats", self.chat)
        on_disk = sum(os.path.getsize(os.path.join(chat, name)) for name in os.listdir(chat)
                      if name != "files")
        self.assertEqual((workspace["used_bytes"], workspace["chats"]), (on_disk, 1))
        self.assertTrue(self.gateway.expect(200, "GET", "/audit/verify")["ok"])

    def wait_for_room(self):
        wait_for(self, "something to be taken", self.is_room)

    def is_room(self):
        status, _, answer = self.say("after")
        if status != 201:
            self.assertEqual((status, answer["code"]), (507, "storage_full"))
        return status == 201


del FullDisk


if __name__ == "__main__":
    unittest.main()
