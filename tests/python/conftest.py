"""What the tests of the Python package share: the package of this checkout, and no record of
runs."""
import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
sys.path += [os.path.join(ROOT, "tests", name) for name in ("e2e", "session")]
os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_ENVIRONMENT", "DROSTE_CONFIG"):
    os.environ.pop(name, None)


from model_servers import serve, servers  # noqa: E402, F401: fixtures


@pytest.fixture(autouse=True, scope="session")
def config_of_nobody(tmp_path_factory):
    """The user's own configuration has no part in the tests."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["DROSTE_HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.fixture(params=["full", "light", "landlock", "process"])
def level(request):
    """Each isolation level that is available here."""
    import droste
    try:
        with droste.Interpreter(isolation=request.param):
            return request.param
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (request.param, e))
