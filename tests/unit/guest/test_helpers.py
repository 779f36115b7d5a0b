"""The helpers for texts and files: what they give, and what they say where they cannot."""
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

TEXT = "one\ntwo\nthree\ntwo and two\n"


# ---- the text that is meant ----

def test_helpers_read_the_context_by_default(guest):
    """In each helper that takes a text; grep's single argument is the pattern."""
    guest.state.session.namespace["context"] = "# A\n2024-01-02 b\n"
    assert guest.peek(length=3) == "# A"
    assert guest.grep("b") == guest.grep(pattern="b") == ["2024-01-02 b"]
    assert guest.chunk_by_size(size=10) == ["# A\n2024-0", "1-02 b\n"]
    assert guest.chunk_by_headers()[0]["header"] == "# A"
    assert guest.chunk_by_timestamps()[1]["timestamp"] == "2024-01-02"
    guest.state.session.namespace["context"] = {"k": 1}
    assert guest.chunk_by_json_keys()[0]["key"] == "k"


@pytest.mark.parametrize("call", [lambda g: g.peek(), lambda g: g.grep("x"),
                                  lambda g: g.chunk_by_size(),
                                  lambda g: g.chunk_by_json_keys()],
                         ids=["peek", "grep", "size", "keys"])
def test_without_a_context_the_text_is_asked_for(guest, call):
    with pytest.raises(NameError, match="pass the text to search"):
        call(guest)


def test_none_is_no_text(guest):
    """A variable that is None by mistake never means `context`."""
    guest.state.session.namespace["context"] = "secret"
    for call in (guest.peek, guest.chunk_by_size, guest.chunk_by_headers,
                 lambda x: guest.grep(x, "s")):
        with pytest.raises(TypeError):
            call(None)


@pytest.mark.parametrize("value, cure",
                         [({"a.txt": "x"}, "1 keys, such as 'a.txt'; pass one of its values"),
                          (b"x", "value.decode"), (["x"], "one of its items"), (3, "int")])
def test_what_is_no_text_is_refused_with_what_to_do(guest, value, cure):
    with pytest.raises(TypeError) as e:
        guest.chunk_by_headers(value)
    assert "chunk_by_headers needs a str, not " in str(e.value) and cure in str(e.value)
    assert guest.chunk_by_headers("x")[0]["content"] == "x"


# ---- peek ----

@pytest.mark.parametrize("arguments, part", [((), "abcdef"), ((2,), "cdef"), ((2, 3), "cde"),
                                             ((-5, 3), "abc"),
                                             ((9,), ""), ((0, -1), ""), ((4, 100), "ef")])
def test_peek_is_a_part(guest, arguments, part):
    """A start before the beginning, as around an early match, is the beginning."""
    assert guest.peek("abcdef", *arguments) == part


def test_peek_shows_2000_characters_unless_asked(guest):
    assert len(guest.peek("x" * 5000)) == 2000


def test_peek_looks_into_lists_and_bytes_and_no_dicts(guest):
    assert guest.peek([1, 2, 3], 1, 1) == [2] and guest.peek(b"abc", 1) == b"bc"
    with pytest.raises(TypeError, match="such as 'a', 'b', 'c'; pass one of its values"):
        guest.peek(dict.fromkeys("abcd", ""))


def test_peek_says_which_number_is_none(guest):
    """Not that the text is not text."""
    for arguments in ((1.5,), (0, 1e3)):
        with pytest.raises(TypeError, match="indices must be integers"):
            guest.peek("abcdef", *arguments)


# ---- grep ----

def lines_of(text):
    """What grep means by them."""
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" and text.endswith("\n") or not text else lines


def slow_grep(text, pattern, context=0, flags=0):
    lines, expression = lines_of(text), re.compile(pattern, flags)
    return ["\n".join(lines[max(0, i - context):i + context + 1]) for i, line in enumerate(lines)
            if expression.search(line)]


PATTERNS = ["a", "ab", "a b", "", "^", "$", "^$", "^a", "a$", "^a$", "^a|b$", "^.b", r"^\s*b",
            r"^(?:a|b)", r"a\s+b", r"\s+",
            "a[^b]*b", "[^a]", r"\bab\b", "(?s)a.*b", r"a\Z", "a(?!b)", "a(?=b)", "(?<=a)b", r"\W",
            r"\D+", r"[\s\S]*b",
            r"a\n", ".*", "(a|b)+$", r"\S+\s*$", "(?i)A", "^(?P<x>a)(?P=x)", "[A-b]", "a{2}", "^{a",
            "^{,a}"]


