"""`make install` and `make uninstall`, into a directory of their own."""
import glob
import os
import shutil

import pytest
from installed import BUILD, ROOT, commands, recipe, run, tree

INSTALL = os.path.join(ROOT, "scripts", "install")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where it is installed; the directories are the default ones, so nothing is built anew."""
    top = tmp_path_factory.mktemp("install") / "root"
    run(INSTALL, BUILD, "install", "DESTDIR=%s" % top, cwd=ROOT)
    return top


def test_files_are_in_the_gnu_directories(root):
    """The library is in lib, where loaders and pkg-config look below /usr/local."""
    files = tree(root / "usr" / "local")
    for name in ("bin/droste", "include/droste.h", "lib/libdroste.so", "lib/libdroste.so.0",
                 "lib/pkgconfig/droste.pc",
                 "share/man/man1/droste.1", "share/bash-completion/completions/droste",
                 "share/zsh/site-functions/_droste", "share/fish/vendor_completions.d/droste.fish"):
        assert name in files
    assert {name.split("/")[0] for name in files} == {"bin", "include", "lib", "share"}


def test_every_command_has_a_manual_page(root):
    """Named for it; a page says its flags, and man has nothing to warn of."""
    pages = [name for name in os.listdir(root / "usr/local/share/man/man1") if name != "droste.1"]
    assert sorted(pages) == sorted("droste-%s.1" % name for name in commands())
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man or groff is not here")
    for page in pages:
        path = root / "usr/local/share/man/man1" / page
        shown = run("sh", "-c", 'man --warnings -E UTF-8 -l "$0" 2>&1', path,
                    env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "100"})
        assert shown.startswith(page[:-2].upper() + "(1)"), shown[:2000]
        assert ": warning" not in shown, shown[:2000]


def test_the_installed_command_works(root, tmp_path):
    """It needs nothing of the build directory."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert run(root / "usr/local/bin/droste", "exec", "-c", "print(6 * 7)", env=env) == "42\n"
    text = run("readelf", "-d", root / "usr/local/bin/droste", root / "usr/local/lib/libdroste.so")
    assert "RUNPATH" not in text and "RPATH" not in text


def test_the_recipe_of_the_page_builds_a_program(root, tmp_path):
    """pkg-config finds header and library through droste.pc alone."""
    shutil.copy(os.path.join(ROOT, "examples", "embed.c"), tmp_path)
    library = str(root / "usr/local/lib")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PKG_CONFIG_SYSROOT_DIR": str(root),
           "PKG_CONFIG_PATH": library + "/pkgconfig", "LD_LIBRARY_PATH": library}
    commands, printed = recipe()
    assert run("sh", "-ec", commands, cwd=tmp_path, env=env) == printed


EMBED = """
set -e
cd %s
scripts/install %s install
ldconfig
cd
cp %s/examples/embed.c .
%sdroste --version
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="ldconfig needs root")
def test_the_recipe_works_word_for_word(tmp_path):
    """After `make install && ldconfig`, below /usr/local of a copy of this machine, without a
    variable: the compiler finds the header and the loader the library."""
    if os.path.realpath(ROOT).startswith("/tmp/"):
        pytest.skip("the checkout is in /tmp, of which the copy has another")
    build = os.path.relpath(BUILD, ROOT)
    commands, printed = recipe()
    script = EMBED % (ROOT, build, ROOT, commands)
    text = run(os.path.join(ROOT, "scripts", "in-root"), "/", "bash", "-c", script)
    assert printed + "droste 0." in text, text


TARBALL = """
set -e
mkdir 'any where'
tar -xf /dist/%s -C 'any where'
cd any*/droste-*
bin/droste exec -c 'print(6 * 7)'
PYTHONPATH=python python3 -c 'import droste
with droste.Interpreter() as interp: print(interp.execute("SUBMIT(answer=6 * 7)").answer)'
"""


@pytest.mark.parametrize("user", [(), ("--user",)], ids=["root", "user"])
def test_the_tarball_runs_from_anywhere(user):
    """In a bare root that has none of its libraries, in a directory with a space: make tarball."""
    found = glob.glob(os.path.join(ROOT, "dist", "droste-*-linux-%s.tar.gz" % os.uname().machine))
    root = os.path.join(os.environ.get("XDG_CACHE_HOME") or "/var/tmp", "droste-root-trixie")
    if not found or not os.path.isdir(root) or os.geteuid() != 0:
        pytest.skip(
            "needs root, dist/ with the archive of make tarball, and a root of make check-wheel")
    text = run(os.path.join(ROOT, "scripts", "in-root"), *user, "--bind",
               os.path.join(ROOT, "dist"), "/dist", root, "bash", "-c",
               TARBALL % os.path.basename(found[0]))
    assert text == "42\n42\n"


def test_uninstall_leaves_nothing(tmp_path):
    """Even after a second installation over the first; what others put there stays."""
    top = tmp_path / "root"
    for _ in range(2):
        run(INSTALL, BUILD, "install", "DESTDIR=%s" % top, cwd=ROOT)
    other = top / "usr/local/bin/other"
    other.write_text("not of Droste")
    run(INSTALL, BUILD, "uninstall", "DESTDIR=%s" % top, cwd=ROOT)
    assert tree(top) == ["usr/local/bin/other"]
    other.unlink()
    assert [path for path in top.rglob("*")] == [top / "usr", top / "usr/local",
                                                 top / "usr/local/bin"]
    fresh = tmp_path / "fresh"
    run(INSTALL, BUILD, "install", "DESTDIR=%s" % fresh, cwd=ROOT)
    run(INSTALL, BUILD, "uninstall", "DESTDIR=%s" % fresh, cwd=ROOT)
    assert not fresh.exists()


@pytest.mark.parametrize("words", [["prefix=relative"], ["perfix=/usr"], ["sometext"]])
def test_a_directory_that_is_no_good_is_refused(words, tmp_path):
    """Before anything is changed."""
    run(INSTALL, BUILD, "install", "DESTDIR=%s" % tmp_path, *words, cwd=ROOT, status=1)
    assert tree(tmp_path) == []
