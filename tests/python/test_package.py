"""The wheel that pip builds from a checkout, and droste-compat: contents, metadata, commands."""
import email
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))


def call_backend(code, **environment):
    """Runs a line with python/package.py; returns what it printed."""
    done = subprocess.run([sys.executable, "-c", "import package; " + code], capture_output=True,
                          text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"),
                               "PYTHONDONTWRITEBYTECODE": "1", **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def unpack(wheel, site):
    """Unpacks as an installer does, with the permissions that the wheel gives."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            os.chmod(archive.extract(info, site), info.external_attr >> 16)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of the ordinary build, droste-compat, and the directory where they are."""
    if (not os.path.exists(os.path.join(BUILD, "build.ninja"))
            or os.environ.get("PYTHON", "/usr/bin/python3") != sys.executable):
        pytest.skip("the library is not built here by this Python's make")
    place = tmp_path_factory.mktemp("wheels")
    return (place / call_backend("print(package.build_wheel(%r))" % str(place)),
            place / call_backend("print(package.write_compat(%r))" % str(place)))


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    unpack(wheels[0], site)
    return site


@pytest.fixture
def with_compat(wheels, tmp_path):
    """A virtual environment with both wheels, where .pth files are read."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    site = next((environment / "lib").glob("python*")) / "site-packages"
    for wheel in wheels:
        unpack(wheel, site)
    return environment / "bin" / "python3", site


def run(installed, code):
    return subprocess.run([sys.executable, "-I", "-c",
                           "import sys; sys.path.insert(0, %r)\n%s" % (str(installed), code)],
                          capture_output=True, text=True, timeout=60, cwd="/")


def run_python(python, *arguments, **environment):
    return subprocess.run([python, *arguments], capture_output=True, text=True, timeout=60, cwd="/",
                          env={**os.environ, **environment})


def read_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name)), archive.namelist()


def test_it_works_by_itself(installed):
    """With its own library and command, and the packages below its own."""
    done = run(installed, "import droste, droste.compat\nfrom droste import _library\n"
                          "with droste.Interpreter() as i:\n"
                          " print(_library.path, i.execute('1 + 1').echo)\n")
    assert done.stdout == "%s/droste/lib/libdroste.so.0 2\n" % installed, done.stderr


def test_the_command_runs_this_interpreter(installed):
    """`python -m droste` finds the program of the package, and its guest is that Python."""
    done = run(installed, "import runpy\nsys.argv = ['droste', 'exec', '-c', "
                          "'import sys; print(sys.executable)']\nrunpy.run_module('droste')")
    assert done.stdout.strip() == sys.executable, done.stderr


def test_a_missing_program_says_what_to_do(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "site")
    os.unlink(tmp_path / "site" / "droste" / "bin" / "droste")
    done = run(tmp_path / "site", "import _droste_command as c; c.main()")
    assert done.returncode == 1 and "pip install --force-reinstall droste" in done.stderr


def test_metadata_is_complete(wheels):
    """README as the description, the licence's file, the command, typing: as indexes want them."""
    about, names = read_metadata(wheels[0])
    assert about["Name"] == "droste" and about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.9" and "# Droste" in about.get_payload()
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert "modal>=1.6; extra == 'modal'" in about.get_all("Requires-Dist")
    info = "droste-%s.dist-info/" % about["Version"]
    assert {info + "licenses/" + name for name in about.get_all("License-File")} <= set(names)
    assert {"droste/py.typed", "droste/lib/libdroste.so.0", "droste/bin/droste",
            "_droste_command.py"} <= set(names)
    with zipfile.ZipFile(wheels[0]) as archive:
        assert b"droste = _droste_command:main" in archive.read(info + "entry_points.txt")


def test_equal_contents_are_equal_files(wheels, tmp_path):
    """Two wheels of one tree are the same bytes, and so are two source distributions."""
    again = tmp_path / call_backend("print(package.build_wheel(%r))" % str(tmp_path))
    assert again.read_bytes() == wheels[0].read_bytes()
    call = "print(package.build_sdist(%r))"
    (tmp_path / "other").mkdir()
    first = tmp_path / call_backend(call % str(tmp_path))
    other = tmp_path / "other" / call_backend(call % str(tmp_path / "other"))
    assert first.read_bytes() == other.read_bytes()


def test_it_is_typed_and_documented(installed):
    """py.typed is there; every public class and function of the package has a docstring."""
    assert (installed / "droste" / "py.typed").exists()
    done = run(installed, "import droste, inspect\n"
                          "print([n for n in droste.__all__ if callable(getattr(droste, n))"
                          " and not getattr(droste, n).__doc__])\n"
                          "print([k + '.' + n for k in ('Interpreter', 'RLM', 'Result', "
                          "'Completion')\n"
                          "       for n, f in vars(getattr(droste, k)).items()\n"
                          "       if not n.startswith('_') and inspect.isfunction(f) and not "
                          "f.__doc__])")
    assert done.stdout.splitlines()[0] == "[]", done.stdout + done.stderr
    assert done.stdout.splitlines()[1] == "[]", done.stdout


def test_a_missing_library_says_what_to_do(installed):
    done = run(installed, "import os; os.environ['DROSTE_LIBRARY'] = '/nowhere.so'\nimport droste")
    assert "pip install ." in done.stderr and "/nowhere.so" in done.stderr


# -- droste-compat

PAGE = ("from fleet_rlm.runtime.config import configure_planner_from_env\nimport rlm\n"
        "from rlm.core.types import RLMChatCompletion\nimport fleet_rlm\n"
        "print(rlm.RLM.__module__, fleet_rlm.ModalInterpreter.__module__)")


def test_other_runtimes_names_are_there_without_a_call(with_compat):
    done = run_python(with_compat[0], "-c", PAGE)
    assert done.stdout == "droste.rlm droste.compat.providers\n", done.stderr


def test_compat_has_every_package_that_activate_lends():
    from droste.compat import modules
    code = "import _droste_compat; print(sorted(_droste_compat.NAMES))"
    done = run_python(sys.executable, "-c", code,
                      PYTHONPATH=os.path.join(ROOT, "python", "compat"))
    assert done.stdout == "%s\n" % sorted({name.partition(".")[0] for name in modules.MODULES})


def add_real(site, distribution, module):
    """Installs a package of another project: a module with its name, and an entry point."""
    (site / module).mkdir()
    (site / module / "__init__.py").write_text("real = True\ndef main(): print('the real one')\n")
    info = site / ("%s-9.9.dist-info" % distribution.replace("-", "_"))
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: %s\nVersion: 9.9\n" % distribution)
    (info / "entry_points.txt").write_text("[console_scripts]\nfleet-rlm = %s:main\n" % module)
    return info


def test_a_real_package_is_not_replaced(with_compat):
    """The real `rlm` is the one that is imported; `fleet_rlm` beside it is Droste's."""
    python, site = with_compat
    add_real(site, "rlms", "rlm")
    done = run_python(python, "-c", "import rlm, fleet_rlm; print(rlm.real, "
                                    "fleet_rlm.ModalInterpreter.__module__)")
    assert done.stdout == "True droste.compat.providers\n", done.stderr


def test_an_installed_distribution_is_named_where_its_module_is_missing(with_compat):
    python, site = with_compat
    add_real(site, "rlms", "rlm")
    shutil.rmtree(site / "rlm")
    done = run_python(python, "-c", "import rlm")
    assert "ImportError" in done.stderr and "rlms 9.9" in done.stderr


COMMAND = "import sys, _droste_compat; sys.argv[0] = 'fleet-rlm'; _droste_compat.fleet_rlm()"


def test_the_command_of_fleet_rlm_is_drostes(with_compat):
    done = run_python(with_compat[0], "-c", COMMAND, "run-basic", "--help")
    assert done.returncode == 0 and "fleet-rlm's run-basic" in done.stdout, done.stderr
    done = run_python(with_compat[0], "-c", COMMAND, "serve-api")
    assert done.returncode == 1 and "run-basic and daytona-smoke" in done.stderr


def test_the_real_command_still_runs_where_it_is_installed(with_compat):
    python, site = with_compat
    add_real(site, "fleet-rlm", "fleet_rlm")
    done = run_python(python, "-c", COMMAND, "run-basic")
    assert done.stdout == "the real one\n" and "fleet-rlm 9.9 is installed" in done.stderr
