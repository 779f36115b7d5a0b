"""A Git repository and a program that stages it, for the tests of staging."""
import os
import shutil
import subprocess
import tempfile

import pytest

from harness import NOBODY

GIT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
       "GIT_CONFIG_GLOBAL": "/dev/null",
       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b"}


def git(where, *words, input=None):
    """Git, as the one who made the repository uses it."""
    return subprocess.run(["git", "-C", where, *words], env=GIT, input=input, capture_output=True,
                          check=True).stdout.decode().strip()


class Repo:
    def __init__(self, path):
        self.path, self.url = path, "file://" + path
        os.makedirs(path)
        git(path, "init", "-q", "-b", "main")

    def write(self, name, text="", mode=0o644):
        full = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as f:
            f.write(text)
        os.chmod(full, mode)

    def commit(self, **files):
        for name, text in files.items():
            self.write(name.replace("_", "."), text)
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "--allow-empty", "-m", "x")
        return self.head

    @property
    def head(self):
        return git(self.path, "rev-parse", "HEAD")

    def tree(self, *lines):
        """A commit of a tree that git itself would not make: lines of (mode, name, object)."""
        raw = b"".join(b"%s %s\0%s" % (mode.encode(), name.encode(), bytes.fromhex(oid))
                       for mode, name, oid in lines)
        tree = git(self.path, "hash-object", "-t", "tree", "-w", "--stdin", "--literally",
                   input=raw)
        git(self.path, "update-ref", "refs/heads/evil",
            git(self.path, "commit-tree", "-m", "evil", tree))
        return "evil"

    def blob(self, text):
        return git(self.path, "hash-object", "-w", "--stdin", input=text.encode())


@pytest.fixture
def place():
    """Where everybody may read and pass: root's guest is another user."""
    path = tempfile.mkdtemp(prefix="droste-test-staging-")
    os.chmod(path, 0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", path])
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def repo(place):
    made = Repo(os.path.join(place, "project"))
    made.write("src/deep/code.py", "x = 1\n")
    made.write("run.sh", "#!/bin/sh\necho ran\n", 0o755)
    made.write("empty")
    os.symlink("README.md", os.path.join(made.path, "link"))
    made.commit(README_md="# first\n")
    git(made.path, "tag", "v1")
    git(made.path, "tag", "-a", "-m", "x", "v1-signed")
    made.commit(README_md="# second\n")
    git(made.path, "branch", "topic/one", "v1")
    return made


def at(droste, place):
    droste.env["DROSTE_VOLUME_ROOT"] = os.path.join(place, "volumes")
    droste.env["XDG_CACHE_HOME"] = os.path.join(place, "cache")
    for name in ("volumes", "cache"):
        os.makedirs(os.path.join(place, name), exist_ok=True)
        os.chmod(os.path.join(place, name), 0o755)
        if droste.prefix:
            os.chown(os.path.join(place, name), NOBODY, NOBODY)
    return droste


@pytest.fixture
def own(droste, place):
    return at(droste, place)


@pytest.fixture
def any_user(anybody, place):
    return at(anybody, place)


def staged(droste, code, *flags, **options):
    result = droste.cell(code, *flags, **options)
    assert result["status"] in ("ok", "submitted"), result
    return result


def text_of(droste, url, ref=None, *flags, **options):
    more = ("--repo-ref", ref) if ref else ()
    return staged(droste, "SUBMIT(text=read_file('README.md'))", "--repo-url", url, *more, *flags,
                  **options)


def packs(place):
    """Those of all caches."""
    return [os.path.join(at, name) for at, _, names in os.walk(os.path.join(place, "cache"))
            for name in names if name.endswith(".pack")]


def left(place):
    return [name for name in os.listdir(os.path.join(place, "volumes"))
            if name.startswith(".session-")]
