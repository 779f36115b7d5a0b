"""What the tree has for users, what meson installs, and what the packages and the wheel contain are
the same files, so that a new header or module cannot be forgotten in one of the lists."""
import collections
import fnmatch
import glob
import json
import os
import shutil
import sys
import zipfile

import pytest
from installed import BUILD, ROOT, run, tree

sys.path.insert(0, os.path.join(ROOT, "python"))
import package      # noqa: E402

#: below python/, and in no distribution of droste: the build backend, and droste-compat
OTHERS = ("package.py", "compat/*")
PYTHON = "usr/lib/python3/dist-packages"
TRIPLET = "x86_64-linux-gnu"
#: the packages that debian/*.install fills; droste-doc has files of the tree
FILLED = ("droste", "libdroste0", "libdroste-dev", "python3-droste")


def headers():
    """The public headers, by their path below include/."""
    return [name for name in tree(os.path.join(ROOT, "include")) if name.endswith(".h")]


def python_files():
    """What a user's interpreter needs, by its path below python/."""
    top = os.path.join(ROOT, "python")
    found = [os.path.relpath(os.path.join(place, name), top)
             for place, _, names in os.walk(top) for name in names]
    return sorted(name for name in found if "__pycache__" not in name
                  and not any(fnmatch.fnmatch(name, other) for other in OTHERS))


def meson_installs():
    """Files that meson installs, where they are in a Debian package's tree (no leading slash)."""
    options = {option["name"]: option["value"] for option in
               json.loads(run("meson", "introspect", BUILD, "--buildoptions"))}
    prefix = options["prefix"] + "/"
    names = json.loads(run("meson", "introspect", BUILD, "--installed")).values()
    assert all(name.startswith(prefix) for name in names)
    below = [os.path.relpath(name, prefix) for name in names]
    libraries = options["libdir"] + "/"
    return ["usr/lib/%s/%s" % (TRIPLET, name[len(libraries):]) if name.startswith(libraries)
            else "usr/" + name for name in below]


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """debian/tmp of a copy of the tree, as the build leaves it for dh_install; files that meson
    installs are empty there."""
    if not os.path.exists("/usr/share/dpkg/pkg-info.mk"):
        pytest.skip("dpkg-dev is not installed")
    top = tmp_path_factory.mktemp("staged")
    for name in ("debian", "python"):
        shutil.copytree(os.path.join(ROOT, name), top / name)
    for name in meson_installs():
        path = top / "debian" / "tmp" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run("make", "-f", "debian/rules", "execute_after_dh_auto_install", cwd=top, env=env)
    return top / "debian"


def patterns(debian, name):
    """The patterns of a package's .install file; a line may end in a directory to install into."""
    lines = (debian / (name + ".install")).read_text().splitlines()
    return [line.split()[0] for line in lines if line.split() and not line.startswith("#")]


def divided(debian):
    """{file of debian/tmp: the packages that have it}, and the patterns that match nothing."""
    packages, unused = collections.defaultdict(list), []
    for name in FILLED:
        for pattern in patterns(debian, name):
            paths = glob.glob(str(debian / "tmp" / pattern))
            unused += [] if paths else [(name, pattern)]
            for path in paths:
                files = ([os.path.join(path, each) for each in tree(path)] if os.path.isdir(path)
                         else [path])
                for file in files:
                    packages[os.path.relpath(file, debian / "tmp")].append(name)
    return packages, unused


def test_every_public_header_is_installed():
    """meson lists the headers one by one."""
    assert headers()
    installed = [name for name in meson_installs() if name.startswith("usr/include/")]
    assert sorted(installed) == ["usr/include/" + name for name in headers()]


def test_debian_packages_divide_what_is_installed(staged):
    """Each file is in one package, and each pattern of an .install file matches something."""
    packages, unused = divided(staged)
    assert unused == []
    assert {name for name in tree(staged / "tmp") if not packages[name]} == set()
    assert {name: owners for name, owners in packages.items() if len(owners) > 1} == {}


def test_a_file_that_no_pattern_matches_is_found(staged):
    """The comparison above can fail: a program that is in no .install file is in no package."""
    other = staged / "tmp" / "usr" / "bin" / "drost"
    other.touch()
    try:
        packages, _ = divided(staged)
        assert packages["usr/bin/drost"] == [] and packages["usr/bin/droste"] == ["droste"]
    finally:
        other.unlink()


