"""Describes exceptions of the user's code for the host."""
from __future__ import annotations

import traceback
import types
from typing import TYPE_CHECKING, Any

from .frames import MESSAGE, plain, shorten, TRACEBACK, type_name

if TYPE_CHECKING:
    from .aliases import Head


def without_ours(tb: types.TracebackType | None) -> types.TracebackType | None:
    """Removes the frames of the guest and of its rules from a traceback."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    at = tb
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename == __file__:
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return tb


def format_plainly(e: BaseException, tb: types.TracebackType | None, message: str) -> str:
    """A traceback without `traceback`, which cannot be imported without a free descriptor."""
    lines = ["Traceback (most recent call last):\n"] if tb else []
    while tb is not None:
        code = tb.tb_frame.f_code
        lines.append('  File "%s", line %d, in %s\n'
                     % (code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    return "%s%s: %s\n" % ("".join(lines), type_name(type(e)), message)


def format_exception(e: BaseException, tb: types.TracebackType | None) -> str:
    """A traceback, by the exception's own method if it has the one that IPython calls."""
    own = getattr(e, "_render_traceback_", None)
    return "\n".join(own() if own else ()) or "".join(traceback.format_exception(type(e), e, tb))


def error_of(e: BaseException, whole: dict[str, str] | None = None) -> Head:
    """Describes an exception for RESULT; the traceback has only frames of the user's code. `whole`
    gets the texts that are cut."""
    try:
        message = plain(str(e))
    except BaseException:
        message = "<str() of the exception failed>"
    name = plain(type_name(type(e))[:200])
    tb = without_ours(e.__traceback__)
    try:
        text = plain(format_exception(e, tb))
    except BaseException:
        text = plain(format_plainly(e, tb, message))
    error: Head = {"type": name, "message": shorten(message, MESSAGE),
             "traceback": shorten(text, TRACEBACK)}
    if whole is not None:
        whole.update((key, full) for key, full, limit in (
            ("message", message, MESSAGE), ("traceback", text, TRACEBACK)) if len(full) > limit)
    if isinstance(e, SystemExit):
        error["exit"] = exit_status(e)
    return error


def exit_status(e: SystemExit) -> int:
    """Returns the exit status: https://docs.python.org/3/library/sys.html#sys.exit"""
    try:
        code: Any = e.code
    except BaseException:       # a subclass may define `code` as anything
        return 1
    if code is None:
        return 0
    return code & 0xFF if type(code) in (int, bool) else 1
