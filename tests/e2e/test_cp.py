"""droste cp: files between this machine, volumes and recorded runs."""
import os

import pytest

from harness import repl

MAKE = """
import os
os.makedirs("out/deep")
for name, text in (("out/a.txt", "one"), ("out/deep/b.txt", "two"), ("output", "three")):
    open(name, "w").write(text)
SUBMIT(answer=1)
"""


def write(droste, name, text):
    path = os.path.join(droste.home, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def files(droste, name):
    """The files below a directory and their contents."""
    top = os.path.join(droste.home, name)
    return {os.path.relpath(os.path.join(at, one), top): open(os.path.join(at, one)).read()
            for at, _, names in os.walk(top) for one in names}


@pytest.fixture
def volume(droste):
    """A volume, and files to copy."""
    assert droste("volume", "create", "data").status == 0
    write(droste, "a.csv", "1,2")
    write(droste, "in/b.csv", "3")
    write(droste, "in/deep/c.csv", "4")
    return droste


@pytest.fixture
def run(droste, replay):
    """A run that saved three files; its id."""
    r = droste("run", "?", "--json", "--model", replay({"content": repl(MAKE)}), "--artifacts",
               "out*", "--artifacts", "out/**", "--artifacts-dir", "art")
    assert r.json["answer"] == 1 and len(r.json["artifacts"]) == 3, r
    return r.json["run"]


def test_files_go_into_a_volume_and_out_of_it(volume):
    """Under their own names at a slash, under others, and directories whole."""
    for source, target in (("a.csv", "data:"), ("a.csv", "data:up/"), ("a.csv", "data:up/x.csv"),
                           ("in", "data:all")):
        r = volume("cp", source, target)
        assert r.status == 0 and r.out.startswith("copied "), r
    os.makedirs(os.path.join(volume.home, "here"))
    assert volume("cp", "data:up", "here").status == 0
    assert volume("cp", "--quiet", "data:all/deep/c.csv", "c").out == ""
    assert files(volume, "here") == {"up/a.csv": "1,2", "up/x.csv": "1,2"}
    assert files(volume, "c") == {} and open(os.path.join(volume.home, "c")).read() == "4"
    assert volume("cp", "data:", "whole").status == 0
    assert files(volume, "whole") == {"a.csv": "1,2", "up/a.csv": "1,2", "up/x.csv": "1,2",
                                      "all/b.csv": "3", "all/deep/c.csv": "4"}


def test_a_volume_takes_standard_input_and_gives_standard_output(volume):
    assert volume("cp", "-", "data:x", input="piped").status == 0
    assert volume("cp", "data:x", "-").out == "piped"


def test_a_colon_in_a_local_name(volume):
    """Behind a slash, it belongs to the name."""
    write(volume, "a:b", "colon")
    assert volume("cp", "./a:b", "data:y").status == 0
    assert volume("cp", "data:y", "./c:d").status == 0
    assert open(os.path.join(volume.home, "c:d")).read() == "colon"


def test_what_a_run_has_saved_is_copied(droste, run):
    """A file, a directory, or all; into an existing directory under its own name."""
    os.makedirs(os.path.join(droste.home, "here"))
    for source, target in (("out/a.txt", "x"), ("out/a.txt", "here"), ("/out/", "here"),
                           ("out", "new"), ("", "all")):
        r = droste("cp", "run/%s:%s" % (run, source), target)
        assert r.status == 0 and r.out.startswith("copied "), r
    assert open(os.path.join(droste.home, "x")).read() == "one"
    assert files(droste, "here") == {"a.txt": "one", "out/a.txt": "one", "out/deep/b.txt": "two"}
    assert files(droste, "new") == {"a.txt": "one", "deep/b.txt": "two"}
    assert files(droste, "all") == {"out/a.txt": "one", "out/deep/b.txt": "two", "output": "three"}
    assert droste("cp", "run/%s:output" % run[:-1], "-").out == "three"


def test_what_cannot_be_copied_says_why(volume, run):
    """And writes nothing."""
    for source, target, message in (
            ("a.csv", "b.csv", "one of the two is a path here"),
            ("data:a", "data:b", "one of the two is a path here"),
            ("a.csv", "run/%s:out" % run, "do not change"),
            ("data:nothing", "n", "nothing"), ("a.csv", "none:x", "none"),
            ("missing.csv", "data:", "missing.csv"), ("data:up", "n/", "there is no directory"),
            ("run/%s:nothing" % run, "n", "has saved no nothing"),
            ("run/%s:out/a.tx" % run, "n", "has saved no out/a.tx"),
            ("run/%s:out" % run, "-", "standard output"), ("run/nosuch:out", "n", "nosuch")):
        r = volume("cp", source, target)
        assert r.status == 2 and message in r.err, (source, target, r)
    assert volume("cp", "a.csv").status == 2
    assert not any(os.path.exists(os.path.join(volume.home, name)) for name in ("n", "b.csv", "-"))