def test_debian_has_the_headers_and_modules_of_the_tree(staged):
    """Headers in libdroste-dev, modules in python3-droste."""
    packages, _ = divided(staged)
    for name in headers():
        assert packages["usr/include/" + name] == ["libdroste-dev"], name
    for name in python_files():
        assert packages["%s/%s" % (PYTHON, name)] == ["python3-droste"], name


def test_debian_lists_the_functions_of_the_library():
    """debian/libdroste0.symbols has what libdroste exports: packages that use a function depend on
    the version that it came with."""
    library = os.path.join(BUILD, package.LIBRARY)
    exported = {line.split()[-1] for line in
                run("nm", "-D", "--defined-only", library).splitlines()}
    with open(os.path.join(ROOT, "debian", "libdroste0.symbols")) as file:
        listed = {line.split("@")[0].strip() for line in file if line.startswith(" ")}
    assert exported == listed and "droste_new" in listed


def test_debian_documents_are_those_of_the_tree():
    """Every page, and every example, is in droste-doc; each line of its lists names something."""
    listed = set()
    for name in ("docs", "examples"):
        with open(os.path.join(ROOT, "debian", "droste-doc." + name)) as file:
            for pattern in file.read().split():
                paths = glob.glob(os.path.join(ROOT, pattern))
                assert paths, pattern
                listed.update(os.path.relpath(os.path.join(path, each), ROOT) for path in paths
                              for each in (tree(path) if os.path.isdir(path) else [""]))
    listed = {name.rstrip("/.") if name.endswith("/.") else name for name in listed}
    pages = {os.path.join("docs", name) for name in tree(os.path.join(ROOT, "docs"))
             if name.endswith(".md") and not name.startswith("site/")}
    assert pages - listed == set()
    assert {os.path.join("examples", name) for name in os.listdir(os.path.join(ROOT, "examples"))
            if os.path.isfile(os.path.join(ROOT, "examples", name))} - listed == set()


def test_the_wheel_has_the_modules_of_the_tree(tmp_path):
    """And the command, the library, the guest's source and the metadata, but no other file."""
    name = package.write_wheel(str(tmp_path), BUILD, package.tag_here())
    with zipfile.ZipFile(tmp_path / name) as wheel:
        members = [member for member in wheel.namelist() if ".dist-info/" not in member]
        wheel.extractall(tmp_path / "wheel")
    built = ["droste/bin/droste", "droste/lib/" + package.LIBRARY, "droste/lib/droste_guest.py"]
    assert sorted(members) == sorted(python_files() + built)


def test_the_wheels_modules_find_each_other(tmp_path):
    """Every module is imported from the wheel alone, but for those of other distributions."""
    name = package.write_wheel(str(tmp_path), BUILD, package.tag_here())
    with zipfile.ZipFile(tmp_path / name) as wheel:
        wheel.extractall(tmp_path / "wheel")
    output = run(sys.executable, "-I", "-c", IMPORT_ALL, tmp_path / "wheel", cwd=tmp_path)
    assert "droste._encoding.codec" in output.split()


IMPORT_ALL = """
import importlib.util, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import droste
for module in pkgutil.walk_packages(droste.__path__, "droste.", onerror=lambda name: None):
    if module.name == "droste.__main__":
        continue
    if module.name == "droste.jupyter" and not importlib.util.find_spec("ipykernel"):
        continue
    try:
        importlib.import_module(module.name)
        print(module.name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] == "droste":
            raise
"""


@pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, ".git")), reason="not a checkout")
def test_the_tree_has_what_git_has():
    """A module that is not added to git is in the wheel of this tree, and in no one else's."""
    listed = run("git", "-c", "safe.directory=*", "ls-files", "python", cwd=ROOT).split()
    for name in python_files():
        assert os.path.join("python", name) in listed, name


@pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, ".git")), reason="not a checkout")
def test_the_source_distribution_has_all_that_it_is_made_of(tmp_path):
    """Unpacked, it makes the same one again, hidden files included."""
    name = package.build_sdist(str(tmp_path))
    run("tar", "-xf", tmp_path / name, "-C", tmp_path)
    top = tmp_path / name[:-len(".tar.gz")]
    (tmp_path / "again").mkdir()
    run(sys.executable, "-c", "import package, sys; package.build_sdist(sys.argv[1])",
        tmp_path / "again", cwd=top / "python")
    assert (top / ".clang-format").exists()
    assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
