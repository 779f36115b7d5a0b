"""Frames, tables and models of the real packages pass through a sandbox in both directions."""
import os
import subprocess

import pytest

import droste

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.abspath(os.path.join(os.environ.get("BUILD", "build"), "rich", "bin", "python"))
CASES = ("pandas", "series", "polars", "polars series", "arrow", "chunked", "pydantic")


@pytest.fixture(scope="module")
def python():
    if not os.path.exists(PYTHON):
        pytest.skip("there is no build/rich (scripts/setup rich)")
    if subprocess.run([PYTHON, "-c", "import pandas, polars, pyarrow, pydantic"],
                      stderr=subprocess.PIPE).returncode:
        pytest.skip("build/rich lacks pandas, polars, pyarrow or pydantic")
    return PYTHON


@pytest.mark.parametrize("size", [0, 1, 10 ** 7])
@pytest.mark.parametrize("case", CASES)
def test_a_value_of_a_package_passes_both_ways(python, case, size):
    """Empty, with one row, and with ten million: equal, and of the same type there and here."""
    if case == "pydantic" and size > 1:
        size = 1000
    done = subprocess.run([python, os.path.join(HERE, "value_packages.py"), case, str(size)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("preload", [None, ["numpy", "pandas"]], ids=["imported", "preloaded"])
def test_pandas_with_pyarrow_starts_no_thread(python, preload):
    """A zygote, and a session that is forked, must have one."""
    with droste.Interpreter(python=python, preload=preload) as interp:
        made = interp.execute("import pandas, pyarrow; f = pandas.DataFrame({'a': [1]})")
        made.raise_for_status()
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(a=int(f.a.sum()))").a == 1
