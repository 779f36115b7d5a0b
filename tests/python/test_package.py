"""The wheel: it has all that it needs, and works without this checkout."""
import os
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, as pip's build backend makes it, unpacked."""
    if not os.path.exists(os.path.join(BUILD, "build.ninja")) or os.environ.get("PYTHON", "/usr/bin/python3") != sys.executable:
        pytest.skip("the library is not built here by this Python's make")
    place = tmp_path_factory.mktemp("wheel")
    code = "import package; print(package.build_wheel(%r))" % str(place)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(place / done.stdout.split()[-1]) as wheel:
        wheel.extractall(place / "site")
    return place / "site"


def run(installed, code):
    return subprocess.run([sys.executable, "-I", "-c", "import sys; sys.path.insert(0, %r)\n%s" % (str(installed), code)],
                          capture_output=True, text=True, timeout=60, cwd="/")


def test_it_works_by_itself(installed):
    """With its own library, the libraries beside it, and the packages below its own."""
    done = run(installed, "import droste, droste.compat\nfrom droste import _library\n"
                          "with droste.Interpreter() as i: print(_library.path, i.execute('1 + 1').echo)\n"
                          "print(sum('/droste/lib/' in line and 'libuv' in line for line in open('/proc/self/maps')) > 0)")
    assert done.stdout == "%s/droste/lib/libdroste.so.0 2\nTrue\n" % installed, done.stderr


def test_it_is_typed_and_documented(installed):
    """py.typed is there; every public class and function of the package has a docstring."""
    assert (installed / "droste" / "py.typed").exists()
    done = run(installed, "import droste, inspect\n"
                          "print([n for n in droste.__all__ if callable(getattr(droste, n)) and not getattr(droste, n).__doc__])\n"
                          "print([k + '.' + n for k in ('Interpreter', 'RLM', 'Result', 'Completion') for n, f in vars(getattr(droste, k)).items()\n"
                          "       if not n.startswith('_') and inspect.isfunction(f) and not f.__doc__])")
    assert done.stdout.splitlines()[0] == "[]", done.stdout + done.stderr
    assert done.stdout.splitlines()[1] == "[]", done.stdout


def test_a_missing_library_says_what_to_do(installed):
    done = run(installed, "import os; os.environ['DROSTE_LIBRARY'] = '/nowhere.so'\nimport droste")
    assert "pip install ." in done.stderr and "/nowhere.so" in done.stderr
