"""droste repl, through a pipe and on a terminal."""
import os
import signal
import stat

import pytest
from droste_cli import Terminal, droste, recording


@pytest.fixture
def terminal(tmp_path):
    """A REPL at its first prompt."""
    with Terminal(tmp_path, "repl") as t:
        t.greeting = t.expect(">>> ")
        yield t


# Through a pipe --------------------------------------------------------------------------------

def test_a_pipe_runs_cell_by_cell(tmp_path):
    """Cells end where Python says so; the last expression of each is echoed, without prompts."""
    r = droste(tmp_path, "repl",
               stdin="x = 6\nx * 7\ndef f():\n    return x\n\nf()\nprint('out')\n")
    assert (r.stdout, r.stderr, r.returncode) == ("42\n6\nout\n", "", 0)


def test_the_last_cell_needs_no_blank_line(tmp_path):
    """A block that the end of the input leaves open is run."""
    r = droste(tmp_path, "repl", stdin="for i in range(3):\n    print(i)")
    assert (r.stdout, r.returncode) == ("0\n1\n2\n", 0)


def test_the_checks_leave_no_trace(tmp_path):
    """Asking whether a cell is complete changes neither `_` nor the numbers of the cells, binds
    nothing, imports nothing, and does not need the builtins that the user has replaced."""
    r = droste(tmp_path, "repl", stdin="40 + 2\n_\nimport sys, builtins\n'codeop' in sys.modules\n"
               "builtins.SUBMIT = None\n[n for n in dir() if not n.startswith('_')]\n1/0\n")
    assert r.stdout.splitlines() == ["42", "42", "False", "['answer', 'builtins', 'sys']"]
    assert 'File "<cell 7>", line 1' in r.stderr


def test_top_level_await_is_read_as_a_cell(tmp_path):
    """Blocks with async, which Python's own prompt would refuse, are read to their end."""
    r = droste(tmp_path, "repl", stdin="""import asyncio, contextlib
@contextlib.asynccontextmanager
async def c():
    yield 5

async with c() as v:
    await asyncio.sleep(0)
    print(v)

""")
    assert (r.stdout, r.stderr, r.returncode) == ("5\n", "", 0)


def test_a_syntax_error_is_reported_by_the_run(tmp_path):
    """What can never become complete is run, so that Python says what is wrong with it."""
    r = droste(tmp_path, "repl", stdin="x = )\nprint('after')\n")
    assert "SyntaxError" in r.stderr
    assert (r.stdout, r.returncode) == ("after\n", 1)


def test_the_status_is_of_the_last_cell_that_failed(tmp_path):
    """A pipe's caller learns of a failure, also where later cells went well."""
    assert droste(tmp_path, "repl", stdin="1/0\n1\n").returncode == 1
    assert droste(tmp_path, "repl", "--execute-timeout", "1",
                  stdin="1/0\nwhile True: pass\n\n1\n").returncode == 3


def test_a_death_is_reported_and_a_new_session_follows(tmp_path):
    """Why the sandbox died, that the variables are gone, and that `context` is there again."""
    (tmp_path / "c.txt").write_text("some context")
    r = droste(tmp_path, "repl", "--context", "c.txt",
               stdin="x = 1\nimport os; os._exit(3)\n'x' in globals()\ncontext\n")
    assert r.stdout == "False\n'some context'\n"
    assert "exited with status 3" in r.stderr
    assert "the variables are lost, `context` was loaded again" in r.stderr
    assert r.returncode == 3


def test_checkpoints_are_made_listed_and_gone_back_to(tmp_path):
    """What is typed wrongly is explained, and is not Python."""
    r = droste(tmp_path, "repl", stdin="x = 1\n/checkpoint\nx = 2\n/checkpoint\n/rollback 1\nx\n"
               "/checkpoints\n/forget 1\n/rollback 1\n/rollback\n/undo\nx\n")
    lines = r.stdout.splitlines()
    assert lines[:4] == ["checkpoint 1", "checkpoint 2",
                         "back at checkpoint 1; files are as they were left", "1"]
    assert lines[4].startswith("* 1  after cell 1, ")
    assert lines[5].startswith("  2  after cell 3, from 1, ")
    assert lines[6:] == ["1"]
    assert "there is no checkpoint 1; there are: 2" in r.stderr
    assert r.stderr.count("commands are /checkpoint, /checkpoints, /rollback ID and") == 2
    assert r.returncode == 2


