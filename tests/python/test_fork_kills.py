"""Processes that are killed while sessions are forked: nothing is left behind.

DROSTE_FORK_KILLS sets the number of kills; DROSTE_FORK_SEED the first seed.
"""
import os
import subprocess
import sys
import tempfile

import pytest

import droste

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
KILLS = int(os.environ.get("DROSTE_FORK_KILLS", "12"))
SEED = int(os.environ.get("DROSTE_FORK_SEED", "1"))
LEVELS = ["full", "landlock", "process", "light"]


@pytest.fixture
def place():
    """A directory for temporary files that any user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o1777)
        yield directory


@pytest.mark.parametrize("seed", range(SEED, SEED + KILLS))
def test_a_kill_leaves_nothing_behind(seed, place):
    """The host, a zygote, a keeper, a session or a fork is killed at a random moment: no process
    and no temporary file stays. If it was not the host, a session of another zygote goes on."""
    level = LEVELS[seed % len(LEVELS)]
    try:
        with droste.Interpreter(isolation=level):
            pass
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (level, e))
    r = subprocess.run([sys.executable, os.path.join(HERE, "kill_forks.py"), str(seed), level],
                       env={**os.environ, "TMPDIR": place,
                            "PYTHONPATH": os.path.join(ROOT, "python")},
                       capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    assert os.listdir(place) == []
