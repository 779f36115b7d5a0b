"""Rich results: the values that a cell shows, each as a bundle of media types.

A bundle describes one value in several forms, such as text, HTML and PNG. It travels in a DISPLAY
frame: the head has the types, the parts have the bytes, so images need no base64. What a cell may
send is bounded (`Showing.limit`, `RESULTS_MAX`); the host checks these bounds again.

A cell without `results` in its EXEC shows values as a terminal does, by printing their text.
"""
from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterable

from .figures import figures_wait, FORMATS
from .frames import DISPLAY, MESSAGE, plain, shorten
from .output import flush_output
from .session import RESULTS_BYTES, RESULTS_MAX, Showing
from .state import state
from droste._encoding.json_text import read_json, write_json, write_strict_json

if TYPE_CHECKING:
    from .aliases import Head

TYPES_MAX = 32              # media types of a bundle
METADATA_MAX = 65536        # bytes of a bundle's metadata as JSON
PLAIN_TEXT = "text/plain"

# What IPython's formatters call, in their order.
METHODS = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"),
    ("_repr_pdf_", "application/pdf"), ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"), ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"))

# Objects that claim to have any attribute have this one, too.
CANARY = "_ipython_canary_method_should_not_exist_"

# RFC 6838, section 4.2
MEDIA_TYPE = (
    r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\Z")

# Exact types without a form besides their text.
TEXT_ONLY = frozenset((int, float, bool, complex, str, bytes, bytearray, type(None), set, frozenset,
                       tuple, range, type, type(lambda: 0), type(len)))


def complain(what: str) -> None:
    """Prints the current exception, whose cause is a method of the value."""
    import traceback
    sys.stderr.write("display: %s\n%s" % (what, plain(traceback.format_exc())))


def safe_text(value: Any) -> str:
    try:
        return plain(repr(value))
    except Exception:
        complain("repr() failed")
        return "<repr() of a value of type %s failed>" % plain(type(value).__name__)


# -- the forms of a value

def call_method(value: Any, name: str, **words: Any) -> Any:
    """Returns what a method of the value returns; None if it has none, or the method fails."""
    try:
        method = getattr(value, name, None)
        return method(**words) if callable(method) else None
    except NotImplementedError:
        return None
    except Exception:
        complain("%s of a value of type %s failed" % (name, plain(type(value).__name__)))
        return None


def split_pair(found: Any) -> tuple[Any, Head]:
    """Splits (data, metadata), which methods may return in place of data."""
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
        return found[0], found[1]
    return found, {}


def library_forms(value: Any) -> Iterable[tuple[str, Callable[[Any], Any]]]:
    """Returns the forms that Droste itself makes of types of libraries (figures.py)."""
    for kind in type(value).__mro__:
        found = FORMATS.get((str(kind.__module__).partition(".")[0], kind.__name__))
        if found:
            return found
    return ()


def describe_value(value: Any) -> tuple[dict[str, Any], Head]:
    """Returns the forms of a value besides its text, by media type, and their metadata."""
    bundle: dict[str, Any] = {}
    about: Head = {}
    if type(value) in TEXT_ONLY:
        return bundle, about
    for media, make in library_forms(value):
        try:
            bundle[media] = make(value)
        except Exception:
            complain("making %s of a value of type %s failed" % (media, type(value).__name__))
    if isinstance(value, type) or hasattr(value, CANARY):
        return {media: data for media, data in bundle.items() if data is not None}, about
    data, metadata = split_pair(call_method(value, "_repr_mimebundle_", include=None, exclude=None))
    if isinstance(data, dict):
        bundle.update(data)
        about.update(metadata)
    for name, media in METHODS:
        if media in bundle:
            continue        # IPython, too, does not make it again
        data, metadata = split_pair(call_method(value, name))
        if data is not None:
            bundle[media] = data
            if metadata:
                about[media] = metadata
    return {media: data for media, data in bundle.items() if data is not None}, about


# -- encoding

def is_json(media: str) -> bool:
    return media == "application/json" or media.endswith("+json") or media.startswith("e2b/")


def is_binary(media: str) -> bool:
    """Whether a str of this type is base64, as in Jupyter's messages."""
    return (media.startswith(("image/", "audio/", "video/")) and not media.endswith("+xml")
            or media == "application/pdf")


def without_nan(value: Any) -> Any:
    """Replaces floats that JSON does not have by None; simplifies values as submissions are."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {k if isinstance(k, str) else str(k): without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return value


def encode_json(value: Any) -> bytes:
    def simple(value: Any) -> Any:
        for name in ("tolist", "isoformat"):
            if hasattr(value, name):
                return without_nan(getattr(value, name)())
        return str(value)
    try:
        text = write_strict_json(value, simple)
    except (ValueError, TypeError):
        text = write_strict_json(without_nan(value), simple)
    return plain(text).encode()


def encode_form(media: str, data: Any) -> tuple[str, bytes]:
    """Returns how the data is encoded ("text", "json" or "bytes"), and its bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        data = bytes(data)
        if is_binary(media) or is_json(media) or not media.startswith(("text/", "image/svg")):
            return "bytes", data
        data = data.decode("utf-8", "replace")
    if is_json(media) or not isinstance(data, str):
        return "json", encode_json(data)
    if is_binary(media):
        import base64
        import binascii
        try:
            return "bytes", base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            pass
    return "text", plain(data).encode()


def size_text(size: int) -> str:
    return "%.1f MB" % (size / 1e6) if size >= 100000 else "%d bytes" % size


def left_out(media: str, size: int, alone: int) -> str:
    """Says why a form is left out: of one result, `alone` bytes may be left."""
    showing = state.session.showing
    if size > alone:
        return ("[%s of %s left out: one result may have %s (result-size)]"
                % (media, size_text(size), size_text(showing.one)))
    return ("[%s of %s left out: the results of a cell may have %s (results-limit)]"
            % (media, size_text(size), size_text(showing.limit)))


def encode_bundle(bundle: dict[str, Any], room: int) -> list[tuple[str, str, bytes]]:
    """Encodes what fits into `room` bytes and into one result; a text says what does not."""
    items, notes = [], []
    showing = state.session.showing
    alone = showing.one if showing.one < showing.limit else RESULTS_BYTES
    for media, data in list(bundle.items())[:TYPES_MAX]:
        if not isinstance(media, str) or not re.match(MEDIA_TYPE, media):
            raise ValueError("display: %r is not a media type; use a name such as 'text/html'"
                             % (media,))
        form, encoded = encode_form(str(media), data)
        if len(encoded) > min(room, alone):
            notes.append(left_out(media, len(encoded), alone))
            continue
        room -= len(encoded)
        alone -= len(encoded)
        items.append((str(media), form, encoded))
    if notes:
        text = [item for item in items if item[0] == PLAIN_TEXT]
        items = [item for item in items if item[0] != PLAIN_TEXT]
        shown = [item[2].decode() for item in text]
        items.insert(0, (PLAIN_TEXT, "text", "\n".join(shown + notes).encode()))
    return items


# -- sending

def take_turn(showing: Showing, marks: Head) -> bool:
    """Whether one more bundle fits; the last one says that no more do."""
    if marks.get("update") and marks["id"] in showing.sizes:
        return True         # takes the place of another
    showing.count += 1
    if showing.count == RESULTS_MAX:
        send_bundle({PLAIN_TEXT: "[further results left out: a cell may have %d]" % RESULTS_MAX},
                    {}, {})
    return showing.count < RESULTS_MAX


def send_bundle(bundle: dict[str, Any], about: Head, marks: Head) -> None:
    """Sends one bundle; `marks` are members of the head that say what it is."""
    showing = state.session.showing
    name = marks.get("id")
    if marks.get("update"):
        showing.room += showing.sizes.pop(name, 0)
    items = encode_bundle(bundle, max(showing.room, 0))
    size = sum(len(data) for _, _, data in items)
    showing.room -= size
    if name is not None:
        showing.sizes[name] = size
    head: Head = dict(marks, types=[[media, form] for media, form, _ in items])
    if about:
        encoded = encode_json(about)
        if len(encoded) <= METADATA_MAX:
            head["metadata"] = read_json(encoded)
    flush_output()
    state.link.send(DISPLAY, state.session.running, write_json(head),
                    [data for _, _, data in items])
    if "main" not in marks:
        await_shown(showing)


def await_shown(showing: Showing) -> None:
    """Waits until the host has the result: output takes another path, and what is printed from now
    on comes behind it."""
    if showing.ordered:
        state.link.call({"name": "shown"}, [])


def can_send() -> bool:
    """Only the process of the session, during a cell, has a channel for results."""
    return (state.session.showing.collects and state.session.running is not None
            and os.getpid() == state.link.owner)


def show_bundle(bundle: dict[str, Any], about: Head, marks: Head) -> None:
    """Shows a bundle: sends it, prints its text, or both, as the cell was told to."""
    showing = state.session.showing
    sends = can_send()
    if showing.prints or not sends:
        text = bundle.get(PLAIN_TEXT)
        print(text if isinstance(text, str) else "<%s>" % ", ".join(map(str, bundle)))
    if sends and take_turn(showing, marks):
        send_bundle(bundle, about, marks)


class DisplayHandle:
    """A displayed value that can be replaced."""

    def __init__(self, display_id: str) -> None:
        self.display_id = display_id

    def display(self, value: Any, **words: Any) -> None:
        display(value, display_id=self.display_id, **words)

    def update(self, value: Any, **words: Any) -> None:
        display(value, display_id=self.display_id, update=True, **words)

    def __repr__(self) -> str:
        return "<DisplayHandle display_id=%s>" % self.display_id


def full_bundle(value: Any, raw: bool) -> tuple[dict[str, Any], Head]:
    if raw:
        if not isinstance(value, dict):
            raise TypeError("display(raw=True) takes a dict of media types and data, not %s"
                            % type(value).__name__)
        return dict(value), {}
    bundle: dict[str, Any] = {}
    about: Head = {}
    # Without results nothing but the text is printed, and other forms cost time.
    if can_send():
        bundle, about = describe_value(value)
    if PLAIN_TEXT not in bundle:
        bundle = {PLAIN_TEXT: shorten(safe_text(value), MESSAGE), **bundle}
    return bundle, about


def chosen(bundle: dict[str, Any], include: Any, exclude: Any) -> dict[str, Any]:
    return {media: data for media, data in bundle.items()
            if (not include or media in include) and not (exclude and media in exclude)}


def display(*values: Any, include: Any = None, exclude: Any = None, metadata: Any = None,
            raw: bool = False, display_id: Any = None, update: bool = False, transient: Any = None,
            clear: bool = False, **unused: Any) -> DisplayHandle | None:
    """Shows values as rich results: display(value, ...).

    A value's forms come from its `_repr_html_`, `_repr_png_`, ... and `_repr_mimebundle_` methods,
    as in notebooks. With raw=True, a value is a dict of media types and data. `display_id` (a name,
    or True) makes the result replaceable: display(value, display_id=name, update=True).
    """
    if display_id is None and transient:
        display_id = transient.get("display_id")
    marks: Head = {}
    if display_id is not None and display_id is not False:
        display_id = os.urandom(8).hex() if display_id is True else plain(str(display_id))[:200]
        marks = {"id": display_id, "update": True} if update else {"id": display_id}
    if clear:
        clear_output(wait=True)
    for value in values:
        if not raw and not isinstance(value, type) and not hasattr(value, CANARY) and callable(
                getattr(value, "_ipython_display_", None)):
            value._ipython_display_()
            continue
        bundle, about = full_bundle(value, raw)
        show_bundle(chosen(bundle, include, exclude), dict(about, **(metadata or {})), marks)
    return DisplayHandle(display_id) if marks and not update else None


def update_display(value: Any, *, display_id: str, **words: Any) -> None:
    """Replaces the result that display(..., display_id=...) has shown."""
    display(value, display_id=display_id, **dict(words, update=True))


def clear_output(wait: bool = False) -> None:
    """Removes what the cell has shown; with `wait`, as soon as it prints or shows something."""
    if can_send():
        showing = state.session.showing
        showing.forget()
        flush_output()
        state.link.send(DISPLAY, state.session.running,
                        b'{"clear": true, "wait": true}' if wait else b'{"clear": true}')
        await_shown(showing)


JSON_TEXT_MAX = 1 << 20     # characters of a list or dict that is also given as JSON


def show_main(value: Any, text: str) -> None:
    """Sends the forms of a last expression's value besides its text, which RESULT has."""
    bundle: dict[str, Any] = {}
    about: Head = {}
    if not can_send():
        return
    if type(value) in (list, dict):
        try:
            if len(text) <= JSON_TEXT_MAX:
                bundle["application/json"] = read_json(write_strict_json(value))
        except (ValueError, TypeError, RecursionError):
            pass        # not JSON: it has its text only
    elif type(value) in TEXT_ONLY:
        pass
    elif not hasattr(value, CANARY) and not isinstance(value, type) and callable(
            getattr(value, "_ipython_display_", None)):
        display(value)
        return
    else:
        bundle, about = describe_value(value)
    # Without other forms, the text comes with RESULT, but after the figures.
    if (bundle or figures_wait()) and PLAIN_TEXT not in bundle:
        bundle = {PLAIN_TEXT: shorten(text, MESSAGE), **bundle}
    if bundle and take_turn(state.session.showing, {}):
        send_bundle(bundle, about, {"main": True})
