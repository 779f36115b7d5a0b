"""Sessions and runs of a server: the client of `droste serve`, in pure Python.

`Interpreter(server=…)` and `RLM(server=…)` choose the classes of this package. They use the native
interface of the server (docs/serve.md), and the standard library alone.
"""
from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])
_classes: Dict[Tuple[Any, Any], Any] = {}
#: The classes for servers: of droste, which is above them and above the classes for this machine.
interpreter_of_servers: Callable[[], Any]
rlm_of_servers: Callable[[], Any]
rlm_of_clusters: Callable[[], Any]
#: The module _remote.volumes, which is above droste.volumes.
volumes_of_servers: Callable[[], Any]
#: The class for batches, which is above droste._batch.
batch_of_servers: Callable[[], Any]


def address_of(server: Optional[str]) -> Optional[str]:
    """Returns the server's address; None for this machine. "" is this machine, too."""
    given = server if server is not None else os.environ.get("DROSTE_SERVER")
    return given or None


def class_of(cls: Any, server: Optional[str]) -> Any:
    """Returns a subclass of `Interpreter` for its sessions of a server; itself for this machine."""
    if address_of(server) is None:
        return cls
    return _derive(cls, interpreter_of_servers())


def rlm_class_of(cls: Any, server: Optional[str]) -> Any:
    """The same for `RLM`."""
    if address_of(server) is None:
        return cls
    return _derive(cls, rlm_of_servers())


def rlm_class_of_cluster(cls: Any) -> Any:
    """The same for runs of a cluster's queue."""
    return _derive(cls, rlm_of_clusters())


def check_local(made: Any, server: Any) -> None:
    """Raises ArgumentError if a subclass has named a server where its class was already chosen."""
    if server:
        from ..errors import ArgumentError
        raise ArgumentError("%s(server=…) must be given where the object is made, or as "
                            "DROSTE_SERVER; so must cluster=…" % type(made).__name__)


def accepts_server(function: _Function) -> _Function:
    """Lets a function of droste.volumes take `server` and `api_key`."""
    @functools.wraps(function)
    def call(*arguments: Any, server: Optional[str] = None, api_key: Optional[str] = None,
             **settings: Any) -> Any:
        address = address_of(server)
        if address is not None:
            return volumes_of_servers().call(function.__name__, address, api_key, arguments,
                                             settings)
        if api_key is not None:
            settings["api_key"] = api_key
        return function(*arguments, **settings)
    return cast(_Function, call)


def _derive(cls: Any, remote: Any) -> Any:
    """Returns `remote`, or a class that also has what a subclass of the user's has changed."""
    if issubclass(cls, remote):
        return cls
    if issubclass(remote, cls):
        return remote
    key = cls, remote
    if key not in _classes:
        _classes[key] = type(cls.__name__, (cls, remote), {"__module__": cls.__module__})
    return _classes[key]
