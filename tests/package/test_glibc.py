"""No function is newer than the glibc of the wheels, without building a wheel.

A build against a newer glibc has newer versions of symbols also for old functions: pthread_create
moved from libpthread to libc and is pthread_create@GLIBC_2.34. Such a function has its old version
there, too, for old programs; one that is new has only the new version.
"""
import glob
import os
import re
import subprocess
import sys

import pytest
from installed import BUILD, ROOT

sys.path.insert(0, os.path.join(ROOT, "packaging", "wheel"))
import libraries    # noqa: E402

BUILT = ["droste", "libdroste.so.0", "src/zygote.so", "src/keeper"]
#: without an old version as functions: older headers made calls of __xstat and __xmknod of them
INLINE = re.compile(r"(f|l|)stat(64)?|fstatat(64)?|mknod(at)?")
SYMBOL = re.compile(r" (UND|\w+) (\w+)@@?GLIBC_([0-9.]+)")


def number(version):
    return tuple(map(int, version.split(".")))


def symbols(path, undefined):
    """(name, version) of a file's symbols with a version of glibc."""
    listed = subprocess.run(["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True,
                            text=True).stdout
    return {(name, number(version)) for section, name, version in SYMBOL.findall(listed)
            if (section == "UND") == undefined}


@pytest.fixture(scope="module")
def old():
    """The names that glibc had then."""
    maps = open("/proc/self/maps").read()
    (libc,) = {line.split()[-1] for line in maps.splitlines() if "/libc.so.6" in line}
    found = set()
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"):
        for path in glob.glob(os.path.join(os.path.dirname(libc), name)):
            found |= symbols(path, False)
    return {name for name, version in found if version <= number(libraries.GLIBC)}


def newer(path, old):
    """The functions of a program that the wheel's glibc lacks."""
    return sorted(name for name, version in symbols(path, True)
                  if version > number(libraries.GLIBC) and name not in old
                  and not INLINE.fullmatch(name))


@pytest.mark.parametrize("name", BUILT)
def test_the_wheels_glibc_has_its_functions(name, old):
    assert newer(os.path.join(BUILD, name), old) == []


PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static void *nothing(void *arg) { return arg; }
int main(int argc, char **argv)
{
    pthread_t thread;
    struct stat about;
    return pthread_create(&thread, NULL, nothing, NULL) + stat(argv[0], &about) + %s;
}
"""


@pytest.mark.parametrize("call, found", [
    ("(int)_Fork()", ["_Fork"]), ("(closefrom(3), 0)", ["closefrom"]), ("(int)fork()", [])])
def test_a_newer_function_is_found(tmp_path, old, call, found):
    """_Fork and closefrom are of 2.34; fork, and pthread_create with its newer version, are old."""
    (tmp_path / "p.c").write_text(PROGRAM % call)
    subprocess.run(["cc", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    assert newer(str(tmp_path / "p"), old) == found
