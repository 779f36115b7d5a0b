"""Looking into texts, and cutting them into pieces.

Texts may be hundreds of megabytes: nothing here splits one into lines, or copies more of it than it gives
back. What is left out where a text is expected is `context`.
"""
import itertools
import json
import re

from ..core.errors import NOT_GIVEN
from ..core.frames import shorten
from ..core.state import state


class Context:
    """The default of what is looked into."""

    def __repr__(self):
        return "context"


CONTEXT = Context()


def find_value(value):
    if value is not CONTEXT:
        return value
    if "context" not in state.session.namespace:
        raise NameError("this session has no `context`; say what to look into")
    return state.session.namespace["context"]


def describe_kind(value):
    """What it is, and how to come from there to a text."""
    kind = type(value).__name__
    if isinstance(value, dict):
        keys = [key for key, _ in zip(value, range(3))]
        return "a %s of %d keys%s; give one of its values" % (
            kind, len(value), ", such as %s" % ", ".join(map(repr, keys)) if keys else "")
    if isinstance(value, (bytes, bytearray)):
        return "%s; give value.decode(errors='replace')" % kind
    if isinstance(value, (list, tuple)):
        return "a %s of %d; give one of its items, or a str made of them" % (kind, len(value))
    return "a value of type %s" % kind


def find_text(value, function):
    value = find_value(value)
    if not isinstance(value, str):
        raise TypeError("%s takes a str, not %s" % (function, describe_kind(value)))
    return value


def cut(value, start, end, function):
    try:
        return value[start:end]
    except (TypeError, KeyError):       # a slice can be a key from 3.12 on
        if isinstance(value, (str, bytes, list, tuple)):
            raise       # of the numbers
        raise TypeError("%s takes what can be sliced, a str or a list, not %s"
                        % (function, describe_kind(value))) from None


def peek(text=CONTEXT, start=0, length=2000):
    """The part of `text` that begins at `start` and has `length` characters (of a list, items). A negative
    number counts as 0."""
    start, length = max(0, start), max(0, length)
    return cut(find_value(text), start, start + length, "peek")


# -- lines that match

SPECIAL = re.compile(r"[][.^$*+?{}|()\\\n]")     # a pattern without any of these is the text that it finds
# Characters that are searched at once; fewer where a match may run on over many lines in vain.
WINDOW, SMALL_WINDOW = 1 << 16, 1 << 10
RUNS_ON = re.compile(r"\[\^|\\[DSW]|\(\?[a-zA-Z]*s")
# What may see beyond a line: then each is searched on its own.
LOOKS_AROUND = re.compile(r"\\[Zz]|\(\?[=!<]")
LINE_START = re.compile(r"\^[^|]*$", re.DOTALL)


def compile_pattern(pattern, regex, ignore_case):
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    if isinstance(pattern, re.Pattern):
        pattern, flags = pattern.pattern, flags | pattern.flags
    if not isinstance(pattern, str):
        raise TypeError("grep takes a pattern of type str, not %s" % type(pattern).__name__)
    try:
        return re.compile(pattern if regex else re.escape(pattern), flags)
    except re.error as e:
        raise ValueError("%r is no regular expression: %s; for plain text give regex=False"
                         % (shorten(pattern, 200), e)) from None


def line_end(text, at, end):
    at = text.find("\n", at, end)
    return end if at < 0 else at


def find_lines(text, expression, window):
    """(start, end) of each line in which the expression matches, in order.

    Many lines are searched at once, up to a line's end: a match is found at the speed of `re`, and its line
    is looked for only then. One that goes on behind its line counts if there is another within it."""
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


def find_line_starts(text, expression):
    """As find_lines, of an expression that begins with ^. `re` tries that at each character, and finds the end
    of the line before at once."""
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


def find_lines_one_by_one(text, expression, returns):
    """As find_lines; `returns`: lines may end with \\r\\n, of which neither is theirs."""
    search, at = expression.search, 0
    while at < len(text):
        stop = line_end(text, at, len(text))
        if search(text, at, stop - 1 if returns and text.endswith("\r", at, stop) else stop):
            yield at, stop
        at = stop + 1


def find_words(text, words):
    """As find_lines, of lines that have these very characters."""
    find, rfind = text.find, text.rfind     # there may be millions
    at = find(words)
    while at >= 0:
        stop = find("\n", at)
        if stop < 0:
            stop = len(text)
        yield rfind("\n", 0, at) + 1, stop
        at = find(words, stop)


def choose_search(pattern, regex, ignore_case):
    """A function that finds the lines of a text, as find_lines does."""
    expression = compile_pattern(pattern, regex, ignore_case)
    words = pattern if isinstance(pattern, str) and not expression.flags & re.IGNORECASE else ""
    if words and not (SPECIAL.search(words) if regex else "\n" in words):
        return lambda text: find_words(text, words)
    return lambda text: choose_way(text, expression)


