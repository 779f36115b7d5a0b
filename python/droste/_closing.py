"""Closes sessions after their queued operations.

Within asyncio, leaving `with` cannot wait: the block's cells may still be queued, and waiting would
block the loop. A task of the loop closes the session instead. asyncio.run() waits for the task,
which continues when it is cancelled. If a loop is closed without waiting, the next session or the
end of the process completes the work. A session on the same volume starts only after that.
"""
from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
from asyncio import _get_running_loop  # type: ignore
from typing import Any, Generator, List, Optional, Set, Tuple

from . import _library, _tools
from .errors import Error

Pairs = List[Tuple[str, Any]]


def volume_of(pairs: Pairs) -> Optional[str]:
    """Returns the name of the volume in these settings or the environment, or None."""
    named = [value for name, value in pairs if name == "volume-name"]
    option = _library.options.get("volume-name")
    variable = option.environment if option is not None else None
    return str(named[-1]) if named else os.environ.get(variable.decode()) if variable else None


class Closing:
    """The closing of a session, awaitable. Cancelling a task that awaits it cancels the cells."""

    def __init__(self, owner: Any):
        self.owner, self.loop = owner, owner._engine.loop
        self.id, self.volume = owner._id, volume_of(owner._pairs)
        self.over = threading.Event()
        _all.add(self)
        self.task = self.loop.create_task(self._close())
        self.task._log_destroy_pending = False      # the loop may be closed before its tasks end

    async def _close(self) -> None:
        owner = self.owner
        while not self.over.is_set() and (owner._pending() or owner._begin_finish()):
            try:
                await asyncio.wait([owner._pending()[-1].future])
            except asyncio.CancelledError:      # asyncio.run() cancels tasks, then waits for them
                pass
        if not self.over.is_set():
            finishing = owner._finishing
            owner._leave()
            if finishing is not None:
                finishing.future.result()

    def ended(self) -> None:
        _all.discard(self)
        self.over.set()

    def __await__(self) -> Generator[Any, None, None]:
        try:
            yield from self.wait().__await__()
        except asyncio.CancelledError:
            if not self.over.is_set() and _get_running_loop() is self.loop:
                self.owner.shutdown(cancel=True)
            raise

    async def wait(self) -> None:
        """Waits for the end; cancelling this does not cancel the cells."""
        if _get_running_loop() is self.loop:
            await asyncio.shield(self.task)
        elif self.loop.is_running():
            await asyncio.get_running_loop().run_in_executor(None, self.over.wait)
        else:
            self.finish()

    def finish(self) -> None:
        """Waits for the end in any thread."""
        if self.loop.is_running() and _get_running_loop() is not self.loop:
            self.over.wait()
            return
        with self.owner._lock:
            if not self.over.is_set():
                self.owner._close_here()

    def finish_quietly(self) -> None:
        """finish() on behalf of another session: failures become warnings.

        Raises Error only where waiting could never end.
        """
        if _get_running_loop() is self.loop:
            self.owner._refuse_to_hold_up()
        try:
            self.finish()
        except Error as e:
            self._warn(e)

    async def wait_quietly(self) -> None:
        try:
            await self.wait()
        except Error as e:
            self._warn(e)

    @staticmethod
    def _warn(failure: Error) -> None:
        warnings.warn("the previous session failed to close: %s" % failure, RuntimeWarning,
                      stacklevel=2)


_all: Set[Closing] = set()


def _before(pairs: Pairs) -> List[Closing]:
    """Returns the closings that a new session with these settings has to wait for.

    Excludes sessions whose own code opens the new one.
    """
    volume, callers = volume_of(pairs), _tools.calling.get()
    return [c for c in list(_all) if c.id not in callers
            and (c.loop.is_closed() or volume is not None and c.volume == volume)]


def finish_before(pairs: Pairs) -> None:
    for closing in _before(pairs) if _all else ():
        closing.finish_quietly()


async def wait_before(pairs: Pairs) -> None:
    for closing in _before(pairs) if _all else ():
        await closing.wait_quietly()


@atexit.register
def finish_all() -> None:
    """At exit: finishes closings of loops that ended without their tasks."""
    for closing in list(_all):
        if not closing.loop.is_running():
            closing.finish_quietly()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_all.clear)
