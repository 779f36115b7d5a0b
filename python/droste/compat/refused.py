"""Names that can be imported but not used: using one raises an error that names the replacement."""
from __future__ import annotations

from typing import Any, Type

from ..errors import UnsupportedError


def refused(name: str, instead: str) -> Type[Any]:
    """Returns a class of that name, whose construction fails with an explanation."""
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("Droste has no %s: %s" % (name, instead))

    return type(name, (), {"__init__": __init__, "__doc__": "Not in Droste: %s." % instead})
