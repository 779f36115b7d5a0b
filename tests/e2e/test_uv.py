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
    assert missing.status != 0 and "nothing" in missing.err, missing.err


def test_uv_enforces_hashes_of_requirements_files(use, wheels, tmp_path):
    with open(os.path.join(wheels, "hello-1.0-py3-none-any.whl"), "rb") as wheel:
        right = hashlib.sha256(wheel.read()).hexdigest()
    file = tmp_path / "requirements.txt"
    for digest in (right, "0" * 64):
        file.write_text("hello==1.0 --hash=sha256:%s\n" % digest)
        result = use("--requirements", str(file))
        assert result.out == ("1.0 uv\n" if digest == right else ""), result.err
        assert digest == right or "hash" in result.err.lower(), result.err


def test_uv_refuses_sdists_unless_they_are_allowed(use, wheels):
    make_sdist(wheels, "source")
    code = "import source; print(source.built)"
    assert use("--packages", "source", code=code).status != 0
    assert use("--packages", "source", "--sdists", "yes", code=code).out == "True\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def index(wheels, tmp_path):
    """The URL of an index, which is a directory with one page for each package; and the page."""
    (tmp_path / "simple" / "hello").mkdir(parents=True)
    page = tmp_path / "simple" / "hello" / "index.html"
    write_page(page, wheels)
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d/simple" % server.server_port, page
        server.shutdown()


def write_page(page, wheels):
    lines = []
    for name in sorted(os.listdir(wheels)):
        with open(os.path.join(wheels, name), "rb") as wheel:
            digest = hashlib.sha256(wheel.read()).hexdigest()
        lines.append("<a href='../../wheels/%s#sha256=%s'>%s</a>" % (name, digest, name))
    page.write_text("".join(lines))


def test_uv_reads_its_lock_file_and_enforces_its_hashes(use, wheels, index, tmp_path):
    """The index itself may have changed since."""
    url, page = index
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'x'\nversion = '1'\nrequires-python = '>=3.9'\n"
        "dependencies = ['hello<2']\n")
    subprocess.run(["uv", "lock", "--default-index", url, "--no-cache"], cwd=tmp_path, check=True,
                   capture_output=True, env={**os.environ, **ENVIRONMENT})
    for version in ("another", "1.0"):
        make_wheel(wheels, "hello", {"hello.py": "version = '%s'\n" % version}, "1.0")
        write_page(page, wheels)
        result = use("--package-index", url, "--requirements", str(tmp_path / "uv.lock"),
                     links=None)
        assert result.out == ("1.0 uv\n" if version == "1.0" else ""), result.err
        assert version == "1.0" or "hash" in result.err.lower(), result.err


def test_uv_reaches_the_index_and_nothing_else(use, index):
    url, page = index
    assert use("--package-index", url, "--packages", "hello", links=None).out == "2.0 uv\n"
    page.write_text("<a href='%s/hello-3.0-py3-none-any.whl'>hello-3.0-py3-none-any.whl</a>"
                    % url.replace("127.0.0.1", "127.0.0.2"))
    result = use("--package-index", url, "--packages", "hello>2", links=None)
    assert result.status != 0 and ("403" in result.err or "orbidden" in result.err), result.err
