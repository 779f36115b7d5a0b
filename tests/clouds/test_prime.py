"""The environment prime against its fake, which the vendor's own SDK drives through the same life
in the same run."""
import pytest

import connect_fake
import connect_shared
from connect_shared import *        # noqa: F401, F403: the tests that are the same for both
from connect_shared import box_of, droste

fake = connect_shared.fake_of("prime")


def test_the_fake_is_driven_by_the_vendors_own_sdk(fake):
    """The whole life-cycle, with errors and losses, by the SDK from PyPI."""
    assert connect_fake.run_sdk("prime", fake) == "all\n"
    assert not fake.running()


def test_the_sandbox_is_what_was_asked_for(fake, opened):
    """Each setting reaches what it names; the network is blocked unless it is asked for, and limits
    in time are always set."""
    interp = opened()
    _, box = box_of(fake)
    asked = box["asked"]
    assert asked["vm"] is True and asked["network_allowlist"] == [] and asked[
        "docker_image"] == "python:3.12-slim"
    assert (asked["timeout_minutes"], asked["idle_timeout_minutes"]) == (60, 15)
    interp.shutdown()
    interp = opened(image="other:1", memory="3G", cpus=2, disk_size="20G", label=["who=me"],
                    network_allow=["example.org", "10.0.0.0/8"],
                    idle_timeout=120, region="eu", gpus="H100_80GB:2")
    _, box = box_of(fake)
    asked = box["asked"]
    assert asked["docker_image"] == "other:1" and (asked["memory_gb"], asked["cpu_cores"],
                                                   asked["disk_size_gb"]) == (3, 2, 20)
    assert "who=me" in asked["labels"] and asked["network_allowlist"] == ["example.org",
                                                                          "10.0.0.0/8"]
    assert asked["idle_timeout_minutes"] == 2 and asked["region"] == "eu" and (
        asked["gpu_type"], asked["gpu_count"]) == ("H100_80GB", 2)
    interp.shutdown()
    opened(network="open")
    assert "network_allowlist" not in box_of(fake)[1]["asked"]


def test_a_token_that_ends_is_renewed(fake, opened):
    """All tokens of the gateway are taken back, and the stream is cut: another one is asked for,
    and nothing is lost."""
    interp = opened()
    assert interp.execute("x = 1").ok
    fake.order(expire=True)
    assert interp.execute("print(x)").stdout == "1\n"
    fake.order(expire=True, cut=True)
    assert interp.execute("print(x)").stdout == "1\n"


def test_containers_are_refused_by_name(fake):
    fake.order(container=True)
    with pytest.raises(droste.Error, match="container"):
        droste.Interpreter(env="prime").execute("1")


def test_a_sandbox_that_comes_to_nothing_says_why(fake):
    fake.order(fail=["IMAGE_PULL_FAILED", "no such image: other:1"])
    with pytest.raises(droste.Error, match="IMAGE_PULL_FAILED: no such image"):
        droste.Interpreter(env="prime").execute("1")


def test_it_waits_until_the_sandbox_runs(fake, opened):
    fake.order(slow=4)
    try:
        assert opened().execute("print(1)").stdout == "1\n"
    finally:
        fake.order(slow=2)
