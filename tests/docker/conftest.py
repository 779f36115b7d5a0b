"""The fixtures of the tests of --env docker, which are skipped by name where there can be no daemon
(tests/docker_daemon.py)."""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "e2e"),
                os.path.join(ROOT, "python")]
os.environ["DROSTE_DATABASE"] = "none"

import docker_daemon    # noqa: E402
from own_daemon import Program, a_daemon, wait_until    # noqa: E402


def pytest_collection_modifyitems(items):
    """Pytest passes all items of the session, also those of other directories."""
    why = docker_daemon.missing()
    for item in items:
        if why and str(item.path).startswith(HERE + os.sep):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def daemon():
    with a_daemon() as own:
        yield own


@pytest.fixture(scope="session")
def fragile():
    """A daemon for tests that kill it; each gets it running."""
    with a_daemon() as own:
        yield own


@pytest.fixture
def program(tmp_path, daemon):
    yield Program(tmp_path, daemon)
    assert wait_until(lambda: not daemon.containers()), "a container is left"
