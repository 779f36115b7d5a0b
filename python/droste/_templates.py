"""Templates: the memory of a session, from which others start in sandboxes of their own."""
from __future__ import annotations

import ctypes
import functools
import json
import os
from asyncio import _get_running_loop  # type: ignore
from typing import (Any, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, Type,
                    TYPE_CHECKING)

from . import _forks, _library, _settings
from ._handle import Handle
from ._library import lib, quick
from ._remote import address_of
from ._values import check_name
from .errors import ArgumentError, CellFailed, Error

if TYPE_CHECKING:
    from typing_extensions import Unpack    # of the type checker: no dependency
    from ._keywords import InterpreterSettings

Pairs = List[Tuple[str, Any]]

#: parameters of Interpreter that are not settings, or functions
PARAMETERS = ("tools", "output_fields", "on_output", "tool_threads", "template", "server")
FUNCTIONS = ("model", "sub_model")
REPLACE, UNTRIED = 1, 2     # DROSTE_TEMPLATE_…
#: settings that have had their effect on the template
SPENT = ("setup-code", "setup-each", "tools", "tool-data")


class Template:
    """A prepared state from which sessions start: modules, variables, large data.

        with Template(preload=["json"], setup_code="table = load()") as template:
            with Interpreter(template=template) as one, Interpreter(template=template) as two:
                one.execute("table.clear()")        # `two` still has its table

    `cells` run after `setup_code`, and `variables` are bound before them. All of it runs once, in a
    sandbox like any session's. Sessions of a template share its memory until they write to it; each
    has a sandbox, output, limits and random seeds of its own (docs/templates.md). Settings are
    those of Interpreter, and sessions inherit them. `session.template()` makes a template of a live
    session. Within asyncio, use `async with`, or await `start()`.

    `contexts` are files or directories by the names of their variables. `save` stores a template
    under a name, for `load`, `Interpreter(template="name")` and the command line; stored is how it
    is made, not its memory. With `server` the template is that server's, for sessions there, and
    is not stored.
    """
    #: Interpreter, which imports this module
    _interpreter: Type[Any]
    #: that of a server, once it is made
    _remote: Any = None

    def __init__(self, *, cells: Sequence[str] = (), variables: Optional[Mapping[str, Any]] = None,
                 contexts: Optional[Mapping[str, Any]] = None,
                 **settings: "Unpack[InterpreterSettings]"):
        if isinstance(cells, str):
            raise ArgumentError("cells must be a list of texts, not one text")
        self._settings: Dict[str, Any] = dict(settings)
        self._cells, self._variables = list(cells), dict(variables or {})
        self._contexts = dict(contexts or {})
        away = address_of(self._settings.get("server")) is not None
        inherited = {name: value for name, value in settings.items() if name not in PARAMETERS
                     and not (name == "api_key" and away)
                     and not (name in FUNCTIONS and callable(value))}
        self._pairs = [pair for pair in _settings.pairs(inherited) if pair[0] not in SPENT]
        self._engine: Any = None
        self._family: Optional[_forks.Family] = None
        self._handle: Optional[int] = None

    # -- making it

    def start(self) -> Any:
        """Makes the template unless it is made. Within asyncio, await it."""
        if _get_running_loop() is not None:
            return self._start_on_loop()
        if not self._is_made():
            with self._interpreter(**self._settings) as interp:
                for name, path in self._contexts.items():
                    interp.load(name, path)
                for name, value in self._variables.items():
                    interp.set(name, value)
                for cell in self._cells:
                    check_cell(interp.execute(cell))
                self._take(interp.template())
        return Started(self)

    async def _start_on_loop(self) -> Template:
        if not self._is_made():
            async with self._interpreter(**self._settings) as interp:
                for name, path in self._contexts.items():
                    interp.load(name, path)
                for name, value in self._variables.items():
                    await interp.set(name, value)
                for cell in self._cells:
                    check_cell(await interp.execute(cell))
                self._take(await interp.template())
        return self

    def _is_made(self) -> bool:
        return self._handle is not None or self._remote is not None

    def _take(self, made: Template) -> None:
        for name in ("_engine", "_family", "_handle", "_remote"):
            setattr(self, name, getattr(made, name))
        made._handle = made._engine = made._family = made._remote = None

    @classmethod
    def _of_server(cls, owner: Any, remote: Any) -> Template:
        """Returns the template of a session of a server."""
        made = cls.__new__(cls)
        made._settings, made._cells, made._variables, made._contexts = {}, [], {}, {}
        made._pairs = [pair for pair in owner._pairs if pair[0] not in SPENT]
        made._engine = made._family = made._handle = None
        made._remote = remote
        return made

    def _at(self, server: Any) -> Any:
        """Returns what the server has of it, for a session there; makes it if it is not made."""
        if self._remote is None and address_of(self._settings.get("server")) is not None:
            self.start()
        if self._remote is None or self._remote.server is not server:
            raise ArgumentError("the template is not one of this server: make it with the same "
                                "`server` and `api_key`")
        return self._remote

    @classmethod
    def _of(cls, owner: Any, handle: Optional[int]) -> Template:
        """Returns the template of a session; it stays in the session's engine."""
        made = cls.__new__(cls)
        made._settings, made._cells, made._variables, made._contexts = {}, [], {}, {}
        made._pairs = [pair for pair in owner._pairs if pair[0] not in SPENT]
        made._engine, made._handle = owner._engine, handle
        if owner._family is None:
            owner._family = _forks.Family()
        made._family = owner._family
        made._join()
        return made

    # -- on disk

    def save(self, name: str, *, replace: bool = False) -> None:
        """Stores how the template is made: its settings, contexts and cells, not its variables."""
        odd = [key for key, value in self._settings.items()
               if key in PARAMETERS or callable(value)] + (["variables"] if self._variables else [])
        if odd:
            raise ArgumentError("a stored template cannot have %s; load data in a cell or context, "
                                "and give the rest to its sessions" % " or ".join(odd))
        if not self._settings and not self._cells and not self._contexts:
            raise ArgumentError("a template of a session cannot be stored: what is stored is how a "
                                "template is made, and this one has no recipe")
        cells = (ctypes.c_char_p * (len(self._cells) + 1))(*map(str.encode, self._cells), None)
        with Handle(self._settings) as handle:
            for key, path in self._contexts.items():
                context = "%s=%s" % (check_name(key), os.path.abspath(path))
                handle.check(quick.droste_context_add(handle.d, os.fsencode(context), handle.err))
            handle.check(quick.droste_template_create(handle.d, name.encode(), cells,
                                                    UNTRIED | (REPLACE if replace else 0),
                                                    handle.err))

    @classmethod
    def load(cls, name: str) -> Template:
        """Returns the stored template of this name, which is made when it starts."""
        with Handle({}) as handle:
            size = ctypes.c_size_t()
            text = quick.droste_template_read(handle.d, name.encode(), ctypes.byref(size),
                                            handle.err)
            handle.check(0 if text else -handle.error.code)
            recipe = json.loads(_library.text_at(text, size.value))
        contexts = dict(context.partition("=")[::2] if context[0] != "/" else ("context", context)
                        for context in recipe.get("contexts", ()))
        settings = {key.replace("-", "_"): value
                    for key, value in recipe.get("settings", {}).items()}
        return cls(cells=recipe.get("cells", ()), contexts=contexts, **settings)

    @staticmethod
    def names() -> List[str]:
        """Returns the names of the stored templates, in order."""
        found: List[str] = []

        def add(arg: Any, name: bytes) -> int:
            found.append(name.decode())
            return 0
        with Handle({}) as handle:
            handle.check(quick.droste_template_names(handle.d, _library.NameFn(add), None,
                                                   handle.err))
        return found

    @staticmethod
    def remove(name: str) -> None:
        """Removes a stored template; what has started from it goes on."""
        with Handle({}) as handle:
            handle.check(quick.droste_template_remove(handle.d, name.encode(), handle.err))

    # -- using it

    def _join(self) -> None:
        self._family.members += 1  # type: ignore
        if self._engine.loop is not None:
            self._engine.users += 1

    def _enter(self) -> Tuple[Any, _forks.Family]:
        """Returns the engine and the family for a session that starts from it."""
        if self._remote is not None or address_of(self._settings.get("server")) is not None:
            raise ArgumentError("the template is a server's: name the server for the session, too")
        if self._handle is None:
            if self._engine is not None or not self._settings and not self._cells:
                raise ArgumentError("the template is closed; make another one")
            if _get_running_loop() is not None:
                raise ArgumentError("the template is not made yet: `await template.start()` first, "
                                    "or use `async with`")
            self.start()
        self._engine.alive()
        loop = _get_running_loop()
        if self._engine.loop is not loop and (loop is not None or self._engine.loop.is_running()):
            raise Error("the template belongs to another event loop, or to none; make it where its "
                        "sessions run")
        self._join()
        return self._engine, self._family  # type: ignore

    def _open(self, handle: Optional[int], settings: Any, session: Any, err: Any) -> int:
        """Starts a session from it, as droste_session_start does."""
        return lib.droste_session_start_from(self._handle, settings, session, err)

    def close(self) -> None:
        """Frees the template; sessions that have started from it continue."""
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
        engine, handle, family = self._engine, self._handle, self._family
        self._handle = self._family = None
        if handle is None or family is None:
            return
        if engine.handle is not None:
            with engine.lock:
                quick.droste_template_free(handle)
        _forks.leave(engine, family, [])

    def __enter__(self) -> Template:
        self.start()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    async def __aenter__(self) -> Template:
        return await self._start_on_loop()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._engine.post(self.close)
            self._engine.do_if_free(self._engine.drain)


