"""Names that can be imported and not used: what stands in their place is said when they are."""
from __future__ import annotations

from typing import Any, Type

from ..errors import UnsupportedError


def refused(name: str, instead: str) -> Type[Any]:
    """A class of that name, which cannot be made."""
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("%s is not in Droste: %s" % (name, instead))

    return type(name, (), {"__init__": __init__, "__doc__": "Not in Droste: %s." % instead})
