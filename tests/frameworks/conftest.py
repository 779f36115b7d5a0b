"""The frameworks' own packages, from build/frameworks (scripts/setup frameworks); what is not there
is skipped by name."""
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_ENVIRONMENT", "DROSTE_CONFIG"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True, scope="session")
def config_of_nobody(tmp_path_factory):
    """The user's own configuration has no part in the tests."""
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "DROSTE_HOME"):
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))


@pytest.fixture
def run_example(tmp_path):
    """run_example(name, arguments…, path=): what an example of examples/frameworks prints, with
    another directory of modules."""
    def run(name, *arguments, path=""):
        script = os.path.join(ROOT, "examples", "frameworks", name)
        done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True,
                              timeout=300, cwd=tmp_path,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1",
                                   "PYTHONPATH": os.path.join(ROOT, "python") + ":" + path})
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run
