"""scripts/flatten-guest joins a package into one module that means the same, or refuses."""
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "flatten-guest"


def flatten(tmp_path, **modules):
    """(status, error text, what the joined module defines)."""
    package, out = tmp_path / "package", tmp_path / "out.py"
    package.mkdir()
    for name, text in modules.items():
        (package / (name + ".py")).write_text(text)
    paths = [str(package / (name + ".py")) for name in modules]
    done = subprocess.run([sys.executable, str(SCRIPT), str(out), str(package), *paths],
                          stderr=subprocess.PIPE, text=True, timeout=60)
    names = {}
    if done.returncode == 0:
        exec(compile(out.read_text(), str(out), "exec"), names)
    return done.returncode, done.stderr, names


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    """A module stands behind those that it imports, wherever the build lists it."""
    status, _, names = flatten(tmp_path, last='"""Doc."""\nimport os\n\nfrom .first import ONE\n\nTWO = ONE + 1\nHERE = os.sep\n',
                               first="import os\n\nONE = 1\n")
    assert status == 0 and (names["ONE"], names["TWO"], names["HERE"]) == (1, 2, "/")


@pytest.mark.parametrize("modules, why", [
    ({"a": "from .b import y\nx = 1\n", "b": "from .a import x\ny = 2\n"}, "import each other"),
    ({"a": "x = 1\n", "b": "x = 2\n"}, "x is defined in"),
    ({"a": "x = 1\n", "b": "from .a import z\n"}, "does not define z"),
    ({"a": "from .missing import z\n"}, "no module missing"),
    ({"a": "import os as system\n"}, "cannot be joined"),
    ({"a": "from os import sep\n"}, "can be joined"),
], ids=["cycle", "twice", "undefined", "missing", "renamed", "library"])
def test_what_would_change_its_meaning_is_refused(tmp_path, modules, why):
    """What joining would change is an error of the build, with the reason."""
    status, error, _ = flatten(tmp_path, **modules)
    assert status == 1 and why in error