class Started:
    """A template that is made; may be awaited."""
    __slots__ = ("template",)

    def __init__(self, template: Template):
        self.template = template

    def __await__(self) -> Generator[Any, None, Template]:
        return self.template
        yield


def check_cell(result: Any) -> None:
    if not result.ok:
        trace = result.error.traceback if result.error else None
        why = trace or result.error or result.status
        raise CellFailed("a cell of the template failed: %s" % why, result)


def inherit(template: Optional[Template], own: Pairs) -> Pairs:
    """Returns a session's settings: its own, and those of its template that it does not name."""
    if template is None:
        return own
    names = {name for name, _ in own}
    return [pair for pair in template._pairs if pair[0] not in names] + own


def make(owner: Any) -> Any:
    """Makes a template of a live session; on a loop, returns an awaitable."""
    owner._refuse_own_tools()
    with owner._lock:
        owner._begin()
        made: List[Template] = []
        start = functools.partial(_start, owner, made)
        if owner._engine.loop is not None:
            return _finish(owner._enqueue([start]), made)
        try:
            owner._run(start)
        except BaseException:
            for template in made:
                template.close()
            raise
    return made[0]


def _start(owner: Any, made: List[Template]) -> int:
    handle = ctypes.c_void_p()
    started = quick.droste_session_template_start(owner._session, ctypes.byref(handle), owner._err)
    if started >= 0:
        made.append(Template._of(owner, handle.value))
    return started


async def _finish(operation: Any, made: List[Template]) -> Template:
    try:
        await operation.wait()
    except BaseException:
        for template in made:
            template.close()
        raise
    return made[0]
