"""The fake Modal is what Modal's own SDK takes it for: the whole life of a sandbox, without a line
of ours."""
import json
import os
import subprocess

import pytest

import modal_fake

pytestmark = pytest.mark.skipif(modal_fake.missing() is not None, reason=str(modal_fake.missing()))


@pytest.fixture(scope="module")
def fake():
    one = modal_fake.Fake()
    yield one
    one.close()


@pytest.fixture(scope="module")
def seen(fake):
    done = subprocess.run([modal_fake.PYTHON, os.path.join(
        os.path.dirname(__file__), "sdk_modal.py")], text=True, capture_output=True, timeout=480,
                          env={**os.environ, **fake.environment,
                               **({"ISOLATED": "1"} if fake.isolated else {})})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_executed_has_streams_and_a_status(seen):
    """2 MB go in and come back byte by byte; statuses and signals are told."""
    assert seen["echoed"] and seen["status"] == 3
    assert seen["stderr"] == "to stderr\n" and seen["signal"] == 137


def test_a_sandbox_is_found_again(seen):
    """By its id, by its app and its tags, and not when it has ended."""
    assert seen["tags"] == {"of": "a test"} and seen["again"] == "again" and seen["poll"] is None
    assert seen["listed"] == [seen["id"]] and seen["left"] == []


def test_one_that_was_terminated_says_so(seen):
    assert seen["after"] is not None and seen["returncode"] == 137


def test_both_kinds_of_sandboxes_work(seen):
    """One with a GPU is of the first kind, which has other requests."""
    assert seen["first kind"] == "one"


def test_failures_have_the_names_that_the_sdk_gives_them(seen):
    """A time that is over, a build that fails, a sandbox that is not there, a token that is
    wrong."""
    assert (seen["timeout"], seen["build"], seen["missing"], seen["wrong token"]) == (
        "SandboxTimeoutError", "ImageBuildError", "NotFoundError", "AuthError")


def test_volumes_and_the_network_are_what_was_asked_for(seen, fake):
    """/data is the volume as it was when the sandbox was made: what `sync` has committed before is
    there, what it has not is not, and an earlier sandbox sees it after a reload. Where the network
    is blocked there is only the loopback."""
    if not fake.isolated:
        pytest.skip("only root can give the fake's sandboxes mounts and a network of their own")
    assert seen["kept"] == seen["reloaded"] == "kept" and seen["network"] == 1
    assert seen["not committed"] == seen["made before"] == 1


def test_nothing_is_left(fake):
    """With the SDK's program its sandboxes have ended."""
    assert [s for s in fake.live() if s["tags"]] == []
