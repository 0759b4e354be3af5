"""The layer rule: who may include what (docs/architecture.md, "Folders").

    check_includes.py [ROOT]

The tables below are the rule. A change of them is a change of the architecture.
"""

import fnmatch
import os
import re
import sys

import tree

# Who owns a public header. Everything a header is not listed for belongs to no one: an error.
OWNERS = {
    "base": "arena buf clock config err field http_client http_headers id json lanes log metrics owned_file process tcp_reserve ws_frame ws_reader".split(),
    "lease": "token proof door_proto lease_rules broker spool".split(),
    "storage": "store model artifacts backup chatdir chatfile counted file_name history objects usertools".split(),
    "runtime": "engine sandbox_host agent_link keep_spec tool_link".split(),
}
HEADERS = {f"{name}.h": owner for owner, names in OWNERS.items() for name in names}

# What a folder may include: the headers of whole folders, and single ones.
LAYERS = {
    "base": {"base"},
    "lease": {"base", "lease", "store.h", "model.h"},
    "lease/door": {"base", "lease", "agent_link.h"},
    "storage": {"base", "storage"},
    "runtime": {"base", "runtime", "door_proto.h", "model.h"},
    "runtime/init": {"agent_link.h", "keep_spec.h", "tool_link.h"},
    "gateway": {"base", "lease", "storage", "runtime"},
    "gateway/cli": {"base", "door_proto.h"},
}

# A public header may use what its owner may; model.h is the one that reaches further.
PUBLIC = "include/leasehold"
PUBLIC_EXTRA = {"model.h": {"token.h"}}

# Third-party headers, and the files that may see them.
LIBRARIES = {
    "libwebsockets.h": [
        "gateway/server*",
        "gateway/http_callback.c",
        "gateway/ws_callback.c",
        "gateway/sock.c",
        "gateway/cli/door_client.c",
    ],
    "uv.h": ["gateway/server*"],
    "curl/*": ["base/http_client.c"],
    "cjson/*": ["base/json.c"],
    "yaml.h": ["base/config*.c", "base/yaml.c"],
    "sqlite3.h": ["storage/*"],
    "utf8proc.h": ["storage/file_name.c"],
    "libpq-fe.h": ["storage/*"],
    "openssl/crypto.h": ["gateway/*", "lease/*", "storage/*"],  # cleanse, compare in constant time
    "openssl/*": [
        "lease/*",
        "storage/*",
        "gateway/auth*.c",
        "gateway/config_files.c",
        "gateway/idempotency.c",
        "gateway/session_open.c",
        "gateway/tls*.c",
        "gateway/cli/door_client.c",
        "gateway/cli/file*",
    ],
    "jwt.h": ["gateway/auth_jwt.c"],
    "uthash.h": ["*.c", "*.h"],
    "utlist.h": ["*.c", "*.h"],
    "sanitizer/asan_interface.h": ["base/arena.c"],  # of the compiler, in builds under ASan alone
    "cmocka.h": [],
}

LIBC = set(
    """assert ctype dirent dlfcn endian err errno fcntl features float fnmatch fts ftw getopt glob grp
    ifaddrs inttypes langinfo libgen limits link locale malloc math mntent netdb paths poll pthread pwd
    regex sched search semaphore setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint
    stdio stdio_ext stdlib stdnoreturn string strings syslog termios threads time unistd wchar
    wctype""".split()
)
LIBC_FOLDERS = {"arpa", "asm", "linux", "net", "netinet", "sys"}

# Constructors of concrete backends: named by the folder that defines them and by gateway/main.c.
BACKENDS = [
    (re.compile(r"\bengine_(?:local|docker)_new\b"), "runtime"),
    (re.compile(r"\bstore_(?:sqlite|postgres)\w*"), "storage"),
    (re.compile(r"\bobjects_(?:disk|s3)_new\b"), "storage"),
]
COMPOSER = "gateway/main.c"

PATH = "tests/tools/check_includes.py"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def is_test(path):
    return path.startswith("tests/")


def allowed_headers(path):
    """The public headers a file may include; None when it is bound by no layer."""
    folder, leaf = os.path.split(path)
    if folder == PUBLIC:
        return may_include(LAYERS.get(HEADERS.get(leaf), set())) | PUBLIC_EXTRA.get(leaf, set())
    return may_include(LAYERS[folder]) if folder in LAYERS else None


def may_include(names):
    return {header for header, owner in HEADERS.items() if owner in names or header in names}


def check_own(path, target, root):
    """A quoted include: a public header of an allowed layer, or a private one of the folder."""
    folder, leaf = os.path.split(path)
    if target.startswith("leasehold/"):
        header = target.removeprefix("leasehold/")
        if header not in HEADERS:
            return f"{target} has no owner in check_includes.py"
        if header not in allowed_headers(path):
            return f"{folder or leaf} may not use {target} ({HEADERS[header]})"
        return None
    if "/" in target:
        return f"{target}: another folder is reached only through include/leasehold/"
    if not os.path.exists(os.path.join(root, folder, target)):
        return f"{target} is not a private header of {folder}"
    if folder == PUBLIC:
        return f'{target}: public headers include each other as "leasehold/{target}"'
    return None


def is_libc(target):
    folder, leaf = os.path.split(target)
    return folder in LIBC_FOLDERS or (not folder and leaf.removesuffix(".h") in LIBC)


def check_foreign(path, target):
    """An angle include: libc anywhere, a library only where its table row says so."""
    if is_libc(target):
        return None
    for pattern, places in LIBRARIES.items():
        if fnmatch.fnmatchcase(target, pattern):
            if path.startswith(PUBLIC):
                return f"<{target}>: no third-party type in a public header"
            if any(fnmatch.fnmatchcase(path, place) for place in places):
                return None
            return f"<{target}> does not belong here; {PATH} says where"
    return f"<{target}> is neither libc nor in the table of libraries"


def check_backends(path, text):
    code = tree.code_only(text)
    for pattern, owner in BACKENDS:
        if path == COMPOSER or path.startswith((owner + "/", PUBLIC)):
            continue
        for match in pattern.finditer(code):
            line = tree.line_of(code, match.start())
            yield f"{path}:{line}: only {COMPOSER} names a concrete backend ({match.group()})"


def check_file(path, root):
    text = tree.read(path, root)
    if allowed_headers(path) is None:
        yield f"{path}: the folder has no layer in check_includes.py"
        return
    for match in INCLUDE.finditer(text):
        quote, target = match.groups()
        if quote == '"':
            fault = check_own(path, target, root)
        else:
            fault = check_foreign(path, target)
        if fault:
            yield f"{path}:{tree.line_of(text, match.start())}: {fault}"
    yield from check_backends(path, text)


def check(root):
    faults = []
    for path in tree.files(".c", ".h", root=root):
        if not is_test(path):
            faults += check_file(path, root)
    return faults


def main(argv):
    return tree.report("check_includes", check(argv[1] if len(argv) > 1 else tree.ROOT))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
