"""What a user or a machine may say that Droste must refuse in words: odd names, and kernels and
containers that do not give what a sandbox needs. Rows 97, 98, 110 and 111 of the attacks."""
import json
import platform
import re
import shutil
import subprocess
import sys

import pytest

from droste_cli import droste

ODD = ["../x", "", "x" * 10000, "%n%s%n", ";rm -rf /", "a/b", "-c", ".", "..", "a b", "a\nb",
       "\x1b[31mred",
       "o\u200bs", "\u0455ys", "$(id)", "'\"", "\u202eos"]


def assert_refused(result, statuses=(1, 2, 4)):
    """In one line that is safe on a terminal and in a log, and does not go on for ever."""
    assert result.returncode in statuses, result
    assert result.stdout == ""
    line = result.stderr.removesuffix("\n").partition("\nTry 'droste ")[0]
    assert line.startswith("droste") and "\n" not in line, line
    assert not any(ord(c) < 32 or 0x202a <= ord(c) <= 0x202e for c in line), line
    assert len(line) < 600


@pytest.mark.parametrize("name", ODD)
def test_runs_are_not_found_by_odd_names(tmp_path, name):
    """An id is compared with ids; it is not a path, a pattern or a format."""
    assert_refused(droste(tmp_path, "runs", "show", name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ODD)
def test_environments_of_odd_names_are_unknown(tmp_path, name):
    if name == "":
        pytest.skip("an empty --env is the default")
    assert_refused(droste(tmp_path, "exec", "--env", name, "-c", "print(1)"))


@pytest.mark.parametrize("name", [n for n in ODD if n])
def test_modules_of_odd_names_are_not_preloaded(tmp_path, name):
    """A name goes to import_module and nowhere else: the error is Python's own."""
    assert_refused(droste(tmp_path, "exec", "--preload=" + name, "-c", "print(1)"))


@pytest.mark.parametrize("name", ["Full", "full ", "none", "process;full", "../full"])
def test_isolations_of_odd_names_are_refused(tmp_path, name):
    assert_refused(droste(tmp_path, "exec", "--isolation", name, "-c", "print(1)"))


def test_right_names_are_taken(tmp_path):
    result = droste(tmp_path, "exec", "--env", "local", "--preload", "os.path", "--isolation",
                    "auto",
                    "-c", "print(1)")
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


# ---- machines that do not have what it takes ----

def assert_named(result, asked="full"):
    """The level that cannot be had and what was refused, for `auto` of each that was tried; nothing
    ran, least of all without a wall."""
    assert_refused(result, (4,))
    assert "droste doctor" in result.stderr and "--isolation process" in result.stderr
    if asked == "auto":
        assert "no isolation level is available here. full" in result.stderr
        named = re.findall(r"(?:^|[.,] )(full|light|landlock)(?=[:,])", result.stderr)
        assert named == ["full", "light", "landlock"], result.stderr
    else:
        assert "isolation '%s' is not available here: " % asked in result.stderr


ONE_USER = ["unshare", "-Ur"]


@pytest.mark.parametrize("level", ["auto", "full", "light", "landlock"])
def test_root_of_a_namespace_with_one_user_gets_the_reason_for_each_level(tmp_path, level):
    """The guest of root is another user, and there is none. Where several levels lack the same, it
    is said once."""
    if not shutil.which("unshare") or subprocess.run([*ONE_USER, "true"],
                                                     capture_output=True).returncode:
        pytest.skip("user namespaces cannot be made here")
    result = droste(tmp_path, "exec", "--isolation", level, "-c", "print(1)", prefix=ONE_USER)
    assert_named(result, level)
    if level == "auto":
        assert ("full, light: become uid 65534 gid 65534: Operation not permitted. landlock: "
                in result.stderr)
    if level in ("auto", "landlock"):
        assert ("this user namespace has no other user to run the guest as; run as an ordinary "
                "user. " in result.stderr)
    twin = droste(tmp_path, "exec", "--isolation", "process", "-c", "print(1)", prefix=ONE_USER)
    assert (twin.returncode, twin.stdout) == (0, "1\n")


WITHOUT_NAMESPACES = ["unshare", "-Ur", "sh", "-c",
                      'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"']


@pytest.mark.parametrize("level", ["auto", "full"])
def test_without_user_namespaces_full_is_refused_by_name(tmp_path, level):
    works = subprocess.run([*WITHOUT_NAMESPACES, "true"], capture_output=True)
    if not shutil.which("unshare") or works.returncode != 0:
        pytest.skip("user namespaces cannot be limited here")
    assert_named(droste(tmp_path, "exec", "--isolation", level, "-c", "print(1)",
                        prefix=WITHOUT_NAMESPACES), level)
    result = droste(tmp_path, "exec", "--isolation", "process", "--json", "-c", "print(1)",
                    prefix=WITHOUT_NAMESPACES)
    assert '"isolation": "process"' in result.stdout or '"isolation":"process"' in result.stdout


# Runs a program under a filter of a container's kind: these system calls give this error.
FILTER = """
import ctypes, os, struct, sys
calls = [pair.split("=") for pair in sys.argv[1].split(",")]
code = struct.pack("HBBI", 0x20, 0, 0, 0)
for number, error in calls:
    code += struct.pack("HBBI", 0x15, 0, 1, int(number))
    code += struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | int(error))
code += struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000)
space = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(space))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    raise OSError(ctypes.get_errno(), "seccomp")
os.execv(sys.argv[2], sys.argv[2:])
"""
EPERM, ENOSYS = 1, 38
CLONE3, UNSHARE, MOUNT, PIVOT_ROOT, CLONE = 435, 272, 165, 155, 56


def container(*refused):
    calls = ",".join("%d=%d" % pair for pair in refused)
    return [sys.executable, "-c", FILTER, calls]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its numbers are those of x86_64")
@pytest.mark.parametrize("refused", [
    [(UNSHARE, EPERM)],
    [(MOUNT, EPERM)],
    [(PIVOT_ROOT, EPERM)],
    [(CLONE3, ENOSYS), (UNSHARE, EPERM), (MOUNT, EPERM)],
    [(CLONE3, ENOSYS)],
], ids=["unshare", "mount", "pivot_root", "docker", "clone3 ENOSYS"])
@pytest.mark.parametrize("asked", ["auto", "full"])
def test_a_containers_filter_is_named_or_does_not_matter(tmp_path, asked, refused):
    """Either the wall is whole or nothing runs."""
    result = droste(tmp_path, "exec", "--isolation", asked, "--json", "-c",
                    "import os; print(len(os.listdir('/proc/self/fd')), os.getpid())",
                    prefix=container(*refused))
    if result.returncode == 0:
        level = json.loads(result.stdout)["isolation"]
        # Without namespaces `auto` takes the wall that needs none, and says so.
        assert level == "full" or (level == "landlock" and asked == "auto")
    else:
        assert_named(result, asked)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its numbers are those of x86_64")
def test_a_filter_that_refuses_nothing_needed_lets_full_work(tmp_path):
    result = droste(tmp_path, "exec", "--isolation", "full", "-c", "print(1)",
                    prefix=container((163, EPERM)))      # acct
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
