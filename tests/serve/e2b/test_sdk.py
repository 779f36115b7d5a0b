"""E2B's SDKs, as their users install them, against the server: a row per feature of docs/e2b.md.

The environments are those of `scripts/setup e2b`: the newest SDK, and the oldest that reads both
E2B_API_URL and E2B_SANDBOX_URL. All rows of one run in one process, and are reported one by one.
"""
import json
import os
import re
import subprocess

import pytest

from conftest import ROOT, WAIT

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))


def rows(script):
    """The names of a script's rows, in order."""
    with open(os.path.join(HERE, script)) as f:
        return re.findall(r"@row\n(?:async )?def (\w+)", f.read())


SDKS = [(place, script) for place in ("e2b-newest", "e2b-oldest")
        for script in ("sdk_features.py",)]


@pytest.fixture(scope="module")
def answers(server):
    """answers(place, script): what each row of a script has said."""
    known = {}

    def run(place, script):
        python = os.path.join(BUILD, place, "bin", "python")
        if not os.path.exists(python):
            pytest.skip(f"there is no {place}: scripts/setup e2b makes it")
        if (place, script) not in known:
            done = subprocess.run([python, os.path.join(HERE, script), server.address],
                                  capture_output=True, text=True, timeout=4 * WAIT,
                                  env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
            assert done.returncode == 0, done.stderr
            known[place, script] = json.loads(done.stdout)
        return known[place, script]
    return run


@pytest.mark.parametrize("place,script,name", [
    (place, script, name) for place, script in SDKS for name in rows(script)])
def test_sdk(answers, place, script, name):
    """One row of one SDK."""
    trace = answers(place, script)[name]
    assert trace is None, trace
