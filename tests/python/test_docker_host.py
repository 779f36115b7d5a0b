"""Where the Docker daemon is, and that there is none: what is true when a session opens counts."""
import asyncio

import pytest

import droste


def refused(**settings):
    with pytest.raises(droste.EnvironmentFailed) as raised:
        with droste.Interpreter(env="docker", **settings) as interp:
            interp.execute("1")
    return str(raised.value)


def test_docker_host_is_read_when_a_session_opens(monkeypatch):
    """Each session names the daemon of its own time, also where the interpreter was made before and
    an engine is there already."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/first")
    assert "/nonexistent/first" in refused()
    made_before = droste.Interpreter(env="docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/second")
    assert "/nonexistent/second" in refused()
    with pytest.raises(droste.EnvironmentFailed, match="/nonexistent/second"):
        made_before.execute("1")
    monkeypatch.setenv("DOCKER_HOST", "nonsense")
    with pytest.raises(droste.ConfigError, match="use unix:///PATH or tcp://"):
        droste.Interpreter(env="docker").start()


def test_a_missing_daemon_is_an_error_of_the_environment(monkeypatch):
    """Of nothing was lost: EnvironmentFailed with what to do, with and without asyncio, over a
    socket and over TCP, and of a run."""
    async def main():
        with pytest.raises(droste.EnvironmentFailed,
                           match="there is no Docker daemon at unix:.*systemctl start docker"):
            async with droste.Interpreter(env="docker") as interp:
                await interp.execute("1")
    for host in ("unix:///nonexistent/none", "tcp://127.0.0.1:1"):
        monkeypatch.setenv("DOCKER_HOST", host)
        assert "no Docker daemon" in refused()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/none")
    asyncio.run(main())
    done = droste.RLM(lambda messages: "```repl\nSUBMIT(1)\n```", env="docker").run("q")
    assert (done.status, done.json["error"]["type"]) == ("error", "environment")


def test_a_session_that_was_open_is_lost_where_its_sandbox_is():
    """The twin: what has begun and is gone is lost, not an error of the environment."""
    with droste.Interpreter() as interp:
        assert interp.execute("1").ok
        interp.execute("import os; os._exit(3)")
        with pytest.raises(droste.LostError):
            interp.execute("1")
