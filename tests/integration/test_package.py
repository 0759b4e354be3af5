"""The Debian package: built from what stands in the tree, installed by dpkg, upgraded, purged.

dpkg works on an overlay of the machine's own root in a mount namespace of its own, so the machine
never sees any of it.
"""

import glob
import os
import re
import subprocess
import tempfile
import unittest

import gateway

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# $1: a directory to mount on, $2: the package.
ENTER = r"""
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2" "$1/root/leasehold.deb"
cd "$1/root"
for d in proc sys dev; do mount --rbind "/$d" "$d"; done
mount -t tmpfs none tmp
mount -t tmpfs none run
mkdir old
pivot_root . old
umount -l old
cd /
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
"""

MAIN_JOB = r"""
leasehold run --config /var/lib/leasehold/leasehold.yaml >/tmp/log 2>&1 &
gateway=$!
trap 'kill "$gateway" 2>/dev/null' EXIT
for i in $(seq 600); do [ -e /var/lib/leasehold/run/ready ] && break; sleep 0.1; done
LEASEHOLD_URL=$(head -n 1 /var/lib/leasehold/run/ready)
export LEASEHOLD_URL
chat=$(leasectl --key-file /var/lib/leasehold/admin.key --json chat create \
    --user 00000000-0000-4000-8000-000000000001 | sed 's/.*"chat_id":"\([^"]*\)".*/\1/')
echo hello | leasectl --key-file /var/lib/leasehold/admin.key connect "$chat"
leasectl --key-file /var/lib/leasehold/admin.key --json sandbox ls --status running |
    grep -o '"session_id":"[^"]*"' | cut -d '"' -f 4 | while read -r session; do
    leasectl --key-file /var/lib/leasehold/admin.key sandbox stop "$session" >/dev/null
done
trap - EXIT
kill "$gateway"
wait "$gateway"
"""


LIFE = r"""
cat /tmp/dpkg
stat -c '%a %U %n' /var/lib/leasehold/admin.key
[ -e /var/lib/leasehold/run/ready ] || echo nothing runs
sums() { md5sum /var/lib/leasehold/{admin.key,leasehold.yaml} /var/lib/leasehold/keys/*; }
sums >/tmp/before
dpkg --no-triggers -i /leasehold.deb >/dev/null
sums | cmp - /tmp/before && echo upgraded
dpkg --no-triggers -P leasehold
[ -e /usr/lib/leasehold ] || [ -e /usr/bin/leasehold ] || echo programs are gone
sums | cmp - /tmp/before && echo keys are there
"""

# The configuration has gone elsewhere: nothing is made beside the keys that are there.
MOVED = r"""
mv /var/lib/leasehold/leasehold.yaml /etc/leasehold.yaml
ls -lR --time-style=full-iso /var/lib/leasehold >/tmp/before
dpkg --no-triggers -i /leasehold.deb
ls -lR --time-style=full-iso /var/lib/leasehold | cmp - /tmp/before && echo left as it was
"""


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory(prefix="leasehold-package-")
        cls.addClassCleanup(cls.dir.cleanup)
        cls.deb = cls.build("out")

    @classmethod
    def build(cls, name):
        """As `make package` does it, but for the programs under test and without building them."""
        stage = os.path.join(cls.dir.name, name, "stage")
        subprocess.run(
            ["make", "-s", "-o", "build", "install", "PREFIX=/usr", f"DESTDIR={stage}", f"BIN={gateway.BIN}"],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        made = subprocess.run(
            ["scripts/package.sh", stage, os.path.join(cls.dir.name, name)],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return made.stdout.strip()

    def installed(self, what):
        """What a shell says that installed the package first, on a root that is gone afterwards."""
        mount_point = tempfile.mkdtemp(dir=self.dir.name)
        env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        script = ENTER + "dpkg --no-triggers -i /leasehold.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; exit 1; }\n" + what
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private", "bash", "-c", script, "bash", mount_point, self.deb],
            env=env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_an_installed_package_runs_the_main_job(self):
        self.assertIn("hello", self.installed(MAIN_JOB).splitlines())

    def test_keys_and_configuration_are_made_once_and_outlive_upgrade_and_purge(self):
        said = self.installed(LIFE)
        self.assertIn("600 root /var/lib/leasehold/admin.key", said)
        self.assertNotIn("lhk_", said)
        self.assertIn("nothing runs\n", said)
        self.assertIn("upgraded\n", said)
        self.assertIn("/var/lib/leasehold with its chats and files stays", said)
        self.assertIn("programs are gone\n", said)
        self.assertTrue(said.endswith("keys are there\n"), said)

    def test_an_upgrade_does_not_fail_where_the_configuration_stands_elsewhere(self):
        said = self.installed(MOVED)
        self.assertIn("/var/lib/leasehold has no leasehold.yaml and is left as it is", said)
        self.assertTrue(said.endswith("left as it was\n"), said)

    def test_the_unit_is_one_systemd_understands(self):
        said = self.installed("systemd-analyze verify /usr/lib/systemd/system/leasehold.service 2>&1; true")
        self.assertNotIn("leasehold", said)

    def test_no_link_of_its_documents_leads_nowhere(self):
        tree = os.path.join(self.dir.name, "tree")
        subprocess.run(["dpkg-deb", "-x", self.deb, tree], check=True)
        for path in glob.glob(os.path.join(tree, "usr/share/doc/leasehold/**/*.md"), recursive=True):
            with open(path, encoding="utf-8") as text:
                for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text.read()):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), target)), (path, target))

    def test_the_same_tree_gives_the_same_bytes(self):
        with open(self.deb, "rb") as one, open(self.build("again"), "rb") as other:
            self.assertEqual(one.read(), other.read())


if __name__ == "__main__":
    unittest.main()
