"""Modules of the standard library that are imported when they are first used.

scripts/flatten-guest binds their names to a LazyModule; modules here write `import ast` as usual. A
sandbox that runs one cell starts without them, and a zygote for many loads them before it clones.
"""
from __future__ import annotations

from typing import Any


class LazyModule:
    """Stands for a module until an attribute of it is needed, and then gives way to it."""

    def __init__(self, name: str) -> None:
        self.module_name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.load(), attribute)

    def load(self) -> Any:
        module = globals()[self.module_name] = __import__(self.module_name)
        return module


def load_lazy_modules() -> None:
    for value in list(globals().values()):
        if type(value) is LazyModule:
            value.load()
