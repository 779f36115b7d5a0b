"""The result of a cell."""
from __future__ import annotations

import ctypes
import dataclasses
import html
import itertools
import json
from typing import Any, Callable, cast, Dict, Generator, List, Optional

from . import _typed
from ._library import quick, text_at
from .errors import CellFailed, MissingLibrary, ProtocolError
from .rich import image_html, read_results, RichResult

_size = ctypes.c_size_t


@dataclasses.dataclass(frozen=True)
class CellError:
    """The exception of a cell, or the reason why it was ended."""
    type: str
    message: str
    traceback: Optional[str]

    def __str__(self) -> str:
        return "%s: %s" % (self.type, self.message) if self.message else self.type


class Result:
    """The result of a cell.

    Submitted fields are attributes and items: after `SUBMIT(answer=1, items=[2])` there are
    `result.answer`, `result.items` and `result["items"]`. `result.output` is the dict of all
    fields, or the field `output` if there is one. A submitted field never hides one of the
    properties below, because code in the sandbox is not trusted; use `result["status"]` for a field
    of that name.

    Within asyncio, the object may exist before the cell has ended: `await` it. Properties block
    until the cell has ended.
    """
    __slots__ = ("_handle", "_pending", "_kept", "__weakref__")

    def __init__(self, handle: Optional[int] = None, pending: Any = None):
        self._handle = handle
        self._pending = pending
        self._kept: Optional[Dict[str, Any]] = None      # cache of decoded JSON

    def __del__(self, free: Callable[..., None] = quick.droste_result_free) -> None:
        if getattr(self, "_handle", None):
            free(self._handle)  # type: ignore

    def __copy__(self) -> "Result":
        return self     # one object owns the handle

    def __deepcopy__(self, memo: Any) -> "Result":
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a result cannot be pickled; pickle its `fields`, `json` or `stdout`")

    # -- the end of the cell

    def _get(self) -> int:
        if self._handle is None:
            self._handle = self._pending.finish()
            self._pending = None
        return self._handle  # type: ignore

    def __await__(self) -> Generator[Any, None, "Result"]:
        if self._handle is None:
            yield from self._pending.wait().__await__()
            self._get()
        return self

    @property
    def done(self) -> bool:
        """Whether the cell has ended; never blocks."""
        return self._handle is not None or self._pending.done

    # -- facts from the host

    @property
    def _own(self) -> "Result":
        """This result with its own properties first, also in SubmittedFirst."""
        return cast(Result, _Own(self))

    @property
    def status(self) -> str:
        """One of "ok", "submitted", "error" (the code raised), "timeout", "killed", "lost"."""
        return quick.droste_result_status(self._get()).decode()

    @property
    def ok(self) -> bool:
        """Whether the status is "ok" or "submitted"."""
        return self._own.status in ("ok", "submitted")

    def _keep(self) -> Dict[str, Any]:
        if self._kept is None:
            self._kept = {}
        return self._kept

    def _text(self, function: Any, *which: int) -> Optional[str]:
        length = _size()
        address = function(self._get(), *which, ctypes.byref(length))
        return text_at(address, length.value) if address else None

    @property
    def stdout(self) -> str:
        """The standard output; the middle of very long output is left out."""
        return self._text(quick.droste_result_stdout) or ""

    @property
    def stderr(self) -> str:
        return self._text(quick.droste_result_stderr) or ""

    @property
    def echo(self) -> Optional[str]:
        """The repr of the last expression; None without one, or if its value is None."""
        echo = quick.droste_result_echo(self._get())
        return None if echo is None else echo.decode("utf-8", "replace")

    @property
    def results(self) -> List[RichResult]:
        """The rich results, in the order in which the cell showed them."""
        kept = self._keep()
        if "results" not in kept:
            kept["results"] = read_results(self._get())
        return kept["results"]

    @property
    def fields(self) -> Optional[Dict[str, Any]]:
        """The submitted fields, or None if the cell submitted nothing.

        Values have the types that they had in the sandbox (docs/values.md); `json["submit"]` has
        their JSON form. Raises `MissingLibrary` for a value of a library that is not installed,
        and `ProtocolError` if the sandbox sent no valid encoding.
        """
        kept = self._keep()
        if "fields" not in kept:
            kept["fields"] = self._read_fields()
        return kept["fields"]

    def _read_fields(self) -> Optional[Dict[str, Any]]:
        """Decodes the outline; long texts are stored separately, without JSON encoding."""
        fields = self._read_json_fields()
        values = _typed.read_values(quick.droste_result_values, self._get(), self)
        if fields is None or values is None:
            return fields
        return _typed.merge_typed(fields, values, "the submitted fields")

    def _read_json_fields(self) -> Optional[Dict[str, Any]]:
        outline = self._text(quick.droste_result_outline)
        if outline is None:
            return None
        if not quick.droste_result_text(self._get(), 0, None):
            return json.loads(outline)
        numbers = itertools.count()
        return json.loads(outline, parse_constant=lambda placeholder: self._text(
            quick.droste_result_text, next(numbers)))

    def _read_typed(self, name: str) -> Any:
        """Returns what a cell with DROSTE_ONLY_VALUES has submitted under this name."""
        values = _typed.read_values(quick.droste_result_values, self._get(), self)
        if values is None:      # an environment that sends only JSON
            return (self._read_json_fields() or {})[name]
        return _typed.decode_variable(values, name)

    @property
    def json(self) -> Dict[str, Any]:
        """The complete result, as `droste exec --json` prints it."""
        kept = self._keep()
        if "json" not in kept:
            kept["json"] = json.loads(self._text(quick.droste_result_json) or "{}")
        return kept["json"]

    @property
    def error(self) -> Optional[CellError]:
        """The exception, or the reason why the cell was ended; None if `ok`."""
        if self._own.ok:
            return None
        found = self._own.json["error"]
        return CellError(found["type"], found["message"], found["traceback"]) if found else None

    @property
    def alive(self) -> bool:
        """Whether the session can continue with its variables."""
        return bool(quick.droste_result_alive(self._get()))

    @property
    def rolled_back(self) -> Optional[int]:
        """The cell to whose end the session went back, with `checkpoint="auto"`, because this one
        was killed; 0: to before the first cell; None: it did not go back.
        """
        cell = quick.droste_result_rolled_back(self._get())
        return cell if cell >= 0 else None

    @property
    def seconds(self) -> float:
        return quick.droste_result_seconds(self._get())

    @property
    def killed(self) -> Optional[str]:
        """The reason why the sandbox ended, such as "memory", "timeout" or "exit 3"; else None."""
        return self._own.json["killed"]

    @property
    def isolation(self) -> str:
        return self._own.json["isolation"]

    @property
    def variables(self) -> List[Dict[str, Any]]:
        """The name, type, length and preview of each variable of the session."""
        return self._own.json["variables"]

    @property
    def resources(self) -> Dict[str, Any]:
        return self._own.json["resources"]

    @property
    def calls(self) -> int:
        return self._own.json["calls"]

    def raise_for_status(self) -> "Result":
        """Returns self; raises CellFailed if not `ok`."""
        if not self._own.ok:
            raise CellFailed(str(self._own.error or self._own.status), self)
        return self

    # -- submitted fields

    @property
    def output(self) -> Any:
        """The submitted fields as a dict, or the field `output` if there is one."""
        fields = self._own.fields
        return fields["output"] if fields and "output" in fields else fields

    def __getitem__(self, name: str) -> Any:
        return (self._own.fields or {})[name]

    def __contains__(self, name: object) -> bool:
        return name in (self._own.fields or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        fields = self._own.fields
        if fields is not None and name in fields:
            return fields[name]
        error = ", %s" % self._own.error if self._own.error else ""
        what = ("the cell submitted nothing (status %s%s)" % (self._own.status, error)
                if fields is None else "it submitted %s" % (", ".join(fields) or "no fields"))
        raise AttributeError("the result has no field %r: %s" % (name, what))

    def __dir__(self) -> List[str]:
        return sorted(set(object.__dir__(self)) | set(self._own.fields or {}))

    # -- display

    def __repr__(self) -> str:
        if not self._own.done:
            return "<Result: running; await it, or read a field to wait for it>"
        words = [self._own.status]
        fields = self._shown_fields()
        if fields:
            words.append(", ".join("%s=%s" % (k, _short(repr(v), 60)) for k, v in fields.items()))
        elif self._own.error:
            words.append(_short(str(self._own.error), 120))
        elif self._own.echo is not None:
            words.append(_short(self._own.echo, 60))
        elif self._own.stdout:
            words.append(_short(repr(self._own.stdout), 60))
        return "<Result: %s>" % ", ".join(words)

    def _shown_fields(self) -> Dict[str, Any]:
        """The fields for display: in their JSON form if a typed value cannot be read."""
        try:
            return self._own.fields or {}
        except (MissingLibrary, ProtocolError):
            return self._own._read_json_fields() or {}

    def __str__(self) -> str:
        """Returns the repr after the cell has ended; `print(result)` blocks."""
        self._get()
        return repr(self)

    def _repr_html_(self) -> str:
        rows = [("status", "%s in %.3f s" % (self._own.status, self._own.seconds))]
        rows += [(name, _short(repr(value), 2000)) for name, value in self._shown_fields().items()]
        if self._own.echo is not None:
            rows.append(("value", _short(self._own.echo, 2000)))
        rows += [(name, _short(text, 4000)) for name, text in
                 (("stdout", self._own.stdout), ("stderr", self._own.stderr)) if text]
        if self._own.error:
            rows.append(("error", self._own.error.traceback or str(self._own.error)))
        shown = (image_html(result) for result in self._own.results)
        return table(rows) + "".join("<div>%s</div>" % image for image in shown if image)


class _Own:
    """A view of a result whose properties submitted fields cannot hide."""
    __slots__ = ("_result",)

    def __init__(self, result: Result):
        self._result = result

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self._result, name)


class SubmittedFirst(Result):
    """A result whose submitted fields hide its properties, as in fleet-rlm's interpreters.

    `result.status` is the field `status` if one was submitted.
    """
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        # `done` must not block, so it is the host's until the cell has ended.
        if name in _HOSTS and (name != "done" or object.__getattribute__(self, "done")):
            fields = self._own.fields
            if fields is not None and name in fields:
                return fields[name]
        return object.__getattribute__(self, name)


_HOSTS = frozenset(name for name in vars(Result) if not name.startswith("_"))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most // 2] + " … " + text[-most // 2:]


def table(rows: Any, title: str = "") -> str:
    """Returns an HTML table for notebooks; escapes all text, which may come from a sandbox."""
    cells = "".join("<tr><th style='text-align:left;vertical-align:top'>%s</th><td "
                    "style='text-align:left'>"
                    "<pre style='margin:0;white-space:pre-wrap'>%s</pre></td></tr>"
                    % (html.escape(str(name)), html.escape(str(text))) for name, text in rows)
    head = "<caption style='text-align:left'>%s</caption>" % html.escape(title) if title else ""
    return "<table class='droste'>%s%s</table>" % (head, cells)
