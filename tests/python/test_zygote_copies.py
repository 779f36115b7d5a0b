"""A zygote that has too much to do is copied, and the copies start sandboxes, too."""
import asyncio
import contextlib
import glob
import os
import signal

import pytest

import droste
from droste import Interpreter

pytestmark = pytest.mark.skipif(os.sysconf("SC_NPROCESSORS_ONLN") < 2, reason="one processor")
CROWD = 48


def children(pid):
    """Pids by name of the children of a process; without those that end meanwhile."""
    found = {}
    for task in glob.glob("/proc/%d/task/*/children" % pid):
        with contextlib.suppress(OSError), open(task) as file:
            for child in file.read().split():
                with contextlib.suppress(OSError), open("/proc/%s/comm" % child) as name:
                    found.setdefault(name.read().strip(), []).append(int(child))
    return found


def copies():
    """Of the zygotes of this process, by pid: the zygotes among their children."""
    return {zygote: children(zygote).get("zygote copy", [])
            for zygote in children(os.getpid()).get("python3", [])}


async def opened(level):
    interp = Interpreter(isolation=level, pool=0)
    await interp.execute("x = 1")
    return interp


async def open_until_copied(level):
    """Sessions, of which some have been started by a copy; the test's own limit ends a wait."""
    while True:
        sessions = await asyncio.gather(*(opened(level) for _ in range(CROWD)))
        for copy in [copy for found in copies().values() for copy in found]:
            if "keeper" in children(copy):
                return sessions, copy
        for interp in sessions:
            await interp.ashutdown()


async def answers(interp):
    try:
        return (await interp.execute("SUBMIT(x=x)")).x == 1
    except (droste.Error, AttributeError):
        return False


@pytest.mark.parametrize("level", ["full", "landlock"])
def test_the_sessions_of_a_copy_end_with_it_and_no_others(level):
    """All work; when the copy is killed, those of the first zygote go on, and others start."""
    async def main():
        sessions, copy = await open_until_copied(level)
        assert all(await asyncio.gather(*map(answers, sessions)))
        started = len(children(copy)["keeper"])
        os.kill(copy, signal.SIGKILL)
        later = await opened(level)
        assert await answers(later)
        while True:     # the kernel ends their processes one after the other
            alive = await asyncio.gather(*map(answers, sessions))
            if alive.count(False) >= started:
                break
        assert alive.count(False) == started and alive.count(True) > 0
        for interp in [later, *sessions]:
            await interp.ashutdown()
    try:
        with Interpreter(isolation=level):
            pass
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (level, e))
    asyncio.run(main())
