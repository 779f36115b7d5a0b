"""Searching texts and splitting them into chunks.

Texts may be hundreds of megabytes, so no function splits a text into lines or copies more of it
than it returns. A text that is not given defaults to the session's `context`.
"""
from __future__ import annotations

import itertools
import json
import re
from typing import Any, Callable, Iterator

from ..core.errors import NOT_GIVEN
from ..core.frames import shorten
from ..core.state import state


class Context:
    """The type of CONTEXT, the default that stands for the session's `context`."""

    def __repr__(self) -> str:
        return "context"


CONTEXT = Context()


def find_value(value: Any) -> Any:
    if value is not CONTEXT:
        return value
    if "context" not in state.session.namespace:
        raise NameError("this session has no `context`; pass the text to search")
    return state.session.namespace["context"]


def describe_kind(value: Any) -> str:
    """Describes a value that is not a text, with advice on how to get a text from it."""
    kind = type(value).__name__
    if isinstance(value, dict):
        keys = [key for key, _ in zip(value, range(3))]
        return "a %s of %d keys%s; pass one of its values" % (
            kind, len(value), ", such as %s" % ", ".join(map(repr, keys)) if keys else "")
    if isinstance(value, (bytes, bytearray)):
        return "%s; give value.decode(errors='replace')" % kind
    if isinstance(value, (list, tuple)):
        return "a %s of %d; pass one of its items, or a str made of them" % (kind, len(value))
    return "a value of type %s" % kind


def find_text(value: Any, function: str) -> str:
    value = find_value(value)
    if not isinstance(value, str):
        raise TypeError("%s needs a str, not %s" % (function, describe_kind(value)))
    return value


def cut(value: Any, start: int, end: int | None, function: str) -> Any:
    try:
        return value[start:end]
    except (TypeError, KeyError):       # a slice can be a key from 3.12 on
        if isinstance(value, (str, bytes, list, tuple)):
            raise       # the bounds are wrong, not the value
        raise TypeError("%s needs a str or a list, not %s"
                        % (function, describe_kind(value))) from None


def peek(text: Any = CONTEXT, start: int = 0, length: int = 2000) -> Any:
    """Returns `length` characters (of a list: items) of `text` from `start` on.

    Negative numbers count as 0.
    """
    start, length = max(0, start), max(0, length)
    return cut(find_value(text), start, start + length, "peek")


# -- grep

MULTILINE = 8       # re.MULTILINE, without the import
# A pattern without any of these characters is plain text.
SPECIAL = r"[][.^$*+?{}|()\\\n]"
# Characters searched per call of re; fewer if a failing match may extend over many lines.
WINDOW, SMALL_WINDOW = 1 << 16, 1 << 10
RUNS_ON = r"\[\^|\\[DSW]|\(\?[a-zA-Z]*s"
# Patterns that may look beyond a line; these search line by line.
LOOKS_AROUND = r"\\[Zz]|\(\?[=!<]"
LINE_START = r"(?s)\^[^|]*$"


def compile_pattern(pattern: Any, regex: bool, ignore_case: bool) -> re.Pattern[str]:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    if isinstance(pattern, re.Pattern):
        pattern, flags = pattern.pattern, flags | pattern.flags
    if not isinstance(pattern, str):
        raise TypeError("grep needs a pattern of type str, not %s" % type(pattern).__name__)
    try:
        return re.compile(pattern if regex else re.escape(pattern), flags)
    except re.error as e:
        raise ValueError("%r is not a regular expression: %s; to search for plain text, pass "
                         "regex=False"
                         % (shorten(pattern, 200), e)) from None


def line_end(text: str, at: int, end: int) -> int:
    at = text.find("\n", at, end)
    return end if at < 0 else at


