"""A user's scripts and dynamic programs on Docker: run in a container of their own, and as closed to the
agent as on `local`. FR-016."""

import os
import tempfile
import time
import unittest

from compiling import compile_c
from docker import Docker, busybox, glibc
from engine_proxy import HANG, EngineProxy, answer
from user_tools import SECRET, ToolSession
from waiting import wait_equal, wait_for

DYNAMIC = '#include <stdio.h>\nint main(int n, char **v) { printf("dynamic %s\\n", v[1]); return 9; }'

# See PIDFD_PROBE of test_user_tools_hostile.py: the writer of what arrives, by its pidfd.
THIEF = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int pair[2], in[2], one = 1, stolen = 0, signaled = 0, pidfds = 0;
    char data[100], control[500];
    struct iovec iov = {data, sizeof data};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pipe(in);
    setsockopt(pair[0], SOL_SOCKET, 76, &one, sizeof one);
    if (fork() == 0) {
        dup2(in[0], 0);
        dup2(pair[1], 1);
        close(in[1]);
        execl("/opt/user-tools/says", "says", NULL);
    }
    close(in[0]);
    if (recvmsg(pair[0], &m, 0) <= 0)
        return 1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_type == 4) {
            int pidfd;
            memcpy(&pidfd, CMSG_DATA(c), sizeof pidfd);
            pidfds++;
            for (int fd = 0; fd < 300; fd++)
                stolen += syscall(438, pidfd, fd, 0) >= 0;
            signaled += syscall(424, pidfd, 19, 0, 0) == 0;
        }
    close(in[1]);
    wait(NULL);
    printf("%.4s pidfds %d stolen %d signaled %d\n", data, pidfds > 0, stolen, signaled);
    return 0;
}
"""

# Its socket, on the way in connections that are refused because too many tools run, waits for a reader.
LINGERER = r"""
#include "lingering.h"

static int asker(void)
{
    return lingering_connect("/run/leasehold/tools/sock");
}

