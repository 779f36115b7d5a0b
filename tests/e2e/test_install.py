"""Packages in a running session (`--allow-install`): `%pip install` and install_packages()."""
import os
import signal
import subprocess
import sys

import pytest

from harness import BUILD, ROOT, finish, repl, wait_until
from lives import Gate, Life, begun
from wheels import make_sdist, make_wheel


@pytest.fixture
def wheels(tmp_path):
    directory = tmp_path / "wheels"
    directory.mkdir()
    make_wheel(str(directory), "hello", {"hello.py": "word = 'hello'\n"})
    make_wheel(str(directory), "other", {"other/__init__.py": "word = 'other'\n"})
    return str(directory)


@pytest.fixture
def permitted(wheels):
    return ["--allow-install", "yes", "--find-links", wheels, "--package-index", "none"]


def shown(droste):
    return os.listdir(os.path.join(droste.home, ".cache", "droste", "packages", "shown"))


LINES = """
%pip install -q hello
import hello
before = [hello.word]
if True:
    !python3 -m pip install 'other>=1'  # a comment of the shell's
import other, os, socket, subprocess, sys
open("names.txt", "w").write("hello  # the same\\n\\n")
%pip install -r names.txt
print(before, other.word, install_packages(["other"]), flush=True)
subprocess.run([sys.executable, "-c", "import other; print(other.word)"])
place = os.path.dirname(os.path.dirname(hello.__file__))
for forbidden in ("os.listdir(place)", "open(place + '/x', 'w')", "open(hello.__file__, 'a')",
                  "socket.create_connection(('127.0.0.1', 3128), 5)"):
    try:
        eval(forbidden)
    except OSError:
        print("refused", forbidden[:7])
"""


def test_lines_and_calls_install_what_the_session_then_imports(droste, permitted):
    result = droste("exec", *permitted, "-c", LINES)
    assert result.out.splitlines() == [
        "installed hello==1.0", "installed other==1.0", "installed hello==1.0",
        "['hello'] other ['other==1.0']", "other", "refused os.list", "refused open(pl",
        "refused open(he", "refused socket."], result.err
    assert shown(droste) == []


def test_without_permission_a_line_is_refused_by_name(droste):
    result = droste("exec", "-c", "%pip install hello")
    assert result.status != 0 and "PermissionError" in result.err
    assert "--allow-install yes" in result.err


def test_a_cell_that_is_wrong_without_such_a_line_stays_a_syntax_error(droste):
    assert "SyntaxError" in droste("exec", "-c", "pip install hello").err
    assert "SyntaxError" in droste("exec", "-c", "%cd /tmp").err
    assert droste("exec", "-c", "x = '''\n%pip install hello\n'''\nprint(len(x))").out == "20\n"


def test_what_is_no_name_with_a_version_is_refused(droste, permitted):
    code = """
for words in (["http://example.com/x.whl"], ["-r/etc/passwd"], ["./x"], ["hello\\r--pre"], [1], [],
              ["hello @ file:///x"], ["x" * 301]):
    try:
        install_packages(words)
        print("installed", words)
    except ValueError:
        print("refused")
for line in ("install --target /tmp hello", "download hello", "install --index-url http://x hello"):
    try:
        exec("_droste_pip(%r)" % line)
        print("installed", line)
    except ValueError:
        print("refused")
try:
    install_packages(["no-such-package"])
except RuntimeError as e:
    print("no-such-package" in str(e))
%pip install hello
"""
    result = droste("exec", *permitted, "-c", code)
    assert result.out.split() == ["refused"] * 11 + ["True", "installed", "hello==1.0"], result


def test_installations_are_counted_and_the_limit_is_named(droste, permitted):
    code = "for _ in range(3): print(install_packages(['hello']))"
    result = droste("exec", *permitted, "--max-installs", "2", "-c", code)
    assert result.out == "['hello==1.0']\n" * 2 and "max-installs" in result.err
    assert "PermissionError" in result.err


@pytest.mark.parametrize("flags, word", [
    (["--rules", "yes"], "rules"), (["--rootfs", "/"], "rootfs"), (["--env", "docker"], "docker")])
def test_what_cannot_have_it_refuses_it_by_name(droste, permitted, flags, word):
    result = droste("exec", *permitted, *flags, "-c", "1")
    assert result.status != 0 and word in result.err and "allow-install" in result.err, result.err


def test_an_interrupt_ends_the_build(droste, permitted, wheels):
    make_sdist(wheels, "slow", "import time; time.sleep(1000)")
    process = droste.start("exec", *permitted, "--sdists", "yes", "-c", "%pip install slow")
    building = os.path.join(droste.home, ".cache", "droste", "packages", "building")
    wait_until(lambda: os.path.isdir(building) and set(os.listdir(building)) - {".lock"})
    process.send_signal(signal.SIGINT)
    finish(process)
    assert droste("exec", *permitted, "-c", "%pip install hello").out == "installed hello==1.0\n"
    assert set(os.listdir(building)) == {".lock"}


