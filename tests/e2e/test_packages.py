"""Packages of the interpreter in sandboxes: Debian's and a virtual environment's, preloaded and
not."""
import importlib.util
import subprocess

import pytest

from harness import PYTHON, answered, refused, repl

LEVELS = ["full", "light", "landlock", "process"]
needs_numpy = pytest.mark.skipif(not importlib.util.find_spec("numpy"),
                                 reason="python3-numpy is not installed")
needs_pandas = pytest.mark.skipif(not importlib.util.find_spec("pandas"),
                                  reason="python3-pandas is not installed")

MODULES = {
    "drawn": "import random, secrets\nvalue = secrets.token_hex(16)\nown = random.Random(1)\n",
    "needs_another": "import no_such_module_of_drostes\n",
    "says_much": "raise ValueError('much\\n\\nand then\\nwhy it failed')\n",
    "leaves": "raise SystemExit(0)\n",
    "dies": "import os\nos._exit(3)\n",
    "has_thread":
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "had_thread": "import threading\nt = threading.Thread(target=print)\nt.start()\n",
}


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A virtual environment over Debian's packages, with modules of its own."""
    place = tmp_path_factory.mktemp("venv")
    for parent in (place, *place.parents):
        if parent.name.startswith("pytest-"):
            parent.chmod(0o755)         # the guest of root is another user
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", place],
                   check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    for name, text in MODULES.items():
        (site / (name + ".py")).write_text(text)
    return place / "bin" / "python3"


def test_interpreter_that_the_build_did_not_know_reads_the_source(droste, tmp_path):
    """The guest is compiled at build for the versions that were there; one whose magic number is
    another gets the same guest from its source. (Twin: all other tests, with the version of the
    build.)"""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    (site,) = (tmp_path / "other").glob("lib/python3*/site-packages")
    (site / "other.pth").write_text(
        "import _frozen_importlib_external as m; m.MAGIC_NUMBER = b'none'\n")
    code = ("import _frozen_importlib_external as m\n"
            "SUBMIT(magic=m.MAGIC_NUMBER.decode(), six=len(chunk_by_size('abcdef', 1)))")
    result = droste.cell(code, "--python", tmp_path / "other" / "bin" / "python3", "--isolation",
                         "process")
    assert result["submit"] == {"magic": "none", "six": 6}, result


NUMPY = """import numpy as np
values = np.arange(6).reshape(2, 3)
SUBMIT(sum=values.sum(), product=(values @ values.T).tolist(), inverse=np.linalg.inv(np.eye(2)).trace())
"""


@needs_numpy
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("flags", [[], ["--preload", "numpy"]], ids=["imported", "preloaded"])
def test_numpy_of_debian_works(droste, level, flags):
    """Its compiled parts find their libraries, in each sandbox; submitted values are plain ones."""
    result = droste.cell(NUMPY, "--python", PYTHON, "--isolation", level, *flags)
    assert result["submit"] == {"sum": 15, "product": [[5, 14], [14, 50]], "inverse": 2.0}, result


PANDAS = """import io, sys
before = "pandas" in sys.modules
import pandas as pd
table = pd.read_csv(io.StringIO("name,n\\na,1\\nb,2\\na,3\\n"))
SUBMIT(before=before, sums=table.groupby("name").n.sum().to_dict())
"""


@needs_pandas
@pytest.mark.parametrize("flags, before", [([], False), (["--preload", "numpy,pandas"], True)])
def test_pandas_of_a_venv_works(droste, venv, flags, before):
    """It is there before the import, where it was preloaded; several names stand in one value."""
    assert droste.cell(PANDAS, "--python", venv,
                       *flags)["submit"] == {"before": before, "sums": {"a": 4, "b": 2}}


@needs_numpy
def test_what_is_preloaded_works_under_rules(droste):
    result = droste.cell(NUMPY, "--python", PYTHON, "--rules", "yes", "--preload", "numpy")
    assert result["submit"]["sum"] == 15
    assert droste.cell(NUMPY, "--python", PYTHON, "--rules",
                       "yes")["error"]["type"] == "ImportError"


@needs_numpy
def test_clones_draw_other_numbers_of_numpy_and_random(ask, venv):
    """Sandboxes of one zygote, as what a preloaded module drew when it was imported shows, which is
    the same in all of them."""
    child = repl("import drawn, numpy, random\n"
                 "SUBMIT([drawn.value, drawn.own.random(), float(numpy.random.rand()), "
                 "random.random()])")
    code = (
        "seen = list(zip(*rlm_query_batched(['q'] * 4)))\n"
        "SUBMIT([len(set(values)) for values in seen])")
    answered(ask([repl(code), {"content": child, "depth": 1, "repeat": True}], "--python", venv,
                 "--preload", "numpy,drawn"), [1, 1, 4, 4])


@pytest.mark.parametrize("module, words", [
    ("no_such_module_of_drostes", ["ModuleNotFoundError", "no_such_module"]),
    ("needs_another", ["ModuleNotFoundError", "no_such_module"]),
    ("says_much", ["ValueError: why it failed"]), ("leaves", ["SystemExit"])])
def test_module_that_cannot_be_imported_is_named(droste, venv, module, words):
    """With the interpreter, why, and what to do; the ones before it were fine."""
    result = droste("exec", "--python", venv, "--preload", "drawn," + module, "-c", "print(1)")
    refused(result, 4, "preload '%s'" % module, "cannot import it", str(venv)[:40], "--python PATH",
            *words)
    assert droste("exec", "--python", venv, "--preload", "drawn", "-c", "print(1)").out == "1\n"


def test_module_that_ends_the_interpreter_is_an_error(droste, venv):
    """Nobody can say which one it was."""
    refused(droste("exec", "--python", venv, "--preload", "drawn,dies", "-c", "print(1)"), 4,
            "ended while it imported what preload names")


def test_module_that_starts_threads_is_refused(droste, venv):
    """By name, with what to do: that works. One whose threads have ended is fine."""
    refused(droste("exec", "--python", venv, "--preload", "drawn,has_thread", "-c", "print(1)"), 4,
            "preload 'has_thread'", "starts 1 thread", "import it in the code")
    code = "import has_thread, threading; SUBMIT(threading.active_count())"
    assert droste.cell(code, "--python", venv, "--setup-code",
                       "import has_thread")["submit"] == {"output": 2}
    assert droste.cell("import had_thread; SUBMIT(had_thread.t.is_alive())", "--python", venv,
                       "--preload", "had_thread")["submit"] == {"output": False}


@pytest.mark.parametrize("names", [",", "json,", "json,,csv"])
def test_list_with_an_empty_name_is_refused(droste, names):
    result = droste("exec", "--preload", names, "-c", "print(1)")
    refused(result, 2, names, "preload")
    assert droste("exec", "--preload", "json,csv", "-c", "print(1)").out == "1\n"