@pytest.mark.parametrize("windows", [(1 << 16, 1 << 10), (3, 1)], ids=["large", "small"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_grep_finds_what_a_loop_over_lines_finds(guest, windows, ends):
    """For all sorts of patterns and texts, wherever the windows end in which it searches."""
    guest.WINDOW, guest.SMALL_WINDOW = windows
    choose = random.Random(7)
    hits = 0
    for _ in range(120):
        text = "".join(choose.choice(["a", "a", "b", " ", ends, ends])
                       for _ in range(choose.randrange(24)))
        for pattern, context, ignore in itertools.product(PATTERNS, (0, 1), (False, True)):
            wanted = slow_grep(text, pattern, context, re.IGNORECASE * ignore)
            assert guest.grep(text, pattern, context=context,
                              ignore_case=ignore) == wanted, (text, pattern, context)
            hits += len(wanted)
    assert hits > 10000


@pytest.mark.parametrize("pattern, options, found", [
    ("TWO", {}, []), ("TWO", {"ignore_case": True}, ["two", "two and two"]),
    ("t.o", {}, ["two", "two and two"]), ("t.o", {"regex": False}, []),
    ("two", {"regex": False}, ["two", "two and two"]),
    ("two", {"limit": 1}, ["two"]), ("two", {"limit": 0}, []),
    (re.compile("TWO$", re.I), {}, ["two", "two and two"]),
    ("two", {"context": 1}, ["one\ntwo\nthree", "three\ntwo and two"]),
    ("one", {"context": 9}, ["one\ntwo\nthree\ntwo and two"]),
    ("one\ntwo", {"regex": False}, []), ("one\ntwo", {}, []),
    (re.compile("one.*two", re.S), {}, []),
    (re.compile("o.*o$", re.S), {}, ["two and two"]),
])
def test_grep_does_as_it_is_asked(guest, pattern, options, found):
    assert guest.grep(TEXT, pattern, **options) == found


def test_grep_of_many_texts_says_where(guest):
    """By key, or by number; the limit is for all of them."""
    files = {"a.txt": TEXT, "b.txt": "two"}
    assert guest.grep(files, "two") == ["a.txt: two", "a.txt: two and two", "b.txt: two"]
    assert guest.grep(files, "two", limit=2) == ["a.txt: two", "a.txt: two and two"]
    assert guest.grep(["x", "two"], "two") == ["1: two"]
    assert guest.grep({}, "two") == []


@pytest.mark.parametrize("arguments, error, message", [
    (("text", "("), ValueError, "is not a regular expression: .*regex=False"),
    (("text", b"x"), TypeError, "pattern of type str"),
    ((b"text", "x"), TypeError, "value.decode"), (([{"a": 1}], "x"), TypeError, "json.dumps"),
    ((), TypeError, "pattern is missing"),
    (("x" * 2000,), TypeError, "pattern is missing"),
    ((3, "x"), TypeError, "not a value of type int"),
])
def test_grep_says_what_it_cannot_search(guest, arguments, error, message):
    guest.state.session.namespace["context"] = "x"
    with pytest.raises(error, match=message):
        guest.grep(*arguments)


def test_a_pattern_that_is_no_expression_is_found_as_text(guest):
    """The twin: what grep says to do works."""
    assert guest.grep("f(x)\ng", "f(", regex=False) == ["f(x)"]


# ---- chunks ----

def test_pieces_cover_the_text_with_their_overlap(guest):
    """All of it, none longer than asked, the last not within the overlap; for all small numbers."""
    for length, size in itertools.product(range(12), range(1, 6)):
        text = "abcdefghijkl"[:length]
        for overlap in range(size):
            pieces = guest.chunk_by_size(text, size, overlap)
            assert "".join([p[overlap if i else 0:] for i, p in enumerate(pieces)]) == text
            assert all(len(p) == size
                       for p in pieces[:-1]) and all(len(p) > overlap for p in pieces[1:])


def test_pieces_have_200000_characters_unless_asked(guest):
    assert [len(p) for p in guest.chunk_by_size("x" * 450000)] == [200000, 200000, 50000]


def test_lists_are_cut_too(guest):
    assert guest.chunk_by_size([1, 2, 3], 2) == [[1, 2], [3]] and guest.chunk_by_size([]) == []


@pytest.mark.parametrize("size, overlap, message",
                         [(0, 0, "size must be positive"), (3, -1, "overlap must be non-negative"),
                          (3, 3, "overlap must be less than size")])
def test_sizes_that_make_no_pieces_are_refused(guest, size, overlap, message):
    with pytest.raises(ValueError, match=message):
        guest.chunk_by_size("abc", size, overlap)


def headers(chunks):
    return [(c["header"], c["content"], c["start_pos"]) for c in chunks]


@pytest.mark.parametrize("text, chunks", [
    ("", []), ("  \n", [("", "", 0)]), (" no header ", [("", "no header", 0)]),
    ("# A\nx\n\n## B \ny\n", [("# A", "x", 0), ("## B", "y", 7)]),
    ("before\n# A", [("", "before", 0), ("# A", "", 7)]), ("\n\n# A\nx", [("# A", "x", 2)]),
    ("# A\n# B\n", [("# A", "", 0), ("# B", "", 4)]),
    ("#### deep\n# A", [("", "#### deep", 0), ("# A", "", 10)]),
])
def test_headers_begin_pieces(guest, text, chunks):
    assert headers(guest.chunk_by_headers(text)) == chunks


def test_headers_may_be_something_else(guest):
    """The pattern is one of lines, whatever flags are given."""
    assert headers(guest.chunk_by_headers("x\nCHAPTER 1\ny", "^chapter", re.IGNORECASE)) == [
        ("", "x", 0), ("CHAPTER 1", "y", 2)]


LOG = "start\n2024-01-02 a\n  more\n2024-01-03T00 b\n"


@pytest.mark.parametrize("text, chunks", [
    ("", []), (" none ", [("", " none ", 0)]),
    (LOG, [("", "start", 0), ("2024-01-02", "2024-01-02 a\n  more", 6),
           ("2024-01-03T", "2024-01-03T00 b", 26)]),
    ("\n2024-01-02 a", [("2024-01-02", "2024-01-02 a", 1)]),
])
def test_timestamps_begin_pieces(guest, text, chunks):
    assert [(c["timestamp"], c["content"], c["start_pos"])
            for c in guest.chunk_by_timestamps(text)] == chunks


@pytest.mark.parametrize("make", [json.dumps, lambda value: value], ids=["text", "dict"])
def test_keys_of_an_object_are_pieces(guest, make):
    """Of its text, and of what Droste has made a dict of already."""
    chunks = guest.chunk_by_json_keys(make({"a": {"é": [1]}, "b": None}))
    assert [(c["key"], c["value_type"]) for c in chunks] == [("a", "dict"), ("b", "NoneType")]
    assert chunks[0]["content"] == json.dumps({"é": [1]}, indent=2, ensure_ascii=False)


def test_values_that_are_no_json_are_shown_as_text(guest):
    """Of a dict that the code made; what is JSON is written as it is."""
    assert guest.chunk_by_json_keys({"p": pathlib.Path("/x"), "é": ["é"]}) == [
        {"key": "p", "content": '"/x"', "value_type": "PosixPath"},
        {"key": "é", "content": '[\n  "é"\n]', "value_type": "list"}]


@pytest.mark.parametrize("text, message", [("{", "Invalid JSON: "),
                                           ("[1]", "Expected JSON object, got list")])
def test_what_is_no_object_has_no_keys(guest, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        guest.chunk_by_json_keys(text)
    assert guest.chunk_by_json_keys(" ") == []


# ---- buffers ----

def test_buffers_say_what_was_done(guest):
    assert guest.add_buffer("b", 1) == {"status": "ok", "name": "b", "count": 1}
    assert guest.add_buffer(" ", 2) == {"status": "ok", "name": "default", "count": 1}
    assert guest.clear_buffer("b") == {"status": "ok", "scope": "single", "name": "b"}
    assert guest.get_buffer("b") == [] and guest.get_buffer("default") == [2]
    assert guest.clear_buffer() == {"status": "ok",
                                    "scope": "all"} and guest.get_buffer("default") == []


# ---- files and commands ----

@pytest.fixture
def place(tmp_path, monkeypatch):
    for path in ("b.txt", "a[1].txt", "sub/deep/c.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"caf\xc3\xa9 \xff\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_listed_by_whole_paths(guest, place):
    """They lead to the file wherever the code stands later; a directory that is not there has
    none."""
    assert guest.list_files() == [str(place / name) for name in ("a[1].txt", "b.txt", "sub")]
    assert guest.list_files("sub") == [str(place / "sub" / "deep")] and guest.list_files(
        "none") == []


def test_files_are_found_by_pattern(guest, place):
    assert guest.find_files(pattern="*.txt") == [str(place / "a[1].txt"), str(place / "b.txt")]
    assert guest.find_files("sub", "**/*.txt") == [str(place / "sub" / "deep" / "c.txt")]
    assert guest.find_files("none") == [] == guest.find_files(".", "*.md")


def test_a_directory_with_marks_in_its_name_is_no_pattern(guest, place):
    (place / "[x]").mkdir()
    (place / "[x]" / "f").write_text("")
    (place / "x").mkdir()
    (place / "x" / "wrong").write_text("")
    assert guest.find_files("[x]") == [str(place / "[x]" / "f")]


def test_a_file_is_read_as_text(guest, place):
    assert guest.read_file("b.txt") == "café \ufffd\n"
    with pytest.raises(FileNotFoundError, match="none"):
        guest.read_file("none")


def test_a_command_is_run(guest, place):
    """By a shell, where it is text; its input is empty."""
    assert guest.run("cat; cat b.txt; echo no >&2; exit 3") == {
        "exit_code": 3, "stdout": "café \ufffd\n", "stderr": "no\n", "ok": False}
    assert guest.run(["echo", "$HOME"]) == {"exit_code": 0, "stdout": "$HOME\n", "stderr": "",
                                            "ok": True}
    assert guest.run("pwd", cwd="sub")["stdout"] == str(place / "sub") + "\n"


def is_running(pid):
    try:
        return pathlib.Path("/proc/%d/stat"
                            % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_command_has_no_input(guest):
    """It does not wait for the session's own, nor take it."""
    ours, theirs = os.pipe()
    os.write(theirs, b"the session's")
    os.close(theirs)
    kept = os.dup(0)
    os.dup2(ours, 0)
    try:
        assert guest.run("cat") == {"exit_code": 0, "stdout": "", "stderr": "", "ok": True}
        assert os.read(0, 100) == b"the session's"
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(ours)


def test_a_command_over_its_time_ends_with_all_that_it_started(guest, place):
    """The shell's child too. The more time is for a machine that is slow to start it."""
    for seconds in (0.5, 5, 50):
        with pytest.raises(subprocess.TimeoutExpired):
            guest.run("sleep 1000 & echo $! > child.new && mv child.new child; wait",
                      timeout=seconds)
        if (place / "child").exists():
            break
    child = int((place / "child").read_text())
    for _ in range(2000):       # a killed process ends when the machine comes to it
        if not is_running(child):
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("the command's child is still there")
    assert guest.run("true", timeout=60)["ok"]


def test_a_path_is_below_the_repository(guest, place):
    """Where one was staged; else below the current directory. A whole path is itself."""
    assert guest.resolve_path("b.txt") == str(place / "b.txt")
    guest.state.session.repo = "/repo"
    assert guest.resolve_path("src/x.py") == guest.resolve_path(
        pathlib.Path("src/x.py")) == "/repo/src/x.py"
    assert guest.resolve_path("/etc/x") == "/etc/x"


def test_what_a_python_file_defines(guest, place):
    """Classes with their methods, and functions, in their order; nothing of what is within them."""
    (place / "m.py").write_text(
        "import os\nclass A:\n    'Doc.'\n    x = 1\n    def f(self): pass\n    async def g(self): "
        "pass\n"
        "def h():\n    %r\n    def inner(): pass\nasync def k(): pass\n" % ("d" * 300))
    assert json.loads(guest.extract_python_ast("m.py")) == [
        {"type": "Class", "name": "A", "methods": ["f", "g"], "doc": "Doc."},
        {"type": "Function", "name": "h", "doc": "d" * 200},
        {"type": "Function", "name": "k", "doc": ""}]
    (place / "wrong.py").write_text("def")
    with pytest.raises(SyntaxError):
        guest.extract_python_ast("wrong.py")
    assert guest.extract_python_ast("none.py") == guest.extract_python_ast(".") == "File not found."


# ---- programs beside the cells ----

def wait_for(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come to that")


def test_a_program_runs_on_and_its_output_is_read(guest, place):
    """Of both streams, the last lines; then how it ended. A name may be given again after that."""
    assert guest.start_background_process("a",
                                          "echo one; echo two >&2; cat b.txt; read x; "
                                          "exit 3").startswith(
        "the process 'a' was started, with pid ")
    wait_for(lambda: "exit" in guest.read_process_logs("a"))
    assert guest.read_process_logs("a") == "one\ntwo\ncafé \ufffd\n[exit code 3]"
    assert guest.read_process_logs(
        "a",
        1) == "café \ufffd\n[exit code 3]" and guest.read_process_logs("a", 0) == "[exit code 3]"
    assert guest.kill_process("a") == "the process 'a' had ended, with exit code 3"
    assert "was started" in guest.start_background_process("a", ["echo", "$HOME"])
    wait_for(lambda: "exit" in guest.read_process_logs("a"))
    assert guest.read_process_logs("a") == "$HOME\n[exit code 0]"


def test_a_program_is_killed_with_all_that_it_started(guest, place):
    guest.start_background_process(1, "sleep 1000 & echo $!; wait")
    assert guest.start_background_process("1",
                                          "true") == "[error: the process '1' is already running]"
    wait_for(lambda: guest.read_process_logs(1))
    child = int(guest.read_process_logs(1))
    assert is_running(child)
    assert guest.kill_process(1) == "the process '1' was killed"
    wait_for(lambda: not is_running(child))
    assert guest.read_process_logs(1).endswith("[exit code -9]")


def test_only_so_much_of_a_programs_output_is_kept(guest):
    guest.start_background_process("long",
                                   "yes line | head -n 5000; head -c 25000 /dev/zero | tr '\\0' x")
    wait_for(lambda: "exit" in guest.read_process_logs("long"))
    lines = guest.read_process_logs("long", 10 ** 6).split("\n")
    assert len(lines) == 1001 and lines[0] == "line"
    assert [len(line) for line in lines[-4:-1]] == [10000, 10000, 5000]


def test_an_error_of_a_program_is_reported(guest):
    for answer in (guest.read_process_logs("x"), guest.kill_process("x")):
        assert answer == "[error: there is no process 'x']"
    assert guest.start_background_process("x", ["/none/at/all"]).startswith(
        "[error: the process 'x' did not start: ")
    assert guest.start_background_process("x", "a\0b").startswith(
        "[error: the process 'x' did not start: ")


# ---- what was executed ----

def test_the_history_has_what_was_logged(guest):
    assert guest.get_session_history() == [] and guest.get_last_execution() is None
    guest.log_execution("x" * 201, {"stdout": "out", "stderr": "e" * 300, "final": {"a": 1}},
                        {"n": 1})
    guest.log_execution("y", "said")
    first, last = guest.get_session_history()
    assert first.pop("timestamp") <= last["timestamp"]
    assert first == {"code_preview": "x" * 200 + "...", "stdout_preview": "out",
                     "stderr_preview": "e" * 200 + "...",
                     "had_final": True, "metadata": {"n": 1}}
    assert last == guest.get_last_execution() and (last["stdout_preview"],
                                                   last["had_final"]) == ("said", False)
    guest.get_session_history().clear()
    assert len(guest.get_session_history()) == 2
    for n in range(2000):
        guest.log_execution(n, None)
    assert [e["code_preview"]
            for e in guest.get_session_history()] == [str(n) for n in range(1000, 2000)]


# ---- whose names they are ----

def test_grep_takes_plain_text_where_it_is_asked_to(guest):
    """Then as fleet-rlm's grep in a sandbox of Modal's: the very characters, in upper or lower
    case. What a call says of it holds."""
    text = "a.c\nabc\nA.C\n"
    assert guest.grep(text, "a.c") == ["a.c", "abc"]
    guest.search_plain_text()
    assert guest.grep(text, "a.c") == ["a.c", "A.C"] and guest.grep(text, "(") == []
    assert guest.grep(text, "AB", context=1) == ["a.c\nabc\nA.C"]
    assert guest.grep(text, "a.c", ignore_case=False) == ["a.c"] and guest.grep(
        text, "A..", regex=True) == ["a.c", "abc", "A.C"]


def test_helpers_are_documented_and_have_the_signatures_that_are_promised(guest):
    import inspect
    signatures = {f.__name__: str(inspect.signature(f)) for f in guest.HELPERS}
    assert signatures["peek"] == "(text=context, start=0, length=2000)"
    assert signatures["chunk_by_size"] == "(text=context, size=200000, overlap=0)"
    assert signatures["find_files"] == "(path='.', pattern='*')"
    assert all(f.__doc__ for f in guest.HELPERS)


def test_a_tool_takes_the_name_of_a_helper_once(guest):
    class Builtins:
        pass
    guest.state.session.builtins = Builtins
    for thing in guest.PUBLIC + guest.HELPERS:
        setattr(Builtins, thing.__name__, thing)
    assert guest.is_free("grep") and guest.is_free("my_own") and not guest.is_free("llm_query")
    guest.offer_tool("grep", len)
    assert Builtins.grep is len and not guest.is_free("grep")
