"""`--rootfs`: sandboxes with the files and the interpreter of another system."""
import os
import signal
import subprocess

import pytest

import roots
from droste_cli import DROSTE
from harness import wait_until


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("rootfs")
    for directory in (place, place.parent, place.parent.parent):
        os.chmod(directory, 0o755)
    roots.make_root(str(place / "root"))
    return str(place / "root")


@pytest.fixture
def run(root, tmp_path):
    def start(*words, code="pass", at=root):
        environment = {**os.environ, "DROSTE_HOME": str(tmp_path), "DROSTE_DATABASE": "none"}
        return subprocess.run([DROSTE, "exec", "--rootfs", at, *words, "-c", code],
                              capture_output=True, text=True, timeout=60, env=environment)
    return start


@pytest.mark.parametrize("level", ["full", "light"])
def test_code_sees_the_files_of_the_root_and_not_the_machines(run, level):
    out = run("--isolation", level, code="import os; print(open('/etc/release-of-test').read(), "
              "os.path.exists('/etc/debian_version'), os.path.exists('/usr/bin/perl'))")
    assert out.stdout.split() == ["made", "by", "the", "tests", "False", "False"], out.stderr


@pytest.mark.parametrize("level", ["landlock", "process"])
def test_levels_without_a_root_of_their_own_refuse_by_name(run, level):
    out = run("--isolation", level)
    assert out.returncode != 0 and "--rootfs" in out.stderr and "full or light" in out.stderr


def test_the_root_is_read_only_and_tmp_is_not(run, root):
    out = run(code="""
import errno
for path in ("/usr/x", "/etc/passwd", "/x", "/tmp/x"):
    try:
        open(path, "a").close()
        print("written")
    except OSError as e:
        print(e.errno in (errno.EROFS, errno.EACCES))
""")
    assert out.stdout.split() == ["True", "True", "True", "written"], (out.stdout, out.stderr)
    assert not os.path.exists(root + "/tmp/x")


def test_a_private_root_over_it_is_written_to_in_memory(run, root):
    out = run("--root", "private", code="""
import os
open("/new", "w").write("1")
open("/home/user/new", "w").write("2")
print(os.getcwd(), os.path.exists("/etc/release-of-test"))
""")
    assert out.stdout.split() == ["/home/user", "True"], out.stderr
    assert not os.path.exists(root + "/new")


def test_the_guest_has_a_name_beside_those_of_the_root(run):
    out = run(code="import pwd; print(pwd.getpwuid(1000)[0], pwd.getpwnam('root')[2])")
    assert out.stdout.split() == ["guest", "0"], out.stderr


def test_a_link_in_the_root_leads_to_nothing_of_the_machine(run, root, tmp_path):
    """Links are followed within the sandbox only, where they name its own files."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    os.chmod(tmp_path, 0o755)
    links = {"old": "/old", "leak": str(secret), "up": "../../../.." + str(secret),
             "data": "/old/etc"}
    for name, target in links.items():
        os.symlink(target, os.path.join(root, name))
    try:
        out = run("--volume-name", "v", "--volume-root", str(tmp_path / "volumes"), code="""
import os
print(os.path.exists("/leak"), os.path.exists("/up"), os.listdir("/data"),
      os.path.exists("/old/etc"))
""")
        assert out.stdout.split() == ["False", "False", "[]", "False"], out.stderr
    finally:
        for name in links:
            os.unlink(os.path.join(root, name))


def test_what_read_names_appears_in_a_directory_that_the_root_has(run, root, tmp_path):
    (tmp_path / "shown").write_text("shown")
    os.chmod(tmp_path, 0o755)
    top = os.path.join(root, str(tmp_path).split("/")[1])
    os.makedirs(top, exist_ok=True)
    out = run("--read", str(tmp_path / "shown"), code="print(open(%r).read())"
              % str(tmp_path / "shown"))
    assert out.stdout.strip() == "shown", out.stderr


def test_a_root_without_python_is_named(run, tmp_path):
    os.makedirs(tmp_path / "empty" / "usr")
    out = run(at=str(tmp_path / "empty"))
    assert out.returncode != 0 and "has no 'python3'" in out.stderr


def test_a_root_that_is_not_there_is_named(run, tmp_path):
    out = run(at=str(tmp_path / "nowhere"))
    assert out.returncode != 0 and "nowhere" in out.stderr and "--rootfs" in out.stderr


def test_an_interpreter_that_cannot_be_executed_is_named(run, tmp_path):
    place = tmp_path / "broken" / "usr" / "bin"
    os.makedirs(place)
    (place / "python3").write_bytes(b"\x7fELF no program")
    os.chmod(place / "python3", 0o755)
    out = run(at=str(tmp_path / "broken"))
    assert out.returncode != 0 and "cannot be executed" in out.stderr


def test_the_interpreter_ends_with_a_killed_host(root, tmp_path):
    """Even if it ignores that its socket has closed: its code is the root's, and not trusted."""
    library = roots.library_of()
    stubborn = tmp_path / "stubborn"
    subprocess.run(["cp", "-a", root, stubborn], check=True)
    mark = "1000000.%d" % os.getpid()
    customize = stubborn / library.lstrip("/") / "sitecustomize.py"
    assert not os.path.lexists(customize), "a link would lead to a file of this machine"
    customize.write_text(
        "import os, sys\n"
        "if sys.argv[:1] == ['-c'] and os.fork() == 0:\n"
        "    os.execv('/usr/bin/sleep', ['sleep', %r])\n" % mark)
    os.chmod(tmp_path, 0o755)
    host = subprocess.Popen([DROSTE, "exec", "--rootfs", str(stubborn), "-c",
                             "print('up', flush=True); import time; time.sleep(600)"],
                            stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "DROSTE_DATABASE": "none"})
    assert host.stdout.readline() == "up\n"
    wait_until(lambda: sleeping(mark), what="the program of the interpreter")
    host.send_signal(signal.SIGKILL)
    host.wait()
    wait_until(lambda: not sleeping(mark), what="its end")


def sleeping(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as line:
                found += [pid] * (line.read().split(b"\0")[:2] == [b"sleep", mark.encode()])
        except OSError:
            pass
    return found
