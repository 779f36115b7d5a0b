"""rlm's custom_tools: what it puts into the namespace of the code as the object itself is here what
a sandbox can have.

A function stays in this process and is called from there. A module, and a class of a module, are
imported in the sandbox; a pattern is compiled there. Values travel as JSON. Anything else is
refused by its name.
"""
from __future__ import annotations

import re
import types
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from .._values import check_name, to_json
from ..errors import ArgumentError, UnsupportedError

#: names that rlm reserves
RESERVED = frozenset(("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched",
                      "SHOW_VARS", "answer", "context", "history"))


def _module(name: str, thing: types.ModuleType) -> str:
    if thing.__name__ == "__main__":
        raise UnsupportedError("custom_tools has %r, the running program, which a sandbox cannot "
                               "import" % name)
    return "%s = __import__('importlib').import_module(%r)" % (name, thing.__name__)


def _pattern(name: str, thing: Any) -> str:
    return "%s = __import__('re').compile(%r, %d)" % (name, thing.pattern, thing.flags)


def _class(name: str, thing: type) -> str:
    if thing.__module__ == "__main__" or "<locals>" in thing.__qualname__:
        raise UnsupportedError("custom_tools has %r, a class of this program, which a sandbox "
                               "cannot import; pass its source as tool_source, or a function that "
                               "does the work" % name)
    return ("%s = __import__('functools').reduce(getattr, %r, "
            "__import__('importlib').import_module(%r))"
            % (name, thing.__qualname__.split("."), thing.__module__))


#: objects that the sandbox creates itself: the source, and the description for the model
MADE: Tuple[Tuple[type, Callable[[str, Any], str], Callable[[Any], str]], ...] = (
    (types.ModuleType, _module, lambda thing: "the module `%s`" % thing.__name__),
    (re.Pattern, _pattern, lambda thing: "a compiled pattern of `re`, %r" % thing.pattern),
    (type, _class, lambda thing: "the class `%s.%s`" % (thing.__module__, thing.__qualname__)),
)


def _made(name: str, thing: Any) -> Optional[Tuple[str, str]]:
    """Returns (source, description) of a tool that the sandbox creates itself."""
    for kind, source, about in MADE:
        if isinstance(thing, kind):
            return source(check_name(name), thing), about(thing)
    return None


def take(tools_given: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any], Dict[str, str],
                                                  str]:
    """Returns (functions, values, sources, a description of the latter two for the model)."""
    tools: Dict[str, Any] = {}
    data: Dict[str, Any] = {}
    source: Dict[str, str] = {}
    lines = []
    taken = sorted(RESERVED.intersection(tools_given))
    if taken:
        raise ArgumentError("Custom tools cannot override reserved REPL functions: %s. Reserved "
                            "names: %s" % (taken, sorted(RESERVED)))
    for name, value in tools_given.items():
        wrapped = isinstance(value, Mapping) and "tool" in value
        thing = value["tool"] if wrapped else value
        about = value.get("description") if wrapped else None
        made = _made(name, thing)
        if made is not None:
            source[name] = made[0]
            about = about or made[1]
        elif callable(thing):
            tools[name] = value
            continue
        else:
            _check(name, thing)
            data[name] = thing
        if about:
            lines.append("- `%s`: %s" % (name, about))
    return tools, data, source, "The session also has:\n%s" % "\n".join(lines) if lines else ""


def _check(name: str, thing: Any) -> None:
    try:
        to_json(thing)
    except (TypeError, ValueError) as e:
        raise UnsupportedError("custom_tools has %r, which cannot be sent to a sandbox: %s; pass "
                               "a function that does the work" % (name, e)) from None