def test_a_death_goes_back_to_the_last_checkpoint(tmp_path):
    """By hand or before each cell."""
    die = "import os; os._exit(3)\n"
    r = droste(tmp_path, "repl", stdin="x = 1\n/checkpoint\nx = 2\n" + die + "x\n")
    assert r.stdout == "checkpoint 1\n1\n"
    assert "its variables are gone" in r.stderr and "back at checkpoint 1" in r.stderr
    r = droste(tmp_path, "repl", "--checkpoint", "auto", stdin="x = 1\nx = 2; " + die + "x\n")
    assert r.stdout == "1\n" and r.returncode == 3
    assert "exited with status 3; rolled back to cell 1" in r.stderr


def test_a_session_that_died_between_cells_is_replaced(tmp_path):
    """A cell that meets a dead session is not run in the new one by surprise."""
    for limit in "1", "10":
        r = droste(tmp_path, "repl", "--timeout", limit,
                   stdin="import time; time.sleep(600)\nprint('in the new one')\n")
        if r.stdout:
            break       # else the new session's time was over, too
    assert "reached the end of its time" in r.stderr
    assert (r.stdout, r.returncode) == ("in the new one\n", 3)


def test_submissions_are_shown(tmp_path):
    """SUBMIT ends its cell and shows what was submitted."""
    r = droste(tmp_path, "repl", stdin="SUBMIT(a=1); print('not reached')\n")
    assert (r.stdout, r.returncode) == ('submitted: {"a": 1}\n', 0)


def test_images_are_saved_and_named(tmp_path):
    """Each image of a cell becomes a file with a name of the host's; other forms are their text."""
    code = (
        "display({'text/plain': 'a plot', 'image/png': b'PNG', 'image/svg+xml': '<svg/>'}, "
        "raw=True)\n"
            "class Drawing:\n    def _repr_svg_(self): return '<svg>2</svg>'\n"
            "    def __repr__(self): return 'a drawing'\n\nDrawing()\n"
            "display({'text/plain': 'a table', 'text/html': '<table>'}, raw=True)\n")
    r = droste(tmp_path, "repl", stdin=code, TMPDIR=str(tmp_path))
    directory, = tmp_path.glob("droste-results-*")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name: path.read_bytes()
            for path in directory.iterdir()} == {"1.png": b"PNG", "2.svg": b"<svg>2</svg>"}
    assert r.stdout.splitlines() == [
        "a plot", "[image/png, 3 bytes: %s/1.png]" % directory,
        "a drawing", "[image/svg+xml, 12 bytes: %s/2.svg]" % directory, "a table"]
    assert r.returncode == 0


def test_an_image_that_cannot_be_saved_is_no_failure_of_the_cell(tmp_path):
    r = droste(tmp_path, "repl", stdin="display({'image/png': b'x'}, raw=True)\n1 + 1\n",
               TMPDIR="/proc/none")
    assert "an image was not saved" in r.stderr and r.stdout.endswith("2\n") and r.returncode == 0


def test_llm_query_answers_with_a_model(tmp_path):
    """A configured model answers; without one the cell's error says how to configure it."""
    model = recording(tmp_path, {"content": "yes", "depth": 1})
    cell = "llm_query('is it?')\n"
    assert droste(tmp_path, "repl", "--model", model, stdin=cell).stdout == "'yes'\n"
    r = droste(tmp_path, "repl", stdin=cell)
    assert "no model is configured" in r.stderr and r.returncode == 1


def test_code_that_is_no_text_is_refused(tmp_path):
    """Bytes that are not UTF-8 are an error of that cell alone."""
    r = droste(tmp_path, "repl", stdin="x = '\udcff'\nprint('after')\n".encode(
        "utf-8", "surrogateescape").decode("latin-1"))
    assert r.stdout == "after\n"


def test_standard_input_cannot_be_both(tmp_path):
    """The code comes from standard input, so the context cannot."""
    r = droste(tmp_path, "repl", "--context", "-")
    assert r.returncode == 2 and "--context PATH" in r.stderr