int main(void)
{
    int listener = lingering_listen(), sent = 0;
    for (int i = 0; i < 70; i++)
        if (asker() < 0)
            return 1;
    for (int i = 0; i < 200 && sent < 5; i++) {
        int to = asker();
        sent += lingering_send(to, listener); /* else it was refused before */
        close(to);
    }
    printf("sent %d\n", sent);
    fflush(stdout);
    if (fork() == 0) { /* keeps the other ends, which read nothing */
        close(1);
        close(2);
        for (int fd = 3; fd < 100; fd++)
            if (fd != listener)
                close(fd);
        sleep(20);
    }
    return 0;
}
"""


class UserToolsDocker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        with tempfile.TemporaryDirectory() as scratch:
            program = os.path.join(scratch, "dynamic")
            compile_c(DYNAMIC, program)
            cls.docker.image("lh/busybox", {**glibc(program), **busybox()})

    def setUp(self):
        self.s = ToolSession(self, docker=self.docker)

    def containers(self):
        return sorted(c["Labels"]["leasehold.kind"] for c in self.docker.of_gateway(self.s.gateway))

    def test_tools_are_run_in_a_container_of_their_own_and_stay_closed(self):
        self.s.script("says", 'echo said; read line; echo "$line" > "made-by-$1"; exit 5')
        self.s.script("shows", "env; id")
        self.s.program("dynamic", DYNAMIC)
        self.s.program("itself", "int main(void) { return 6; }", "-static")
        compile_c(THIEF, os.path.join(self.s.files, "thief"), "-static")
        run = self.s.open()
        self.assertEqual(self.containers(), ["sandbox", "tools"])
        self.assertEqual(run("cd /workspace/chat && umask 077 && echo in | /opt/user-tools/says x"), (5, "said"))
        self.assertEqual(run("cd /workspace/chat && chmod 600 made-by-x && cat made-by-x"), (0, "in"))
        self.assertEqual(os.stat(os.path.join(self.s.files, "made-by-x")).st_uid, 10001)
        self.assertEqual(run("/opt/user-tools/dynamic q"), (9, "dynamic q"))
        self.assertEqual(run("/opt/user-tools/itself"), (6, ""))
        self.assertRegex(run("/workspace/chat/thief")[1], r"^said pidfds [01] stolen 0 signaled 0$")
        status, output = run("ENV=/workspace/chat/x LD_PRELOAD=/x TERM=vt100 HOME=/x /opt/user-tools/shows")
        self.assertIn("uid=10003 gid=10003", output)
        self.assertIn("TERM=vt100", output)
        for word in ("LD_PRELOAD", "ENV=", "HOME=/x"):
            self.assertNotIn(word, output)
        status, output = run(
            "sleep 1 | /opt/user-tools/says y & sleep 0.4; for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; "
            f"grep {SECRET} $p/root/opt/user-tools/says /opt/user-tools/* /opt/user-tools/says; done; wait"
        )
        self.assertEqual(status, 0)
        self.assertNotIn("#", output)
        self.assertNotIn("leasetools", output)
        for attempt in ("rm /opt/user-tools/says", "cat /opt/user-tools/itself",
                        "echo > /opt/user-tools/itself", "ls /opt/user-tools", "grep says /proc/self/mountinfo", "echo > /run/leasehold/tools/x"):
            self.assertNotEqual(run(attempt)[0], 0, attempt)
        # No mount of the host's is left, and nothing of the session when it ends.
        self.assertNotIn(self.s.gateway.dir + "/run", open("/proc/self/mountinfo", encoding="ascii").read())
        self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}")
        self.assertEqual(self.containers(), [])
        self.assertEqual(len(self.s.audited()), 5)

    def test_a_socket_that_lingers_keeps_nobody(self):
        self.s.script("says", "echo said")
        compile_c(LINGERER, os.path.join(self.s.files, "lingerer"), "-static")
        run = self.s.open()
        self.assertEqual(run("/workspace/chat/lingerer"), (0, "sent 5"))
        self.assertEqual(run("sleep 1; /opt/user-tools/says"), (0, "said"))

    def stats(self):
        return self.s.gateway.expect(200, "GET", f"/sandboxes/{self.s.session}/stats")

    def test_what_tools_use_is_their_sessions(self):
        self.s.script("holds", "x=$(head -c 30000000 /dev/zero | tr '\\0' x); "
                               "for i in 1 2 3; do sleep 60 & done; echo > holding; wait")
        run = self.s.open()
        before = self.stats()
        run("cd /workspace/chat; (/opt/user-tools/holds </dev/null >/dev/null 2>&1 &)")
        wait_for(self, "holding", lambda: os.path.exists(os.path.join(self.s.files, "holding")))
        self.docker.pause()
        try:
            after = self.stats()  # of the kernel, whatever the engine is at
        finally:
            self.docker.go_on()
        self.assertEqual(after["pids"] - before["pids"], 6)  # lease-tool, its minder, the tool, three of it
        self.assertGreater(after["memory_bytes"] - before["memory_bytes"], 25_000_000)
        self.assertGreater(after["memory_peak_bytes"] - before["memory_peak_bytes"], 25_000_000)
        self.assertGreater(after["cpu_usage_us"], before["cpu_usage_us"])

    def chats_mounted(self):
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            return [line.split()[4] for line in mounts if self.s.gateway.dir in line and "/tools-chat" in line]

    def test_a_gateway_that_dies_in_a_start_leaves_no_mount(self):
        proxy = EngineProxy(self, self.docker.socket)
        config = {
            "docker": {"base_url": proxy.url},
            "sandbox": {"cleanup_interval_seconds": 1},  # a stop that failed is tried again by these
        }
        self.s = ToolSession(self, config, docker=self.docker)
        self.s.script("says", "echo said")
        proxy.rule = lambda method, path: HANG if path.endswith("/start") else None
        body = {"chat_id": self.s.chat, "wait": False}
        self.s.gateway.expect(202, "POST", "/sandboxes", body)
        wait_for(self, "the start", lambda: self.containers() == ["tools"] and self.chats_mounted())
        self.s.gateway.kill9()
        self.assertEqual(len(self.chats_mounted()), 1)
        proxy.rule = lambda method, path: answer(500)  # nothing that depends on it can be tidied up
        self.s.put("kept", "kept")
        self.s.gateway.start()
        self.assertEqual(self.chats_mounted(), [])
        proxy.rule = lambda method, path: None
        wait_for(self, "nothing left", lambda: self.containers() == [])
        self.assertTrue(os.path.exists(os.path.join(self.s.files, "kept")))

    def test_a_tool_ends_with_its_agent_and_the_rest_after_the_gateways_return(self):
        self.s.script("beats", "while :; do echo b >> beat; sleep 0.1; done")
        run = self.s.open()
        run("cd /workspace/chat; (/opt/user-tools/beats </dev/null >/dev/null 2>&1 &) ; sleep 0.5")
        self.s.gateway.kill9()
        agents = [
            c["Id"] for c in self.docker.of_gateway(self.s.gateway)
            if c["Labels"]["leasehold.kind"] == "sandbox"
        ]
        self.docker.remove(agents[0])
        path = os.path.join(self.s.files, "beat")

        def is_still():
            before = os.path.getsize(path)
            time.sleep(0.5)
            return before > 0 and os.path.getsize(path) == before

        wait_for(self, "the end of the beats", is_still)
        self.assertEqual(self.containers(), ["tools"])
        self.s.gateway.start()
        wait_equal(self, [], self.containers)


if __name__ == "__main__":
    unittest.main()