def find_lines(text: str, expression: re.Pattern[str], window: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each line in which the expression matches, in order.

    Searches many lines per call, up to the end of a line, at the speed of `re`, and looks for the
    bounds of a line only after a match. A match that extends beyond its line counts if there is
    another within the line.
    """
    search, at = expression.search, 0
    while at < len(text):
        end = stop = line_end(text, at + window, len(text))
        match = search(text, at, end)
        if match:
            start = max(at, text.rfind("\n", at, match.start()) + 1)
            stop = line_end(text, match.start(), end)
            if match.end() <= stop or search(text, start, stop):
                yield start, stop
        at = stop + 1


def find_line_starts(text: str, expression: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """find_lines() for an expression that begins with ^.

    `re` tries ^ at each character but finds a literal newline fast, so this searches for newline
    and the rest of the expression.
    """
    behind = re.compile(r"\n" + expression.pattern[1:], expression.flags)
    at = line_end(text, 0, len(text))
    if text and expression.match(text, 0, at):
        yield 0, at
    match = behind.search(text, at)
    while match and match.start() + 1 < len(text):
        start = match.start() + 1
        at = line_end(text, start, len(text))
        if match.end() <= at or expression.match(text, start, at):
            yield start, at
        match = behind.search(text, at)


def find_lines_one_by_one(text: str, expression: re.Pattern[str],
                          returns: bool) -> Iterator[tuple[int, int]]:
    """find_lines() one line at a time; with `returns`, a line may end with \\r\\n."""
    search, at = expression.search, 0
    while at < len(text):
        stop = line_end(text, at, len(text))
        if search(text, at, stop - 1 if returns and text.endswith("\r", at, stop) else stop):
            yield at, stop
        at = stop + 1


def find_words(text: str, words: str) -> Iterator[tuple[int, int]]:
    """find_lines() for a literal text."""
    find, rfind = text.find, text.rfind     # local names: there may be millions of calls
    at = find(words)
    while at >= 0:
        stop = find("\n", at)
        if stop < 0:
            stop = len(text)
        yield rfind("\n", 0, at) + 1, stop
        at = find(words, stop)


def choose_search(pattern: Any, regex: bool, ignore_case: bool) -> Callable[[str],
                  Iterator[tuple[int, int]]]:
    """Returns the fastest find_lines() variant for a pattern."""
    expression = compile_pattern(pattern, regex, ignore_case)
    words = pattern if isinstance(pattern, str) and not expression.flags & re.IGNORECASE else ""
    if words and not (re.search(SPECIAL, words) if regex else "\n" in words):
        return lambda text: find_words(text, words)
    return lambda text: choose_way(text, expression)


def choose_way(text: str, expression: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    pattern = expression.pattern
    returns = "\r" in text     # not "\r\n": searching for one character is faster
    if returns or re.search(LOOKS_AROUND, pattern):
        return find_lines_one_by_one(text, expression, returns)
    if re.search(RUNS_ON, pattern) or expression.flags & re.DOTALL:
        return find_lines(text, expression, SMALL_WINDOW)
    if re.match(LINE_START, pattern):
        return find_line_starts(text, expression)
    return find_lines(text, expression, WINDOW)


def surround(text: str, start: int, stop: int, lines: int) -> tuple[int, int]:
    """Extends the bounds by `lines` lines in both directions."""
    for _ in range(lines):
        if start > 0:
            start = text.rfind("\n", 0, start - 1) + 1
        if stop + 1 < len(text):
            stop = line_end(text, stop + 1, len(text))
    return start, stop


def named_texts(value: Any) -> list[tuple[str, str]]:
    """Returns (prefix of its lines, text) for each text in a value."""
    if isinstance(value, str):
        return [("", value)]
    if not isinstance(value, (dict, list, tuple)):
        raise TypeError("grep searches a str, or a dict or list of them, not %s"
                        % describe_kind(value))
    found = []
    for name, text in value.items() if isinstance(value, dict) else enumerate(value):
        if not isinstance(text, str):
            raise TypeError(
                "grep searches a str, or a dict or list of them, but %r is a value of type %s; "
                "pass the texts in it, or json.dumps(…) of it" % (name, type(text).__name__))
        found.append(("%s: " % (name,), text))
    return found


def grep(text: Any = CONTEXT, pattern: Any = NOT_GIVEN, *, context: int = 0, regex: bool = True,
         ignore_case: bool = False, limit: int | None = None) -> list[str]:
    """Returns a list of the lines of `text` in which the regular expression `pattern` matches.

    `context` adds that many lines before and after each match, regex=False searches for plain text,
    and `limit` bounds the number of matches. `text` may be a dict or list of texts; each match then
    begins with its key. A single argument is the pattern.
    """
    if pattern is NOT_GIVEN:
        if text is CONTEXT or (isinstance(text, str) and len(text) > 1000):
            raise TypeError("grep(text, pattern): the pattern is missing")
        text, pattern = CONTEXT, text
    search = choose_search(pattern, regex, ignore_case)
    lines: list[str] = []
    for name, whole in named_texts(find_value(text)):
        room = None if limit is None else max(limit - len(lines), 0)
        returns = "\r" in whole
        for start, stop in itertools.islice(search(whole), room):
            if context:
                start, stop = surround(whole, start, stop, context)
            line = whole[start:stop]
            if returns:
                line = line.replace("\r\n", "\n").rstrip("\r")
            lines.append(name + line)
    return lines


def search_plain_text() -> None:
    """Makes grep() search for plain text, ignoring case, as fleet-rlm's grep does on Modal."""
    grep.__kwdefaults__.update(regex=False, ignore_case=True)


# -- chunks

def chunk_by_size(text: Any = CONTEXT, size: int = 200000, overlap: int = 0) -> list[Any]:
    """Splits `text` into chunks of `size` characters (of a list: items).

    Each chunk begins with the last `overlap` characters of the previous one.
    """
    text = find_value(text)
    if size <= 0:
        raise ValueError("size must be positive")
    if overlap < 0:
        raise ValueError("overlap must be non-negative")
    if overlap >= size:
        raise ValueError("overlap must be less than size")
    length = len(cut(text, 0, None, "chunk_by_size"))       # for a str, this does not copy
    # A chunk that begins within the last `overlap` characters would have nothing new.
    starts = range(0, max(length - overlap, min(length, 1)), size - overlap)
    return [text[at:at + size] for at in starts]


def trimmed(text: str, start: int, end: int) -> str:
    """Returns text[start:end].strip() with only one copy."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return text[start:end]


def find_pieces(text: str,
                expression: re.Pattern[str]) -> Iterator[tuple[re.Match[str] | None, int, int]]:
    """Yields (match, start, end) from each match to the next.

    The text before the first match, unless blank, comes with the match None, as does a text without
    any match.
    """
    before, start = None, 0
    for match in expression.finditer(text):
        if before or trimmed(text, 0, match.start()):
            yield before, start, match.start()
        before, start = match, match.start()
    if text:
        yield before, start, len(text)


def chunk_by_headers(text: Any = CONTEXT, pattern: str = r"^#{1,3} ",
                     flags: int = MULTILINE) -> list[dict[str, Any]]:
    """Splits `text` before each line in which `pattern` matches.

    Returns dicts with `header`, `content` and `start_pos`. Text before the first match has the
    header "".
    """
    text, chunks = find_text(text, "chunk_by_headers"), []
    for match, start, end in find_pieces(text, re.compile(pattern, flags | re.MULTILINE)):
        line = line_end(text, start, end) if match else start
        chunks.append({"header": trimmed(text, start, line), "content": trimmed(text, line, end),
                       "start_pos": start})
    return chunks


def chunk_by_timestamps(text: Any = CONTEXT, pattern: str = r"^\d{4}-\d{2}-\d{2}[T ]",
                        flags: int = MULTILINE) -> list[dict[str, Any]]:
    """Splits a log before each match of `pattern`.

    Returns dicts with `timestamp`, `content` (including the timestamp) and `start_pos`. Text before
    the first match has the timestamp "".
    """
    text, chunks = find_text(text, "chunk_by_timestamps"), []
    for match, start, end in find_pieces(text, re.compile(pattern, flags)):
        none_at_all = not match and end == len(text)
        chunks.append({"timestamp": match.group().strip() if match else "",
                       "content": text if none_at_all else trimmed(text, start, end),
                       "start_pos": start})
    return chunks


def chunk_by_json_keys(text: Any = CONTEXT) -> list[dict[str, Any]]:
    """Splits a JSON object, or a dict, by its keys.

    Returns dicts with `key`, `content` (as JSON) and `value_type`.
    """
    data = find_value(text)
    if not isinstance(data, dict):
        data = find_text(data, "chunk_by_json_keys")
        if not data.strip():
            return []
        try:
            data = json.loads(data)
        except ValueError as e:
            raise ValueError("Invalid JSON: %s" % e) from None
    if not isinstance(data, dict):
        raise ValueError("Expected JSON object, got %s" % type(data).__name__)
    return [{"key": key, "content": json.dumps(value, indent=2, ensure_ascii=False, default=str),
             "value_type": type(value).__name__} for key, value in data.items()]
