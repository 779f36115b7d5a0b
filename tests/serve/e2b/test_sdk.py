"""E2B's SDKs, as their users install them, against the server: a row per feature of docs/e2b.md.

The environments are those of `scripts/setup e2b`: the newest SDK, and the oldest that reads both
E2B_API_URL and E2B_SANDBOX_URL. All rows of one run in one process, and are reported one by one.
"""
import json
import os
import re
import shutil
import subprocess

import pytest

from server_process import ROOT, WAIT

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))


def rows(script):
    """The names of a script's rows, in order."""
    with open(os.path.join(HERE, script)) as f:
        return re.findall(r"(?:@row\n(?:@needs_node\n)?(?:async )?def|^  async) (\w+)", f.read(),
                          re.MULTILINE)


SDKS = [*((place, script) for place in ("e2b-newest", "e2b-oldest")
          for script in ("sdk_features.py", "sdk_features_async.py")),
        ("e2b-javascript", "sdk_features.mjs")]


def command(place, script):
    """How a script is run; skips the test where its package or interpreter is missing."""
    where = os.path.join(BUILD, place)
    if script.endswith(".py"):
        needed = os.path.join(where, "bin", "python")
        words = [needed]
    else:
        words, needed = ["node"], os.path.join(where, "node_modules", "@e2b")
    if not os.path.exists(needed) or not shutil.which(words[0]):
        pytest.skip(f"there is no {place}: scripts/setup e2b makes it")
    return [*words, os.path.join(HERE, script)]


@pytest.fixture(scope="module")
def answers(server):
    """answers(place, script): what each row of a script has said."""
    results = {}

    def run(place, script):
        words = command(place, script)
        if (place, script) not in results:
            done = subprocess.run([*words, server.address, os.path.abspath(
                os.path.join(BUILD, place))], capture_output=True, text=True, timeout=4 * WAIT,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
            assert done.returncode == 0, done.stderr
            results[place, script] = json.loads(done.stdout)
        return results[place, script]
    return run


@pytest.mark.parametrize("place,script,name", [
    (place, script, name) for place, script in SDKS for name in rows(script)])
def test_sdk(answers, place, script, name):
    """One row of one SDK."""
    trace = answers(place, script)[name]
    assert trace is None, trace
