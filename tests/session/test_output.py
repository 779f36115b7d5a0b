"""DESIGN.md: "stdout and stderr are captured at the descriptor level as well as in Python, so that
subprocesses and C extensions are heard; each is capped, head and tail are kept, and the number of
bytes left out is said."
"""
import re

import pytest

LEFT_OUT = re.compile(r"\n\.\.\. \[(\d+) bytes left out\] \.\.\.\n")


def test_the_two_streams_stay_apart(session):
    """stdout and stderr are captured: each is its own."""
    result = session.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_subprocesses_are_heard(session):
    """Captured at the descriptor level: what programs print that the cell starts is the cell's
    output."""
    result = session.execute(
        "import subprocess\nx = subprocess.run(['sh', '-c', 'echo out; echo err >&2'])")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_forks_are_heard(session):
    """What a child of the guest's own prints is the cell's output."""
    result = session.execute(
        "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    x = "
        "os.waitpid(pid, 0)")
    assert result.stdout == "child\n"


def test_c_extensions_are_heard(session):
    """Captured at the descriptor level: what C code writes, by write(2) and by stdio, is the cell's
    output."""
    result = session.execute(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nos.write(1, b'raw\\n')\nos.write(2, "
        "b'err\\n')\n"
        "x = libc.puts(b'stdio')\nx = libc.fflush(None)")
    assert (result.stdout, result.stderr) == ("raw\nstdio\n", "err\n")


def test_output_is_in_the_order_in_which_it_was_written(session):
    """Python's, C's and subprocesses' lines in one stream: none overtakes another."""
    result = session.execute(
        "import os, subprocess\nfor n in range(5):\n    print('python', n)\n    x = os.write(1, "
        "b'C %d\\n' % n)\n"
        "    x = subprocess.run(['echo', 'program', str(n)])")
    assert result.stdout.splitlines() == ["%s %d" % (who, n) for n in range(5)
                                          for who in ("python", "C", "program")]


def test_output_without_a_newline_is_whole(session):
    """What is not flushed by the code is in the result all the same, and not in the next one."""
    assert session.execute("print('no end', end='')").stdout == "no end"
    assert session.execute("import sys\nx = sys.stderr.write('half')").stderr == "half"
    assert session.execute("print('next')").stdout == "next\n"


def test_a_cell_has_its_own_output(session):
    """A cell that prints nothing has nothing, whatever was printed before."""
    session.execute("print('a')")
    result = session.execute("1")
    assert (result.stdout, result.stderr) == ("", "")


def test_a_thread_that_prints_after_its_cell_is_heard_in_a_later_one(session):
    """Nothing that a thread prints between cells is lost."""
    session.execute(
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(), "
        "print('late')))\nt.start()")
    heard = session.execute("go.set()").stdout + session.execute("t.join()").stdout
    assert heard == "late\n"


def test_a_program_that_prints_after_its_cell_is_heard_in_a_later_one(session):
    """The same for a subprocess in the background."""
    session.execute(
        "import subprocess\np = subprocess.Popen(['sh', '-c', 'read x; echo late'], "
        "stdin=subprocess.PIPE)")
    assert session.execute("x = p.communicate(b'go\\n')").stdout == "late\n"


def test_what_was_printed_before_an_error_is_there(session):
    """A cell that raises has its output, and so has one that ends the guest."""
    result = session.execute("print('before')\nimport sys\nprint('err', file=sys.stderr)\n1 / 0")
    assert (result.stdout, result.stderr) == ("before\n", "err\n")


def test_what_was_printed_before_the_end_of_the_guest_is_there(opened):
    """Lines that were written before `os._exit` are not lost with it."""
    result = opened().execute("import os\nprint('before')\nos.write(1, b'raw\\n')\nos._exit(3)")
    assert (result.stdout, result.killed) == ("before\nraw\n", "exit 3")


def test_redirected_output_goes_where_it_is_sent(session):
    """contextlib.redirect_stdout and a sys.stdout of the code's own work as in Python."""
    result = session.execute(
        "import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()) as f: "
        "print('caught')\n"
        "print('heard')\nSUBMIT(caught=f.getvalue())")
    assert (result.caught, result.stdout) == ("caught\n", "heard\n")


@pytest.mark.parametrize("code, seen", [
    ("print('é €  \U0001f600')", "é €  \U0001f600\n"), ("print('a\\0b')", "a\0b\n"),
    ("print('a\\r\\nb\\rc')", "a\r\nb\rc\n"),
    ("print('\\x1b[31mred')", "\x1b[31mred\n"), ("print('\\ufeffbom')", "\ufeffbom\n"),
    ("import os; x = os.write(1, b'a\\xffb\\xc3')", "a\ufffdb\ufffd"),
    ("print('\\ud800')", "\\ud800\n"),
], ids=["unicode", "NUL", "line ends", "escapes", "BOM", "no UTF-8", "lone surrogate"])
def test_output_is_text_whatever_is_in_it(session, code, seen):
    """Characters come as they were printed; bytes that are not UTF-8 are U+FFFD, lone surrogates
    are escapes."""
    assert session.execute(code).stdout == seen


@pytest.fixture
def capped(opened):
    return opened(output_limit="2000")


def test_long_output_keeps_head_and_tail_and_says_how_much_is_left_out(capped):
    """Each is capped, head and tail are kept, and the number of bytes left out is said."""
    result = capped.execute("print('A' * 1100 + 'B' * 100000 + 'C' * 1100, end='')")
    (left_out,) = LEFT_OUT.findall(result.stdout)
    head, _, tail = LEFT_OUT.split(result.stdout)
    assert (head, tail, int(left_out)) == ("A" * 1000, "C" * 1000, 100200)
    assert result.json["left_out"] == {"stdout": 100200, "stderr": 0}


def test_each_stream_has_a_cap_of_its_own(capped):
    """What one stream is flooded with takes nothing from the other."""
    result = capped.execute(
        "import os, sys\nprint('whole')\nfor _ in range(50): os.write(2, b'x' * 1000)")
    assert result.stdout == "whole\n" and result.json["left_out"] == {"stdout": 0, "stderr": 48000}


def test_output_up_to_the_cap_is_whole(capped):
    """The twin: a byte less than too much is all there, and the next cell starts anew."""
    for _ in range(2):
        result = capped.execute("print('x' * 2000, end='')")
        assert result.stdout == "x" * 2000 and result.json["left_out"]["stdout"] == 0


def test_characters_are_not_cut_apart(capped):
    """Head and tail end and begin with whole characters, and the number still adds up."""
    result = capped.execute("print('a' + '\U0001f600' * 1000, end='')")
    (left_out,) = LEFT_OUT.findall(result.stdout)
    head, _, tail = LEFT_OUT.split(result.stdout)
    assert "\ufffd" not in result.stdout and set(head[1:] + tail) == {"\U0001f600"}
    assert len((head + tail).encode()) + int(left_out) == 4001


def test_a_flood_does_not_hold_the_guest_up(capped):
    """Much more than any buffer: the cell ends, and both ends are there."""
    result = capped.execute(
        "import sys\nprint('first')\nfor _ in range(300): x = sys.stdout.write('y' * "
        "65536)\nprint('last')")
    assert result.stdout.startswith("first\nyyy") and result.stdout.endswith("yyylast\n")
    assert result.json["left_out"]["stdout"] == 300 * 65536 + 11 - 2000


def test_output_is_reported_as_it_comes(opened):
    """A listener hears of output while the cell runs, and the result has it, too."""
    chunks, interp = [], None

    def listen(stream, text):
        chunks.append((stream, text))
        if "go on" in text:
            interp.interrupt()

    interp = opened(on_output=listen)
    result = interp.execute("import time\nprint('go on', flush=True)\ntime.sleep(60)")
    assert (1, "go on\n") in chunks
    assert result.error.type == "KeyboardInterrupt" and result.stdout == "go on\n"
