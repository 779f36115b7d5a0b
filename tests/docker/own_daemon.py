"""What the tests of --env docker share: a daemon of their own, and the built program."""
import contextlib
import json
import os
import subprocess
import time

import pytest

import docker_daemon
import droste_cli

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGE = docker_daemon.IMAGE


def wait_until(condition, seconds=120):
    """True once it is; a test that waits in vain fails by what it asserts."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def a_daemon(*options):
    """A daemon of its own. The test is skipped, with the reason, where none starts or no image can
    be made."""
    own = docker_daemon.Daemon(*options)
    try:
        try:
            own.start()
        except (RuntimeError, subprocess.CalledProcessError) as e:
            pytest.skip("no Docker daemon can be had here: "
                        + str(e).strip().splitlines()[-1][:300])
        yield own
    finally:
        own.close()


def parsed(result):
    """What a command with --json that succeeded has printed."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class Program:
    """droste, with this daemon and image."""

    def __init__(self, home, daemon):
        self.home, self.daemon = home, daemon

    def environment(self, **more):
        return droste_cli.environment(self.home, **{**self.daemon.environment,
                                                    "DROSTE_DATABASE": "none", **more})

    def __call__(self, *words, env="docker", image=IMAGE, **more):
        flags = ["--env", env] + (["--image", image] if env == "docker" else [])
        return droste_cli.droste(self.home, words[0], *flags, *words[1:],
                                 **{**self.daemon.environment,
                                   "DROSTE_DATABASE": "none", **more})

    def cell(self, code, *flags, **more):
        return self("exec", "--json", *flags, "-c", code, **more)