def choose_way(text, expression):
    pattern = expression.pattern
    returns = "\r" in text     # not \r\n: one character is found at once
    if returns or LOOKS_AROUND.search(pattern):
        return find_lines_one_by_one(text, expression, returns)
    if RUNS_ON.search(pattern) or expression.flags & re.DOTALL:
        return find_lines(text, expression, SMALL_WINDOW)
    if LINE_START.match(pattern):
        return find_line_starts(text, expression)
    return find_lines(text, expression, WINDOW)


def surround(text, start, stop, lines):
    """The bounds with so many lines before and behind them."""
    for _ in range(lines):
        if start > 0:
            start = text.rfind("\n", 0, start - 1) + 1
        if stop + 1 < len(text):
            stop = line_end(text, stop + 1, len(text))
    return start, stop


def named_texts(value):
    """(what stands before its lines, text) of each text that this has."""
    if isinstance(value, str):
        return [("", value)]
    if not isinstance(value, (dict, list, tuple)):
        raise TypeError("grep searches a str, or a dict or list of them, not %s" % describe_kind(value))
    found = []
    for name, text in value.items() if isinstance(value, dict) else enumerate(value):
        if not isinstance(text, str):
            raise TypeError("grep searches a str, or a dict or list of them, but at %r there is a value of type "
                            "%s; give the texts in it, or json.dumps(…) of it" % (name, type(text).__name__))
        found.append(("%s: " % (name,), text))
    return found


def grep(text=CONTEXT, pattern=NOT_GIVEN, *, context=0, regex=True, ignore_case=False, limit=None):
    """The lines of `text` in which the regular expression `pattern` matches, as a list; with `context`, each with
    so many lines before and behind it. regex=False looks for the pattern as plain text. At most `limit` of them.
    Of a dict or list of texts, each has its key in front. A single argument is the pattern."""
    if pattern is NOT_GIVEN:
        if text is CONTEXT or (isinstance(text, str) and len(text) > 1000):
            raise TypeError("grep(text, pattern): there is no pattern")
        text, pattern = CONTEXT, text
    search, lines = choose_search(pattern, regex, ignore_case), []
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


def search_plain_text():
    """Has grep find, by default, what fleet-rlm's grep finds in its sandboxes of Modal: the very words, in upper or lower case."""
    grep.__kwdefaults__.update(regex=False, ignore_case=True)


# -- pieces

def chunk_by_size(text=CONTEXT, size=200000, overlap=0):
    """Pieces of `size` characters (of a list, items), each of which begins with the last `overlap` of the one
    before."""
    text = find_value(text)
    if size <= 0:
        raise ValueError("size must be positive")
    if overlap < 0:
        raise ValueError("overlap must be non-negative")
    if overlap >= size:
        raise ValueError("overlap must be less than size")
    length = len(cut(text, 0, None, "chunk_by_size"))       # of a str, it is no copy
    # What begins within the last `overlap` has nothing new.
    starts = range(0, max(length - overlap, min(length, 1)), size - overlap)
    return [text[at:at + size] for at in starts]


def trimmed(text, start, end):
    """text[start:end].strip(), without copying what is dropped."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return text[start:end]


def find_pieces(text, expression):
    """(match, start, end) from each match to the next. Before the first, if there is more than blanks, or where
    there is none, the match is None."""
    before, start = None, 0
    for match in expression.finditer(text):
        if before or trimmed(text, 0, match.start()):
            yield before, start, match.start()
        before, start = match, match.start()
    if text:
        yield before, start, len(text)


def chunk_by_headers(text=CONTEXT, pattern=r"^#{1,3} ", flags=re.MULTILINE):
    """A dict with `header`, `content` and `start_pos` for each part of `text` that begins with a line in which
    `pattern` matches. What stands before the first has the header ""."""
    text, chunks = find_text(text, "chunk_by_headers"), []
    for match, start, end in find_pieces(text, re.compile(pattern, flags | re.MULTILINE)):
        line = line_end(text, start, end) if match else start
        chunks.append({"header": trimmed(text, start, line), "content": trimmed(text, line, end),
                       "start_pos": start})
    return chunks


def chunk_by_timestamps(text=CONTEXT, pattern=r"^\d{4}-\d{2}-\d{2}[T ]", flags=re.MULTILINE):
    """A dict with `timestamp`, `content` and `start_pos` for each part of a log that begins where `pattern` matches;
    the content has all of it. What stands before the first has the timestamp ""."""
    text, chunks = find_text(text, "chunk_by_timestamps"), []
    for match, start, end in find_pieces(text, re.compile(pattern, flags)):
        none_at_all = not match and end == len(text)
        chunks.append({"timestamp": match.group().strip() if match else "",
                       "content": text if none_at_all else trimmed(text, start, end), "start_pos": start})
    return chunks


def chunk_by_json_keys(text=CONTEXT):
    """A dict with `key`, `content` (JSON) and `value_type` for each key of a JSON object, which may be a dict
    already."""
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
