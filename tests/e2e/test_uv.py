"""Packages that uv resolves and installs (`--packages`), in the sandbox of a build."""
import functools
import hashlib
import http.server
import os
import subprocess
import threading

import pytest

from harness import ROOT
from wheels import make_sdist, make_wheel

PLACE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "uv", "bin")
pytestmark = pytest.mark.skipif(not os.access(os.path.join(PLACE, "uv"), os.X_OK),
                                reason="no uv in build/uv: scripts/setup uv")
ENVIRONMENT = {"PATH": PLACE + ":/usr/bin:/bin"}
SAY = """
import hello, importlib.metadata
print(hello.version, importlib.metadata.distribution("hello").read_text("INSTALLER"))
"""


@pytest.fixture
def wheels(tmp_path):
    directory = tmp_path / "wheels"
    directory.mkdir()
    for version in ("1.0", "2.0"):
        make_wheel(str(directory), "hello", {"hello.py": "version = '%s'\n" % version}, version)
    return str(directory)


@pytest.fixture
def use(droste, wheels):
    def run(*flags, links=wheels, code=SAY):
        where = ["--find-links", links, "--package-index", "none"] if links else []
        return droste("exec", *where, *flags, "-c", code, env=ENVIRONMENT)
    return run


def test_uv_resolves_from_a_directory_of_wheels(use):
    assert use("--packages", "hello").out == "2.0 uv\n"
    assert use("--packages", "hello<2").out == "1.0 uv\n"
    missing = use("--packages", "hello,nothing")
    assert missing.status != 0 and "nothing was not found" in missing.err, missing.err


def test_uv_enforces_hashes_of_requirements_files(use, wheels, tmp_path):
    with open(os.path.join(wheels, "hello-1.0-py3-none-any.whl"), "rb") as wheel:
        right = hashlib.sha256(wheel.read()).hexdigest()
    file = tmp_path / "requirements.txt"
    for digest in (right, "0" * 64):
        file.write_text("hello==1.0 --hash=sha256:%s\n" % digest)
        result = use("--requirements", str(file))
        assert result.out == ("1.0 uv\n" if digest == right else ""), result.err
        assert digest == right or "Hash mismatch" in result.err


def test_uv_reads_its_lock_file_and_enforces_what_is_in_it(use, wheels, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'x'\nversion = '1'\nrequires-python = '>=3.9'\n"
        "dependencies = ['hello<2']\n")
    subprocess.run(["uv", "lock", "--no-index", "--find-links", wheels, "--no-cache"],
                   cwd=tmp_path, check=True, capture_output=True, env={**os.environ, **ENVIRONMENT})
    assert use("--requirements", str(tmp_path / "uv.lock")).out == "1.0 uv\n"


def test_uv_refuses_sdists_unless_they_are_allowed(use, wheels):
    make_sdist(wheels, "source")
    code = "import source; print(source.built)"
    assert use("--packages", "source", code=code).status != 0
    assert use("--packages", "source", "--sdists", "yes", code=code).out == "True\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_uv_reaches_the_index_and_nothing_else(use, wheels, tmp_path):
    """An index is a directory with one page for each package."""
    (tmp_path / "simple" / "hello").mkdir(parents=True)
    page = tmp_path / "simple" / "hello" / "index.html"
    page.write_text("<a href='../../wheels/hello-2.0-py3-none-any.whl'>hello-2.0-py3-none-any.whl"
                    "</a>")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = "http://127.0.0.1:%d" % server.server_port
        index = ["--package-index", at + "/simple", "--packages", "hello"]
        assert use(*index, links=None).out == "2.0 uv\n"
        page.write_text("<a href='%s/hello-3.0-py3-none-any.whl'>hello-3.0-py3-none-any.whl</a>"
                        % at.replace("127.0.0.1", "127.0.0.2"))
        result = use(*index, "--packages", "hello>2", links=None)
        assert result.status != 0 and "403" in result.err, result.err
        server.shutdown()
