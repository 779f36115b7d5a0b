"""What the tests of the clouds share: the package of this checkout, nothing of the user's own, and
a home of each test."""
import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "e2e"),
                os.path.dirname(os.path.abspath(__file__))]
from model_servers import serve, servers  # noqa: E402, F401: fixtures

os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_ENVIRONMENT", "DROSTE_CONFIG"):
    os.environ.pop(name, None)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A directory in which all that lasts is the test's own."""
    for name, place in (("DROSTE_HOME", "home"), ("XDG_CONFIG_HOME", "config"),
                        ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(name, str(tmp_path / place))
    return tmp_path