def test_what_a_killed_host_showed_is_removed_by_the_next(droste, permitted):
    code = "%pip install hello\nprint('up', flush=True)\nimport time; time.sleep(600)"
    host = droste.start("exec", *permitted, "-c", code)
    while host.stdout.readline() != b"up\n":
        assert host.poll() is None
    assert len(shown(droste)) == 1
    host.send_signal(signal.SIGKILL)
    finish(host)
    wait_until(lambda: droste("exec", *permitted, "-c", "print(1)").out == "1\n"
               and shown(droste) == [], what="the end of its sandbox")


def test_the_host_serves_other_calls_while_it_builds(droste, permitted, wheels, serve, tmp_path):
    go = os.path.join(wheels, "go")
    make_sdist(wheels, "slow",
               "import os, time\n    while not os.path.exists(%r): time.sleep(0.05)" % go)
    turns = [repl("import threading\norder = []\n"
                  "def install():\n    install_packages(['slow'])\n    order.append('built')\n"
                  "t = threading.Thread(target=install); t.start()\n"
                  "llm_query('first'); order.append('asked'); llm_query('second'); t.join()\n"
                  "SUBMIT(' '.join(order))")]
    life = Life(droste, serve(turns=turns), tmp_path, *permitted, "--sdists", "yes")
    process = life.start()
    wait_until(lambda: life.server.stats()["requests"] == 3, what="the calls")
    open(go, "w").close()
    assert finish(process).json["answer"] == "asked built"


def kill_after_installing(droste, life, gate):
    gate.shut()
    process = life.start()
    wait_until(lambda: begun(droste) and len(droste.record.cells) == 2)
    process.kill()
    finish(process)


def test_an_installation_is_recorded_and_a_resumed_run_has_its_packages(
        droste, permitted, wheels, serve, tmp_path):
    make_wheel(wheels, "hello", {"hello/__init__.py": "", "hello/more.py": "word = 'more'\n"})
    gate = Gate(tmp_path / "gate")
    turns = [repl("%pip install hello"), repl(gate.code + "import hello.more"),
             repl("SUBMIT(hello.more.word)")]
    life = Life(droste, serve(turns=turns), tmp_path, *permitted, *gate.flags)
    kill_after_installing(droste, life, gate)
    (call,) = [c for c in droste.record.calls if c["kind"] == "tool"]
    assert call["model"] == "install_packages" and call["status"] == "ok"
    gate.open()
    assert life.resume().json["answer"] == "more"


def test_a_resumed_run_names_packages_that_are_gone(droste, permitted, wheels, serve, tmp_path):
    gate = Gate(tmp_path / "gate")
    turns = [repl("%pip install hello"), repl(gate.code), repl("SUBMIT(1)")]
    life = Life(droste, serve(turns=turns), tmp_path, *permitted, *gate.flags)
    kill_after_installing(droste, life, gate)
    gate.open()
    wait_until(lambda: droste("packages", "gc", "--older-than", "0s").out.startswith("removed 1,"),
               what="the end of its sandbox")
    result = life.resume()
    assert result.status != 0 and "had installed" in result.err + result.out, result


HOLDERS = """
import sys
import droste
def held(step):
    print(step, flush=True)
    sys.stdin.readline()
options = dict(allow_install=True, find_links=sys.argv[1], package_index="none", database="none")
install = "%pip install -q hello\\nimport hello\\nprint(hello.word)"
with droste.Interpreter(**options) as first:
    with droste.Interpreter(**options) as second:
        for one in (first, second):
            assert one.execute(install).stdout == "installed hello==1.0\\nhello\\n"
    fork = first.fork()
held("fork")
assert fork.execute("import importlib; print(importlib.reload(hello).word)").stdout == "hello\\n"
fork.shutdown()
held("none")
with droste.Interpreter(**options) as again:
    assert again.execute(install).stdout == "installed hello==1.0\\nhello\\n"
    held("again")
"""


def test_a_set_is_released_when_the_last_session_that_has_it_ends(droste, wheels):
    """A fork is such a session. The program goes on, and a later session has it again."""
    seen, names = [], None
    cache = os.path.join(droste.home, ".cache", "droste", "packages")
    program = subprocess.Popen(
        [sys.executable, "-c", HOLDERS, wheels], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**droste.env, "PYTHONPATH": os.path.join(ROOT, "python"),
                        "DROSTE_LIBRARY": os.path.join(BUILD, "libdroste.so")})
    with program:
        for step in iter(program.stdout.readline, ""):
            names = names or os.listdir(os.path.join(cache, "sets"))
            files = any(os.path.exists(os.path.join(cache, "shown", own, names[0]))
                        for own in shown(droste))
            removed = droste("packages", "gc", "--older-than", "0s").out
            seen.append((step.strip(), files, removed.split(",")[0]))
            program.stdin.write("\n")
            program.stdin.flush()
    assert program.returncode == 0
    assert seen == [("fork", True, "removed 0"), ("none", False, "removed 1"),
                    ("again", True, "removed 0")]
