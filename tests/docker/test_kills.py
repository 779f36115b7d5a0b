"""kill -9 of the host, of the daemon and of the container at random instants, from before the first
request to after the last: every result says what it is, and after the next start nothing runs that
should not. DROSTE_TEST_KILLS says how many of each; a few by default."""
import json
import os
import random
import subprocess
import time

import pytest

import droste_cli
from own_daemon import IMAGE, Program, wait_until

COUNT = int(os.environ.get("DROSTE_TEST_KILLS", "2"))
# seconds of a session here, about: a kill may come before it has begun, or when all is over
WHOLE = 0.9
STATUSES = {"ok", "lost", "killed", "error", "timeout"}
CODE = "import time\nfor i in range(20): print(i, flush=True); time.sleep(0.02)\nprint('all')"


def begin(program):
    return subprocess.Popen([droste_cli.DROSTE, "exec", "--json", "--env", "docker", "--image",
                             IMAGE, "-c", CODE],
                            env=program.environment(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def running(daemon):
    return [c["Id"] for c in daemon.containers() if c["State"]["Running"]]


def judge(process, seed):
    """The result is one of a cell, whose status says what is known, or one line that says why there
    is none."""
    out, err = process.communicate(timeout=120)
    if out:
        cell = json.loads(out)
        assert cell["status"] in STATUSES, (seed, cell)
        assert cell["status"] != "ok" or cell["stdout"].endswith("all\n"), (seed, cell)
        assert cell["status"] != "lost" or cell[
            "killed"] or "outcome is unknown" in out or "daemon" in out or "container" in out, (
            seed, out)
    else:
        assert process.returncode == 4 and err.startswith("droste: "), (seed, process.returncode,
                                                                        err)


def the_next_start(program):
    result = program.cell("print('next')")
    assert result.returncode == 0 and json.loads(result.stdout)["stdout"] == "next\n", result.stderr


@pytest.mark.parametrize("seed", range(COUNT))
def test_kills_of_the_host(tmp_path, daemon, seed):
    program = Program(tmp_path, daemon)
    process = begin(program)
    time.sleep(random.Random(seed).uniform(0, WHOLE))
    process.kill()
    process.communicate()

    def is_gone():
        """A busy daemon may make the container of a dead host's request after the next start has
        looked: the one after finds it."""
        the_next_start(program)
        return wait_until(lambda: not daemon.containers(), 30)

    assert any(is_gone() for _ in range(4)), (seed, daemon.containers())


@pytest.mark.parametrize("seed", range(COUNT))
def test_kills_of_the_container(tmp_path, daemon, seed):
    program = Program(tmp_path, daemon)
    process = begin(program)
    end = time.monotonic() + random.Random(seed).uniform(0, WHOLE)
    while process.poll() is None:
        if time.monotonic() > end:
            for container in running(daemon):
                daemon.docker("kill", container, check=False)
            break
        time.sleep(0.01)
    judge(process, seed)
    the_next_start(program)
    assert wait_until(lambda: not daemon.containers()), (seed, daemon.containers())


@pytest.mark.parametrize("seed", range(COUNT))
def test_kills_of_the_daemon(tmp_path, fragile, seed):
    """What the daemon has not finished of a removal, it finishes at its next start, or the next
    host does."""
    program = Program(tmp_path, fragile)
    process = begin(program)
    time.sleep(random.Random(seed).uniform(0, WHOLE))
    fragile.kill()
    judge(process, seed)
    fragile.start()
    the_next_start(program)
    assert wait_until(lambda: not running(fragile)), (seed, fragile.containers())
