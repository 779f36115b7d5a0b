"""Forks of a session: several `Interpreter`s that share one engine."""
from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from . import _engine, _library, _models, _reentry
from ._library import quick
from ._operations import Operations


class Family:
    """What a session and its forks share until the last of them is closed."""

    def __init__(self) -> None:
        self.members = 1
        self.numbers: List[int] = []    # of models that are functions (_models.py)

    def leave(self, numbers: List[int]) -> bool:
        """Removes a member, and takes its models; gives them back to the last one."""
        self.members -= 1
        self.numbers += numbers
        numbers.clear()
        if self.members:
            return False
        numbers += self.numbers
        return True


def leave(engine: Any, family: Optional[Family], numbers: List[int]) -> None:
    """Leaves a family; the last member releases the models and returns the engine."""
    last = family is None or family.leave(numbers)
    while last and numbers:
        _models.models.remove(numbers.pop())
    if not last and engine.loop is None:
        engine.do_if_free(engine.drain)     # what finalizers have left
        return
    if engine.loop is not None:
        engine.kick()
        _engine.give_from_loop(engine)
    else:
        _engine.give(engine)


class Inherited:
    """A tool that the fork's code knows, and that has to be bound to the fork."""

    def release(self) -> None:
        pass


def adopt(parent: Any, session: Optional[int]) -> Any:
    """Returns the Interpreter of a fork that the library has made."""
    fork = object.__new__(type(parent))
    fork.__dict__.update(parent.__dict__)
    Operations.__init__(fork)
    fork._closing = fork._finishing = None
    fork._lock = _reentry.Turn(fork)
    fork.tools = dict(parent.tools)
    fork._offered = {name: (None, Inherited()) for name in parent._offered}  # type: ignore
    fork._numbers = []
    fork._sent = dict(parent._sent)
    if parent._family is None:
        parent._family = Family()
    fork._family = parent._family
    fork._family.members += 1
    fork._engine, fork._session = parent._engine, session
    fork._id = next(_engine.ids)
    _engine.holders.add(fork)
    if fork._engine.loop is not None:
        fork._engine.users += 1
        fork._tell_ends()
    fork._listen()
    return fork


async def checkpoint_of(operation: Any, made: Any) -> int:
    """Waits for a checkpoint on a loop; returns its id."""
    await operation.wait()
    return made.value


def raise_first(failed: List[BaseException]) -> None:
    if failed:
        raise failed[0]


async def finish(operation: Any, forks: List[Any], count: Optional[int],
                 failed: List[BaseException]) -> Any:
    """Waits for forks on a loop; closes them if one fails."""
    try:
        await operation.wait()
        raise_first(failed)
    except BaseException:
        for fork in forks:
            fork._leave()
        raise
    return forks if count is not None else forks[0]


class Checkpoint(NamedTuple):
    """A kept state of a session, in the list that `checkpoints()` returns."""
    id: int
    #: the checkpoint that the session had made or gone back to before; 0: none
    parent: int
    #: the number, as in tracebacks, of the last cell before it; 0: none
    cell: int
    #: bytes; memory that is shared counts in proportion. 0: its process has not yet begun
    memory: int
    #: whether the session made it, or went back to it, last
    current: bool


def read_checkpoints(session: Optional[int]) -> List[Checkpoint]:
    count = quick.droste_session_checkpoints(session, None, 0)
    room = (_library.Checkpoint * count)()
    quick.droste_session_checkpoints(session, room, count)
    return [Checkpoint(c.id, c.parent, c.cell, c.memory, bool(c.current)) for c in room]
