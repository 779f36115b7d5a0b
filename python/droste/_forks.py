"""Forks of a session: several `Interpreter`s that share one engine."""
from __future__ import annotations

from typing import Any, List, Optional

from . import _engine, _reentry
from ._operations import Operations

CHECKPOINTS_MAX = 1024


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


class Inherited:
    """A tool that the fork's code knows, and that has to be bound to the fork."""

    def release(self) -> None:
        pass


def adopt(parent: Any, session: Optional[int]) -> Any:
    """Returns the Interpreter of a fork that the library has made."""
    fork = type(parent).__new__(type(parent))
    fork.__dict__.update(parent.__dict__)
    Operations.__init__(fork)
    fork._closing = fork._finishing = None
    fork._lock = _reentry.Turn(fork)
    fork.tools = dict(parent.tools)
    fork._offered = {name: (None, Inherited()) for name in parent._offered}  # type: ignore
    fork._numbers = []
    fork._sent = dict(parent._sent)
    fork._checkpoints = {}
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


async def finish(operation: Any, forks: List[Any], count: Optional[int]) -> Any:
    """Waits for forks on a loop; closes them if one fails."""
    try:
        await operation.wait()
    except BaseException:
        for fork in forks:
            fork._leave()
        raise
    return forks if count is not None else forks[0]


SWAPPED = ("_session", "_id", "_offered", "_sent", "_expected")


def exchange(owner: Any, fork: Any) -> None:
    """Makes the fork's session that of `owner`, and closes the session that `owner` had."""
    with owner._lock, owner._engine.lock:
        for name in SWAPPED:
            old, new = getattr(owner, name), getattr(fork, name)
            setattr(owner, name, new)
            setattr(fork, name, old)
        owner._listen()
        fork._leave()
