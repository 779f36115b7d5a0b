"""rules.py without a sandbox: each cell runs in a Python of its own, over which rules are laid as
the guest does it. Whatever is refused has a twin beside it that must be allowed."""
import ast
import json
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "guest" / "python" / "rules.py"

# argv: the source, {allow, read}, the setup code, the cell. Says what became of the cell.
DRIVER = """
import builtins, json, sys, types
source, told, setup, cell = sys.argv[1:]
rules = types.ModuleType("rules")
exec(compile(open(source).read(), source, "exec"), rules.__dict__)
main = {"__name__": "__main__", "__builtins__": rules.lay(json.loads(told))}
out = {"error": None}
try:
    exec(compile(setup, "<setup>", "exec"), main)
    exec(compile(cell, "<cell 1>", "exec"), main)
except BaseException as e:
    out = {"error": type(e).__name__, "message": str(e), "name": getattr(e, "name", None),
           "errno": getattr(e, "errno", None)}
print(json.dumps(out))
"""


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "home"
    place.mkdir()
    return place


@pytest.fixture
def run(home):
    """run(cell, allow=[…], read=[…], setup=…): what became of it, as a dict."""
    def start(cell, allow=(), read=(), setup=""):
        policy = json.dumps({"allow": list(map(str, allow)), "read": list(map(str, read))})
        r = subprocess.run([sys.executable, "-I", "-B", "-c", DRIVER, str(SOURCE), policy, setup,
                            cell],
                           cwd=str(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)
    return start


def fine(result):
    assert result["error"] is None, result


def refused(result, kind="PermissionError"):
    assert result["error"] == kind, result
    assert "rules of this session" in result["message"], result


def test_the_source_is_python_3_8():
    ast.parse(SOURCE.read_text(), feature_version=(3, 8))


# ---- imports ----

@pytest.mark.parametrize("statement", [
    "import os as x", "from os import path", "import os.path", "import subprocess",
    "import ctypes", "import socket", "import _socket", "import builtins", "import importlib",
    "from urllib import request", "import urllib.request", "from urllib import parse, request",
    "__import__('os')", "import no_such_module"])
def test_only_allowed_modules_are_imported(run, statement):
    result = run(statement)
    refused(result, "ImportError")
    assert result["name"] in statement and "--allow-import " + result["name"] in result["message"]


@pytest.mark.parametrize("statement", [
    "import math, re, random, datetime, collections.abc, statistics", "import sys, io, pathlib",
    "from urllib import parse", "from urllib.parse import quote", "import urllib.parse",
    "from concurrent.futures import ThreadPoolExecutor", "import asyncio, threading, sqlite3",
    "from __future__ import annotations", "import __main__", "__import__('math')",
    "def f():\n    import json\nf()", "class A:\n    from math import pi"])
def test_what_computes_is_allowed(run, statement):
    fine(run(statement))


def test_a_name_that_is_allowed_lets_in_what_is_below_it_and_nothing_beside_it(run):
    fine(run("import os, os.path\nfrom os import getcwd", allow=["os"]))
    fine(run("import urllib.request", allow=["urllib.request"]))
    refused(run("import subprocess", allow=["os"]), "ImportError")
    refused(run("import osx", allow=["os"]), "ImportError")


def test_allowed_modules_import_what_they_need(run):
    """tempfile imports os, and strptime imports on behalf of C code."""
    fine(run("import tempfile, datetime\ntempfile.mkdtemp()\n"
             "datetime.datetime.strptime('2024', '%Y')"))


def test_what_lies_below_an_allowed_directory_is_imported_with_all_that_it_imports(run, tmp_path):
    modules = tmp_path / "modules"
    (modules / "package").mkdir(parents=True)
    (modules / "package" / "__init__.py").write_text("import os\nfrom . import part\n")
    (modules / "package" / "part.py").write_text("here = True\n")
    (modules / "single.py").write_text("import subprocess\nvalue = 5\n")
    cell = (
        "import package, single\nfrom package import part\nassert part.here and single.value == 5")
    fine(run(cell, allow=[modules]))
    refused(run(cell), "ImportError")
    refused(run("import os", allow=[modules]), "ImportError")


def test_a_module_of_an_allowed_directory_does_not_let_in_its_namesake(run, tmp_path):
    """What counts is what the import would give: `subprocess` is the standard library's."""
    (tmp_path / "subprocess.py").write_text("")
    (tmp_path / "own.py").write_text("")
    fine(run("import own", allow=[tmp_path]))
    refused(run("import subprocess", allow=[tmp_path]), "ImportError")


def test_relative_imports_lead_nowhere(run):
    assert run("from . import json")["error"] == "ImportError"
    fine(run("from json import loads"))


def test_a_missing_module_that_is_allowed_is_missing_as_everywhere(run):
    assert run("import no_such", allow=["no_such"])["error"] == "ModuleNotFoundError"


# ---- built-ins ----

@pytest.mark.parametrize("call", ["eval('1')", "exec('1')", "compile('1', 'x', 'eval')", "input()",
                                  "breakpoint()", "__builtins__.eval('1')"])
def test_dangerous_builtins_are_switched_off_by_a_typed_error(run, call):
    refused(run(call), "RuleError")
    fine(run("try:\n    %s\nexcept RuleError:\n    pass" % call))


@pytest.mark.parametrize("code", [
    "globals(), locals(), vars(), dir()", "getattr('', 'join'), type(''), isinstance(1, int)",
    "import ast\nassert ast.literal_eval('[1]') == [1]",
    "import dataclasses, collections\ncollections.namedtuple('P', 'x')\n"
    "@dataclasses.dataclass\nclass A:\n    x: int\nA(1)"])
def test_other_builtins_and_the_libraries_own_are_there(run, code):
    fine(run(code))


# ---- files ----

def test_files_of_the_sessions_directory_are_read_and_written(run, home):
    (home / "old").write_text("1")
    fine(run("import pathlib, shutil, gzip, sqlite3\n"
             "assert open('old').read() == '1'\n"
             "open('new', 'w').write('2')\n"
             "place = pathlib.Path('d')\nplace.mkdir()\n(place / 'x').write_text('3')\n"
             "(place / 'x').chmod(0o600)\n(place / 'x').rename(place / 'y')\n"
             "(place / 'link').symlink_to('y')\n(place / 'link').unlink()\nshutil.rmtree(place)\n"
             "gzip.open('z', 'wb').close()\nsqlite3.connect('db').execute('create table t (a)')\n"
             "sqlite3.connect(':memory:').close()"))
    assert (home / "new").read_text() == "2" and not (home / "d").exists()


READING = ["open({!r})", "open({!r}, 'rb')", "import pathlib\npathlib.Path({!r}).read_text()",
           "import io\nio.open({!r})", "import gzip\ngzip.open({!r}, 'rb').read(0)",
           "import random\nrandom._os.open({!r}, 0)",
           "import sqlite3\nsqlite3.connect('file:{}?mode=ro'.format({!r}), uri=True)"]


@pytest.mark.parametrize("code", READING)
def test_what_lies_outside_is_not_read_unless_it_is_shown(run, tmp_path, code):
    outside = tmp_path / "outside"
    outside.write_text("x")
    code = code.replace("{!r}", repr(str(outside)))
    refused(run(code))
    fine(run(code, read=[outside]))
    fine(run(code, read=[tmp_path]))


WRITING = ["open({!r}, 'w')", "open({!r}, 'r+')", "open({!r}, 'a')", "open({!r}, 'x')",
           "import pathlib\npathlib.Path({!r}).write_text('')",
           "import pathlib\npathlib.Path({!r}).unlink()",
           "import pathlib\npathlib.Path({!r}).mkdir()",
           "import pathlib\npathlib.Path({!r}).touch()",
           "import pathlib\npathlib.Path({!r}).chmod(0)",
           "import pathlib\npathlib.Path({!r}).symlink_to('x')",
           "import pathlib\npathlib.Path('mine').rename({!r})",
           "import shutil\nshutil.rmtree({!r})", "import sqlite3\nsqlite3.connect({!r})",
           "import random\nrandom._os.open({!r}, random._os.O_WRONLY | random._os.O_CREAT)"]


@pytest.mark.parametrize("code", WRITING)
def test_what_is_shown_is_not_written_to(run, tmp_path, home, code):
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "x").write_text("kept")
    (home / "mine").write_text("")
    refused(run(code.replace("{!r}", repr(str(shown / "x"))), read=[shown]))
    assert (shown / "x").read_text() == "kept"


