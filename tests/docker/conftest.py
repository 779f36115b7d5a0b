"""What the tests of --env docker share: a daemon of their own, and the real program. They are skipped by name where
there can be no daemon (tests/docker_daemon.py)."""
import contextlib
import os
import subprocess
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "python")]
os.environ["DROSTE_DATABASE"] = "none"

import docker_daemon    # noqa: E402
import droste_cli       # noqa: E402

IMAGE = docker_daemon.IMAGE


def pytest_collection_modifyitems(items):
    why = docker_daemon.missing()
    for item in items:
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def wait_until(condition, seconds=30):
    """True once it is; a test that waits in vain fails by what it asserts."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def a_daemon(*options):
    """A daemon of its own; a machine on which none starts, or where no image can be made, skips by that name."""
    own = docker_daemon.Daemon(*options)
    try:
        try:
            own.start()
        except (RuntimeError, subprocess.CalledProcessError) as e:
            pytest.skip("no Docker daemon can be had here: " + str(e).strip().splitlines()[-1][:300])
        yield own
    finally:
        own.close()


@pytest.fixture(scope="session")
def daemon():
    with a_daemon() as own:
        yield own


@pytest.fixture(scope="session")
def fragile():
    """A daemon for tests that kill it; each gets it running."""
    with a_daemon() as own:
        yield own


class Program:
    """droste, with this daemon and image."""

    def __init__(self, home, daemon):
        self.home, self.daemon = home, daemon

    def environment(self, **more):
        return droste_cli.environment(self.home, **{**self.daemon.environment, "DROSTE_DATABASE": "none", **more})

    def __call__(self, *words, env="docker", image=IMAGE, **more):
        flags = ["--env", env] + (["--image", image] if env == "docker" else [])
        return droste_cli.droste(self.home, words[0], *flags, *words[1:], **{**self.daemon.environment,
                                                                            "DROSTE_DATABASE": "none", **more})

    def cell(self, code, *flags, **more):
        return self("exec", "--json", *flags, "-c", code, **more)


@pytest.fixture
def program(tmp_path, daemon):
    yield Program(tmp_path, daemon)
    assert wait_until(lambda: not daemon.containers()), "a container is left"
