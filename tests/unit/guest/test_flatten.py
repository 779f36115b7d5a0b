"""scripts/flatten-guest joins a package into one module that means the same, or refuses."""
import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "flatten-guest"


def flatten(tmp_path, shared=(), **modules):
    """(status, error text, what the joined module defines); `shared` are modules of droste."""
    package, out = tmp_path / "package", tmp_path / "out.py"
    (tmp_path / "shared" / "droste").mkdir(parents=True)
    package.mkdir()
    paths = []
    for place, texts in ((package, modules), (tmp_path / "shared" / "droste", dict(shared))):
        for name, text in texts.items():
            paths.append(str(place / (name + ".py")))
            (place / (name + ".py")).write_text(text)
    done = subprocess.run([sys.executable, str(SCRIPT), str(out), str(package),
                           str(tmp_path / "shared"), *paths],
                          stderr=subprocess.PIPE, text=True, timeout=60)
    names = {}
    if done.returncode == 0:
        exec(compile(out.read_text(), str(out), "exec"), names)
    return done.returncode, done.stderr, names


def test_a_module_of_the_hosts_package_is_joined_by_its_whole_name(tmp_path):
    """The codec of values lies in the package droste, and the guest has it, too."""
    status, error, names = flatten(
        tmp_path, shared={"codec": "from .marks import MARK\n\nCODEC = MARK + 1\n",
                          "marks": "MARK = 1\n"},
        cell="from droste.codec import CODEC\n\nCELL = CODEC + 1\n")
    assert status == 0 and (names["MARK"], names["CODEC"], names["CELL"]) == (1, 2, 3), error


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    """A module stands behind those that it imports, wherever the build lists it."""
    status, _, names = flatten(tmp_path,
                               last='"""Doc."""\nimport os\n\nfrom .first import ONE\n\n'
                                    'TWO = ONE + 1\nHERE = os.sep\n',
                               first="import os\n\nONE = 1\n")
    assert status == 0 and (names["ONE"], names["TWO"], names["HERE"]) == (1, 2, "/")


@pytest.mark.parametrize("modules, why", [
    ({"a": "from .b import y\nx = 1\n", "b": "from .a import x\ny = 2\n"}, "import each other"),
    ({"a": "x = 1\n", "b": "x = 2\n"}, "x is defined in"),
    ({"a": "x = 1\n", "b": "from .a import z\n"}, "does not define z"),
    ({"a": "from .missing import z\n"}, "no module missing"),
    ({"a": "from typing import Any\nx = Any\n"}, "Any is for annotations only"),
    ({"a": "import os as system\n"}, "cannot be joined"),
    ({"a": "from os import sep\n"}, "can be joined"),
], ids=["cycle", "twice", "undefined", "missing", "typing", "renamed", "library"])
def test_what_would_change_its_meaning_is_refused(tmp_path, modules, why):
    """What joining would change is an error of the build, with the reason."""
    status, error, _ = flatten(tmp_path, **modules)
    assert status == 1 and why in error


def test_annotations_are_removed(tmp_path):
    """Annotations may use names that only a type checker imports; nothing of them is left."""
    status, error, names = flatten(tmp_path, first=(
        "from __future__ import annotations\n\nfrom typing import TYPE_CHECKING, Any\n\n"
        "if TYPE_CHECKING:\n    from .missing import Thing\n\n"
        "COUNT: int = 2\n\n\n"
        "def double(thing: Thing, *more: Any, times: dict[str, Any] = {'é': 2},\n"
        "           **rest: Any) -> tuple[\n        int, ...]:\n"
        "    result: Any = thing * times['é']\n    return result\n"))
    assert status == 0, error
    assert names["double"](21) == 42 and names["COUNT"] == 2
    assert names["double"].__annotations__ == {} and "__annotations__" not in names
    assert "typing" not in names and "Any" not in names


LAZY_TEXT = (SCRIPT.parent.parent / "guest" / "python" / "core" / "lazy.py").read_text()


def test_an_expensive_module_is_imported_when_it_is_first_used(tmp_path):
    status, error, names = flatten(tmp_path, lazy=LAZY_TEXT, first=(
        "import ast\nimport os\n\n\ndef read(text):\n    return ast.literal_eval(text)\n"))
    assert status == 0, error
    assert names["os"] is os and type(names["ast"]).__name__ == "LazyModule"
    assert names["read"]("[1]") == [1] and names["ast"] is ast


def test_all_modules_can_be_imported_before_they_are_used(tmp_path):
    status, error, names = flatten(tmp_path, lazy=LAZY_TEXT, first="import ast\nimport json\n")
    assert status == 0, error
    names["load_lazy_modules"]()
    assert (names["ast"], names["json"]) == (ast, json)