def test_a_link_or_a_way_up_leads_outside_and_a_detour_stays_inside(run, tmp_path, home):
    (tmp_path / "outside").write_text("x")
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "x").write_text("x")
    refused(run("open('link')"))
    refused(run("open('../outside')"))
    fine(run("open('../home/./x')"))


def test_a_directory_is_not_its_namesakes_with_a_longer_name(run, tmp_path, home):
    (tmp_path / "home2").mkdir()
    refused(run("open(%r, 'w')" % str(tmp_path / "home2" / "x")))
    fine(run("open(%r, 'w')" % str(home / "x")))


def test_descriptors_are_not_opened_and_libraries_open_their_own(run):
    refused(run("open(0)"))
    fine(run("import tempfile\nwith tempfile.TemporaryFile('w') as f:\n    f.write('x')"))


def test_what_is_no_path_fails_as_everywhere(run):
    assert run("open(object())")["error"] == "TypeError"
    assert run("open('a\\0b')")["error"] == "ValueError"


def test_a_refused_file_is_an_oserror_that_says_which(run):
    assert run("open('/etc/shadow')")["errno"] == 13
    fine(run(
        "try:\n    open('/etc/shadow')\nexcept OSError as e:\n    assert e.filename == "
        "'/etc/shadow'"))


# ---- the setup code ----

SETUP = ("import os, subprocess\n"
         "def helper():\n    import socket\n    open('/etc/passwd').close()\n    return eval('1 + "
         "one')\n"
         "one = eval('1')\nexec('two = 2')\n")


def test_setup_code_and_its_functions_are_free_of_the_rules(run):
    fine(run("assert helper() == 2 and two == 2", setup=SETUP))
    refused(run("eval('1')", setup=SETUP), "RuleError")
    refused(run("open('/etc/passwd')", setup=SETUP))


def test_what_the_setup_code_imported_may_be_imported_again(run):
    fine(run("import os, subprocess", setup=SETUP))
    refused(run("import socket", setup=SETUP), "ImportError")
