"""Settings as keyword arguments: the names of docs/configuration.md, with '_' for '-'."""
from __future__ import annotations

import collections.abc
import ctypes
import difflib
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _library, _modal
from ._values import c_text, kind_of
from ._library import lib, quick
from .errors import ArgumentError, check

#: Settings that select an engine: those that determine the zygote from which sandboxes are cloned,
#: and the record, of which an engine has one.
FUNDAMENTAL = ("env", "isolation", "python", "preload", "read", "volume-root", "layout", "database",
               "template")


def check_name(word: str) -> str:
    name = word.replace("_", "-")
    if _library.options and name not in _library.options:   # without the library, the server checks
        near = difflib.get_close_matches(name, _library.options, 1)
        raise ArgumentError("there is no setting %r%s; docs/configuration.md lists them"
                            % (word, " (did you mean %r?)" % near[0].replace("-", "_") if near
                               else ""))
    return name


def exists(name: str) -> bool:
    return name in _library.options


def _texts(value: Any, word: str) -> Iterator[Any]:
    if isinstance(value, bool):
        yield "yes" if value else "no"
    elif isinstance(value, float):
        yield repr(value) if value != int(value) else str(int(value))
    elif isinstance(value, (str, int)):
        yield str(value)
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif callable(value):       # evaluated when a session is opened
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            one = json.dumps(one) if isinstance(one, Mapping) else next(_texts(one, word))
            yield "%s=%s" % (name, one)
    elif isinstance(value, collections.abc.Iterable):
        for one in value:
            yield from _texts(one, word)
    else:
        raise ArgumentError("%s is %s; a setting must be a text, a number, a path, or a list or "
                            "dict of them" % (word, kind_of(value)))


def pairs(settings: Dict[str, Any]) -> List[Tuple[str, Any]]:
    """Converts keyword arguments into (name, text) pairs; skips None.

    A list becomes one pair for each value. A function stays in the pair; words() calls it when a
    session is opened. Raises ArgumentError for unknown names and wrong types.
    """
    found: List[Tuple[str, Any]] = []
    if (settings.get("env") or os.environ.get("DROSTE_ENVIRONMENT")) == "modal":
        settings = _modal.prepare(settings)
    for word, value in settings.items():
        if value is None:
            continue
        found.extend((check_name(word), text) for text in _texts(value, word))
    return found


def configured(name: str) -> Optional[str]:
    """Returns a setting from the configuration file, the environment or its default."""
    handle, error = ctypes.c_void_p(), _library.Error()
    check(lib.droste_new(ctypes.byref(handle), ctypes.byref(error)), error)
    try:
        check(lib.droste_configure(handle, None, ctypes.byref(error)), error)
        found = quick.droste_get(handle, name.encode())
        return found.decode("utf-8", "surrogateescape") if found else None
    finally:
        lib.droste_free(handle)


def environment_of(settings: Mapping[str, Any]) -> str:
    """Returns the environment that these keywords choose, or the configuration."""
    return settings.get("env") or configured("env") or "local"


def key(found: List[Tuple[str, Any]]) -> Tuple[Any, ...]:
    """Returns the key of a suitable engine: the same fundamental settings and variables."""
    return (tuple(pair for pair in found if pair[0] in FUNDAMENTAL),
            tuple(map(os.environ.get, _library.variables)))


def words(found: List[Tuple[str, Any]]) -> Any:
    """Returns the settings as droste_session_start() and struct droste_request take them."""
    texts = []
    for name, value in found:
        texts.append(name.encode())
        texts.append(c_text(value() if callable(value) else value, "the setting %r" % name))
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
