"""Forks the session: guest/zygote/fork.c copies this process between two operations."""
from __future__ import annotations

import errno
import os
import sys
import time
from typing import TYPE_CHECKING

from .failures import error_of
from .frames import FORK, plain, RESULT
from .output import flush_output
from .state import state
from droste._encoding.json_text import write_json

if TYPE_CHECKING:
    from .aliases import Blob, Head

# What zygote_fork returns: bits, and an errno above them.
IS_COPY, UNANSWERED, ERRNO = 1, 2, 256
NAMED = 5       # threads and tasks that a refusal names
LEAVING = 1     # seconds for the kernel to end a thread that was joined


class ForkRefused(RuntimeError):
    """The session cannot be forked now; the message says what has to end first."""


def some(names: list[str]) -> str:
    more = ", and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
    return ", ".join(plain(name) for name in names[:NAMED]) + more


def other_threads() -> int:
    """Returns the number of threads beside the main one."""
    try:
        return len(os.listdir("/proc/self/task")) - 1
    except OSError:         # not visible at this isolation level
        import _thread
        return _thread._count()


def thread_names() -> list[str]:
    """Returns the names of the threads beside the main one; those of C code have no name here."""
    names = []
    threading = sys.modules.get("threading")
    if threading is not None:
        names = [thread.name for thread in threading.enumerate()
                 if thread is not threading.main_thread()]
    end = time.monotonic() + LEAVING
    others = other_threads()
    while others > len(names) and time.monotonic() < end:
        time.sleep(0.001)       # join() returns a moment before the thread is gone
        others = other_threads()
    return names + ["a thread of a library"] * (others - len(names))


def task_names() -> list[str]:
    loop = state.session.event_loop
    if loop is None or loop.is_closed():
        return []
    import asyncio
    return [task.get_name() for task in asyncio.all_tasks(loop)]


def refuse_what_would_vanish() -> None:
    """A copy of a process has only the thread that made it (fork(2))."""
    names = thread_names()
    if state.link.waiters:
        raise ForkRefused("the session cannot be forked while its calls to the host are open; wait "
                          "for their results first")
    if names:
        raise ForkRefused("the session cannot be forked while threads run: %s; join them first"
                          % some(names))
    tasks = task_names()
    if tasks:
        raise ForkRefused("the session cannot be forked while asyncio tasks are pending: %s; await "
                          "them first" % some(tasks))


def why_not(number: int) -> str:
    if number == errno.EAGAIN:
        return ("forking the session: its sandbox and the forks have as many processes as they "
                "may; close some, or raise --processes")
    if number == errno.ENOMEM:
        return "forking the session: there is no memory for a copy; close forks, or raise --memory"
    return "forking the session: %s" % os.strerror(number)


def drop_event_loop() -> None:
    """The parent's event loop wakes up through a socket that the fork would share."""
    loop, state.session.event_loop = state.session.event_loop, None
    if loop is not None and not loop.is_closed():
        import asyncio
        loop.close()
        asyncio.set_event_loop(None)


def begin_fork() -> None:
    """In the fork, which closes the descriptors that its parent has received."""
    link = state.link
    for kind, _, _, status in link.inbox:
        if kind == FORK and status is not None:
            os.close(status)        # for another fork
    for fd in filter(None, link.fds):
        os.close(fd)
    link.restart()
    for seed in state.seeds:
        seed()
    drop_event_loop()


def fork_process(status: int, ident: int = 0) -> int:
    """Copies this process; returns IS_COPY in the copy, once it has something to do.

    `status` is a socket, from which zygote_fork takes the fork's descriptors. With the id of a
    request, it answers that one and any others that follow, unless it returns UNANSWERED.
    """
    link = state.link
    flush_output()
    link.flush()            # READY may wait for the first answer
    owner, link.owner = link.owner, None        # os.register_at_fork: the channel stays open
    come_before = link.inbox or link.buffer
    rc: int = state.library.zygote_fork(status, 0 if come_before else ident)
    if rc & IS_COPY:
        begin_fork()
    else:
        link.owner = owner
    return rc


def check_forked(rc: int) -> None:
    if rc >= ERRNO:
        raise ForkRefused(why_not(rc // ERRNO))


def fork_session(ident: int, status: Blob) -> None:
    """Handles FORK. Several processes return: the parent has answered, the forks have an operation.
    """
    result: Head = {"status": "ok"}
    try:
        if status is None:
            raise OSError(24, "too many open files to fork the session")
        try:
            refuse_what_would_vanish()
        except BaseException:
            os.close(status)
            raise
        rc = fork_process(status, ident)
        if not rc & UNANSWERED:
            return
        ident = state.library.zygote_fork_asked() or ident
        check_forked(rc)
    except BaseException as e:
        result = {"status": "error", "error": error_of(e)}
    state.link.send(RESULT, ident, write_json(result))
