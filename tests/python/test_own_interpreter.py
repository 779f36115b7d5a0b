"""The interpreter of a program's sandboxes: its own, unless a setting names another."""
import os
import subprocess
import sys

import pytest

from droste import _engine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = ("import droste\nwith droste.Interpreter(%s) as interp:\n"
           " print(interp.execute('import sys; SUBMIT(at=sys.prefix)').at)")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment; the tests run in another."""
    place = tmp_path_factory.mktemp("own") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


def run(environment, settings="", **variables):
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), **variables}
    env = {name: value for name, value in env.items() if value is not None}
    done = subprocess.run([environment / "bin" / "python3", "-c", PROGRAM % settings], env=env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_guest_is_the_programs_interpreter(environment):
    """Also where another virtual environment is active."""
    assert run(environment, DROSTE_PYTHON=None) == str(environment)
    assert run(environment, DROSTE_PYTHON=None, VIRTUAL_ENV="/usr") == str(environment)


def test_a_named_interpreter_is_taken(environment):
    """By the keyword, and by the variable."""
    assert run(environment, "python=%r" % sys.executable, DROSTE_PYTHON=None) == sys.prefix
    assert run(environment, DROSTE_PYTHON=sys.executable) == sys.prefix


def test_a_host_that_embeds_python_is_no_interpreter(monkeypatch):
    assert _engine.own_python() == sys.executable
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    assert _engine.own_python() is None


def test_other_environments_have_their_own_interpreters():
    """A path of this machine means nothing in a container."""
    engine = _engine.Engine(((), ()))
    try:
        assert ("python", sys.executable) in engine.settings([])
        assert engine.settings([("env", "docker")]) == [("env", "docker")]
    finally:
        engine.free()
