"""State shared by the guest's modules: one object, updated when a clone starts."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

if TYPE_CHECKING:
    from .link import Link
    from .session import Session


class State:
    """The channel and session of this process, and what the zygote prepared for clones."""
    link: Link = None
    session: Session = None
    library: Any = None                                 # guest/zygote/zygote.c, by ctypes
    seeds: Sequence[Callable[[], Any]] = ()             # functions that reseed random generators
    serve: Callable[..., None] = None                   # handles an operation: worker.py
    prctl: Callable[[int, int], bool] | None = None     # prctl(2) with one argument, or None
    sources: dict[str, Any] = {}                        # texts of cells, until linecache is needed
    among_files = False                     # the sandbox has no root directory of its own
    directory = ""                          # in which this worker began
    refusal: str | None = None              # why operations are refused


state = State()