# On a terminal ---------------------------------------------------------------------------------

def test_the_greeting_says_where_one_is(terminal):
    """One line: version, Python, isolation, model, and how to leave."""
    lines = terminal.greeting.strip().splitlines()
    assert len(lines) == 1
    for word in ("Droste", "Python 3.", "isolation", "no model", "Ctrl-D"):
        assert word in lines[0]


def test_blocks_get_a_second_prompt(terminal):
    """A block goes on until a blank line."""
    terminal.type("for i in 'ab':\n")
    terminal.expect("... ")
    terminal.type("print(i)\n".rjust(12))
    terminal.expect("... ")
    terminal.type("\n")
    assert terminal.expect(">>> ").split() == ["a", "b"]


def test_output_comes_while_the_cell_runs(terminal):
    """What is printed is shown before the cell ends."""
    terminal.type("import time; print('now'); time.sleep(1000)\n")
    terminal.expect("\nnow\n")
    terminal.type("\x03")
    terminal.expect(">>> ")


def test_an_interrupt_clears_the_line(terminal):
    """Ctrl-C at the prompt drops the line and the block before it; nothing of either runs."""
    terminal.type("if True:\n")
    terminal.expect("... ")
    terminal.type("    broken = 1")
    terminal.expect("broken = 1")
    terminal.type("\x03")
    terminal.expect(">>> ")
    assert terminal.line("'broken' in globals()").strip() == "False"


def test_an_interrupt_keeps_the_session(terminal):
    """Ctrl-C during a cell ends the cell, says that the session lives, and it does."""
    terminal.line("x = 41")
    terminal.type("import time; print('go', 1); time.sleep(1000)\n")
    terminal.expect("go 1\n")
    terminal.type("\x03")
    output = terminal.expect(">>> ")
    assert "KeyboardInterrupt" in output
    assert "interrupted; the session and its variables are kept" in output
    assert terminal.line("x + 1").strip() == "42"


def test_a_cell_that_cannot_be_interrupted_is_killed(tmp_path):
    """After the grace the sandbox is killed; that is told, and a new session goes on."""
    with Terminal(tmp_path, "repl", "--grace", "0.2") as t:
        t.expect(">>> ")
        t.type("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {2}); print('go', 1); "
               "__import__('time').sleep(1000)\n")
        t.expect("go 1\n")
        t.type("\x03")
        output = t.expect(">>> ")
        assert "did not stop within" in output and "new session: the variables are lost" in output
        assert t.line("'signal' in globals()").strip() == "False"


def test_the_end_of_the_input_leaves(terminal):
    """Ctrl-D leaves with 0, also after errors that the user has seen."""
    assert "ZeroDivisionError" in terminal.line("1/0")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_a_hangup_leaves_in_order(terminal, tmp_path):
    """SIGHUP, as from a closed window, ends the program, and the history is kept."""
    terminal.line("remembered = 1")
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.status() == 130
    assert "remembered" in (tmp_path / "data" / "history").read_text().replace("\\040", " ")


def test_the_history_outlives_the_program(terminal, tmp_path):
    """The last program's lines come back with the arrow key; other users cannot read them."""
    terminal.line("earlier = 'line'")
    terminal.type("\x04")
    assert terminal.status() == 0
    assert stat.S_IMODE((tmp_path / "data" / "history").stat().st_mode) == 0o600
    with Terminal(tmp_path, "repl") as t:
        t.expect(">>> ")
        t.type("\x1b[A")
        t.expect("earlier = 'line'")
        t.type("; earlier\n")
        assert "'line'" in t.expect(">>> ")


def test_letters_of_all_languages_can_be_typed(terminal):
    """Text that is not ASCII goes through editing unharmed."""
    assert terminal.line("len('häß→😀')").strip() == "5"


def test_output_cannot_act_on_the_terminal(terminal):
    """Control characters of the guest are shown, not obeyed."""
    before = len(terminal.output)
    output = terminal.line(r"print('\x1b]0;title\x07')")
    assert r"\x1b]0;title\x07" in output
    assert "\x1b]0;" not in terminal.output[before:]
