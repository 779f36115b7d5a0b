"""The Debian packages in a bare root: they install, upgrade, work and are purged.

`make check-packages` builds them first; elsewhere these tests are skipped by name.
"""
import glob
import os
import re
import shutil
import subprocess

import pytest
from installed import ROOT, run

DIST = os.path.join(ROOT, "dist")
NAMES = ["droste", "libdroste0", "libdroste-dev", "python3-droste", "droste-doc"]

pytestmark = [
    pytest.mark.skipif(not os.environ.get("DROSTE_PACKAGES"),
                       reason="make check-packages runs these"),
    pytest.mark.skipif(os.geteuid() != 0, reason="making a bare root needs root"),
]


def packages():
    return [path for name in NAMES for path in glob.glob(os.path.join(DIST, name + "_[0-9]*.deb"))]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A minimal Debian with what the packages depend on, and no compiler."""
    top = str(tmp_path_factory.mktemp("debian") / "root")
    depends = set(re.findall(r"[a-z0-9][a-z0-9.+-]+", " ".join(
        re.sub(r"\([^)]*\)|:any", "", run("dpkg-deb", "--field", path, "Depends"))
        for path in packages())))
    run(os.path.join(ROOT, "scripts", "debian-root"), top,
        ",".join(sorted(depends - set(NAMES) | {"python3"})),
        timeout=900)
    os.makedirs(os.path.join(top, "packages"))
    run("mount", "--bind", "/proc", os.path.join(top, "proc"))
    yield top
    run("umount", os.path.join(top, "proc"))
    shutil.rmtree(top)


def inside(top, *command, status=0):
    return run("chroot", top, *command, status=status, timeout=300,
               env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                    "DEBIAN_FRONTEND": "noninteractive"})


def older(path, place):
    """The same package with a lower version."""
    work = os.path.join(place, os.path.basename(path)[:-4])
    run("dpkg-deb", "-R", path, work)
    control = os.path.join(work, "DEBIAN", "control")
    with open(control) as file:
        text = file.read()
    version = re.search(r"^Version: (.*)$", text, re.M).group(1)
    with open(control, "w") as file:
        file.write(text.replace("Version: " + version, "Version: %s~1" % version)
                   .replace("= %s)" % version, "= %s~1)" % version))
    run("dpkg-deb", "--root-owner-group", "-b", work, os.path.join(place, os.path.basename(path)))
    return version


def files_of_droste(top):
    found = run("find", os.path.join(top, "usr"), os.path.join(top, "etc"), "-name", "*droste*",
                "-not", "-path",
                "*/var/lib/dpkg/*")
    return found.split()


def install(top, paths):
    for path in paths:
        shutil.copy(path, os.path.join(top, "packages"))
    inside(top, "dpkg", "-i", *("/packages/" + os.path.basename(path) for path in paths))


def versions(top):
    log = inside(top, "dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n")
    return {name: (version, status)
            for name, version, status in re.findall(r"^(\S*droste\S*) (\S*) (\S+)$", log, re.M)}


def test_the_packages_install_upgrade_and_purge(root, tmp_path):
    """From a lower version to this one; both work after it, and a purge leaves no file."""
    assert len(packages()) == len(NAMES), "make deb builds them"
    old = [older(path, str(tmp_path)) for path in packages()]
    version = old[0]
    install(root, [str(tmp_path / os.path.basename(path)) for path in packages()])
    assert versions(root) == {name: (version + "~1", "installed") for name in NAMES}
    install(root, packages())
    assert versions(root) == {name: (version, "installed") for name in NAMES}
    assert inside(root, "droste", "--version") == "droste %s\n" % version
    assert inside(root, "droste", "exec", "--isolation", "process", "-c", "print(6 * 7)") == "42\n"
    assert inside(root, "python3", "-c",
                  "import droste, importlib.metadata as m; print(m.version('droste'))") \
        == version + "\n"
    assert files_of_droste(root)
    inside(root, "dpkg", "--purge", *NAMES)
    assert versions(root) == {} and files_of_droste(root) == []


def test_lintian_has_nothing_to_say():
    """About the packages as they are built."""
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    (changes,) = glob.glob(os.path.join(DIST, "droste_*.changes"))
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", changes],
                          capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0 and done.stdout == "", done.stdout


OWN_TESTS = """
set -e
cp -r /tree /root/tree
exec autopkgtest --no-built-binaries --output-dir /root/out /debs/*.deb /root/tree/ -- null
"""


def test_the_packages_pass_their_own_tests(tmp_path):
    """debian/tests, as autopkgtest runs them, on a copy of this machine that is thrown away."""
    if not shutil.which("autopkgtest"):
        pytest.skip("autopkgtest is not installed")
    debs, source = tmp_path / "debs", tmp_path / "tree"
    for place in (debs, source):
        place.mkdir()
    for path in packages():
        shutil.copy(path, debs)
    for name in ("debian", "docs", "examples"):
        shutil.copytree(os.path.join(ROOT, name), source / name)
    log = run(os.path.join(ROOT, "scripts", "in-root"), "--bind", debs, "/debs", "--bind", source,
              "/tree", "/", "bash", "-c", OWN_TESTS, timeout=900)
    assert re.findall(r"^(\w+) +(PASS|FAIL|SKIP)", log, re.M) == [
        ("command", "PASS"), ("python", "PASS"), ("embed", "PASS")], log[-3000:]
