"""What stands on a real terminal (tmux), at several widths and in locales with and without UTF-8.

Clocks are not compared, and nothing is timed: a model answers when the test lets it.
"""
import re
import subprocess
import threading

import pytest

from droste_cli import DROSTE, PATIENCE, Terminal
from harness import repl
from terminals import TMUX, Model, Screen

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed (apt-get install tmux)")

STATUS = re.compile(r"^(turn \d+/\d+|starting)\b.* s$|^(turn \d+/\d+|starting)", re.M)
KEY = {"OPENAI_API_KEY": "sk-test-0123456789"}


class Story:
    """A run with a pause, a streamed reply, a cell that fails, and child runs."""

    def __init__(self):
        self.words, self.code, self.children = (threading.Event() for _ in range(3))
        child = "```repl\nSUBMIT('summary of %s')\n```"
        self.model = Model(
            ("Who", 503, "The engine is overloaded \x1b]0;owned\x07", {"Retry-After": "1"}),
            ("Who", "I look at the text first.\n\nWide: 日本語. " + "Many words follow here. " * 8
             + "\n", self.words,
             "```repl\ndef inner():\n    raise KeyError('the cause')  # red\n", self.code,
             "inner()\n```\n"),
            ("KeyError",
             repl("print(rlm_query_batched(['Read chapter one', 'Read chapter two']))")),
            ("chapter one", self.children, child % "one"),
            ("chapter two", self.children, child % "two"),
            ("", repl("SUBMIT('The whale \\x1b[31m did it')")))

    def screen(self, home, **options):
        return Screen(home, "run", "Who did it?", *self.model.flags(), "--max-recursion-depth", "2",
                      **KEY, **options)

    def __enter__(self):
        self.model.__enter__()
        return self

    def __exit__(self, *_):
        for event in (self.words, self.code, self.children):
            event.set()
        self.model.__exit__()


def statuses(text):
    return len(STATUS.findall(text))


def tree_is_shown(text):
    return len(re.findall(r"turn 1/8 asks", text)) == 2


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_run_fits_the_terminal(tmp_path, columns, locale):
    """The pause with its reason, the words, the code, the exception and the tree come in this
    order; one line of state is rewritten, without copies of it, and no text acts on the
    terminal."""
    utf8 = locale != "C"
    with Story() as story, story.screen(tmp_path, columns=columns, locale=locale) as screen:
        text = screen.wait(lambda text: "attempt 2 of 6 follows in" in text
                           and "\\x1b]0;owned\\x07" in re.sub(r"\n *", "", text))
        reason = text[text.index("~ attempt"):text.index("overloaded")].rstrip(" ").splitlines()
        assert all(row.startswith("    ") for row in reason[1:]), reason
        assert "127.0.0.1:" in "".join(reason)
        screen.wait(lambda text: "I look at the text first." in text and statuses(text) == 1)
        story.words.set()
        text = screen.wait(lambda text: "raise KeyError" in text and statuses(text) == 1)
        assert "> def inner():" in text and "Traceback" not in text
        story.code.set()
        text = screen.wait(lambda text: tree_is_shown(text) and statuses(text) == 1)
        assert "! KeyError: 'the cause'" in text
        assert ("├─" in text, "└─" in text) == (utf8, utf8) and utf8 or "`- " in text
        story.children.set()
        assert screen.left() == 0
        text = screen.text(scrollback=True)
        assert statuses(text) == 0 and text.count("answered in") == 2
        assert "The whale \\x1b[31m did it" in text
        end = " ".join(text[text.index("answered after"):].split())
        assert re.match(r"answered after 3 turns, \d+ calls, \d+ \+ \d+ tokens, .*\d\.\d\d s ", end)


def test_a_resize_leaves_no_copies(tmp_path):
    """While the lines at the bottom are rewritten, the terminal gets narrower and wider."""
    with Story() as story, story.screen(tmp_path, columns=120) as screen:
        story.words.set()
        story.code.set()
        screen.wait(tree_is_shown)
        for columns in (44, 100, 30, 60):
            screen.resize(columns)
            # The terminal shows what it has wrapped anew until the program draws again.
            screen.wait(lambda text: statuses(text) == 1 and text.count("Read chapter one") <= 2
                        and re.search("[├|]", text) and len(re.findall("asks the", text)) == 2)
        story.children.set()
        assert screen.left() == 0
        assert screen.text(scrollback=True).count("answered in") == 2


def test_the_pause_before_another_attempt_is_shown(tmp_path):
    """It is counted down, and Ctrl-C ends it."""
    with Model(("Who", 503, "busy", {"Retry-After": "30"})) as model:
        with Screen(tmp_path, "run", "Who did it?", *model.flags(), **KEY) as screen:
            screen.wait(lambda text: re.search(r"attempt 2 of 6 in [1-9][0-9.]* s", text))
            screen.type("C-c")
            assert screen.left() == 130


def test_an_interrupt_leaves_a_clean_screen(tmp_path):
    """Ctrl-C ends the run; the lines that were rewritten are gone, and the status is 130."""
    with Story() as story, story.screen(tmp_path) as screen:
        screen.wait("I look at the text first.")
        screen.type("C-c")
        assert screen.left() == 130
        text = screen.text()
        assert statuses(text) == 0 and "cancelled after" in text


def test_clocks_move_while_the_model_is_silent(tmp_path):
    """The line of state is drawn again although nothing comes."""
    with Story() as story, story.screen(tmp_path) as screen:
        first = screen.wait("I look at the text first.").splitlines()[-1]
        screen.wait(lambda text: text.splitlines()[-1] != first and statuses(text) == 1)


@pytest.mark.parametrize("env, colours", [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_real_terminal(tmp_path, env, colours):
    """Keywords and errors are coloured, unless NO_COLOR is set."""
    with Story() as story, story.screen(tmp_path, **env) as screen:
        for event in (story.words, story.code, story.children):
            event.set()
        assert screen.left() == 0
        text = screen.text(colours=True, scrollback=True)
        assert ("\x1b[35mraise" in text) == colours and ("\x1b[31m" in text) == colours
        assert colours or not re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", text)


def test_a_dumb_terminal_gets_lines_only(tmp_path):
    """Not one escape is written; child runs are told one by one."""
    with Story() as story:
        for event in (story.words, story.code, story.children):
            event.set()
        with Terminal(tmp_path, "run", "Who did it?", *story.model.flags(), "--max-recursion-depth",
                      "2",
                      TERM="dumb", **KEY) as terminal:
            assert terminal.status() == 0
            assert "\x1b" not in terminal.output and "child run 2 answered in" in terminal.output


def test_a_repl_on_a_real_terminal(tmp_path):
    """Ctrl-C stops the cell and keeps the variables; Ctrl-D leaves."""
    with Screen(tmp_path, "repl", columns=60) as screen:
        screen.wait(lambda text: text.endswith(">>>"))
        screen.line("x = 41; print('on')")
        screen.wait("\non\n>>>")
        screen.line("print('wa' + 'its'); import time; time.sleep(1000)")
        screen.wait("\nwaits")
        screen.type("C-c")
        screen.wait("kept")
        screen.line("x + 1")
        screen.wait("\n42\n>>>")
        screen.type("C-d")
        assert screen.left() == 0


def test_tab_completes_names(tmp_path):
    """Names of the session, attributes of its values, and a list where several fit. What a name
    from the sandbox may do to the terminal is nothing, and no variable is left behind."""
    with Screen(tmp_path, "repl", columns=80) as screen:
        screen.wait(lambda text: text.endswith(">>>"))
        screen.line(
            "whale_count = 41; whale_name = 'Moby'; globals()['whale\\x1b[31m'] = 1; 'bo' + 'und'")
        screen.wait("'bound'\n>>>")
        screen.line("before = set(globals()); 'se' + 't'")
        screen.wait("'set'\n>>>")
        screen.type("-l", "whale_c")
        screen.type("Tab")
        screen.wait(">>> whale_count")
        screen.line(" + 1")
        screen.wait("\n42\n>>>")
        screen.type("-l", "wh")
        screen.type("Tab")
        text = screen.wait("whale_count  whale_name\n>>> wh")
        assert "x1b" not in text.split("42")[-1]
        screen.type("-l", "ale_name.upp")
        screen.type("Tab")
        text = screen.wait(">>> whale_name.upper(")
        screen.line("" if text.endswith("()") else ")")     # Python 3.11 closes it
        screen.wait("'MOBY'\n>>>")
        screen.line("set(globals()) - before")
        screen.wait("{'before'}")


def test_a_block_is_one_entry_of_the_history(tmp_path):
    """Up brings the whole block, in the next session, too; others cannot read the file."""
    for session in range(2):
        with Screen(tmp_path, "repl", columns=80) as screen:
            screen.wait(lambda text: text.endswith(">>>"))
            if session == 0:
                screen.line("for i in range(2):")
                screen.wait("\n...")
                screen.line("    print('row', i)")
                screen.wait("print('row', i)\n...")
            else:
                screen.type("Up")
                screen.wait("for i in range(2):\n    print('row', i)")
                screen.type("Enter")
                screen.wait("\n...")
            screen.type("Enter")
            screen.wait("row 0\nrow 1\n>>>")
            screen.type("C-d")
            assert screen.left() == 0
    assert (tmp_path / "data" / "history").stat().st_mode & 0o777 == 0o600


def test_a_chat_on_a_real_terminal(tmp_path):
    """An answer, a command, and a way out; the prompt stands alone below each."""
    with Model(("one?", "Let me see.\n```repl\nSUBMIT('first answer')\n```")) as model:
        with Screen(tmp_path, "chat", *model.flags(), columns=60, **KEY) as screen:
            screen.wait(lambda text: text.endswith("\n?"))
            screen.line("one?")
            text = screen.wait("first answer\n?")
            assert statuses(text) == 0 and "Let me see." in text
            screen.line("/cost")
            screen.wait("1 question, 1 call, 1000 + 100 tokens")
            screen.line("/qiut")
            screen.wait("did you mean /quit")
            screen.line("/quit")
            assert screen.left() == 0


@pytest.mark.parametrize("columns", [40, 80])
def test_the_cost_is_on_the_screen(tmp_path, columns):
    """While a run goes on and at its end, and in a chat with /cost, if the model has a price."""
    (tmp_path / "prices").write_text("gpt-5-mini 1 10\n")
    silence = threading.Event()
    replies = [("one?", repl("print('looked')")), ("looked", silence, repl("SUBMIT('found')"))]
    flags = ["--prices", tmp_path / "prices"]
    with Model(*replies, ("two?", repl("SUBMIT('other')"))) as model:
        with Screen(tmp_path, "chat", *model.flags(), *flags, columns=columns, **KEY) as screen:
            screen.wait(lambda text: text.endswith("\n?"))
            screen.line("one?")
            state = screen.wait(lambda text: re.search(r"^turn 2/\d+.*\$0\.00200", text, re.M))
            assert statuses(state) == 1
            silence.set()
            assert "$0.00400" in screen.wait("found\n?")
            screen.line("two?")
            assert "$0.00200" in screen.wait("other\n?").partition("found\n?")[2]
            screen.line("/cost")
            text = screen.wait("$0.0060")
            assert "2 questions, 3 calls, 3000 + 300 tokens, $0.0060" in " ".join(text.split())


def test_remarks_break_between_words(tmp_path):
    """The greetings of repl and chat, the help of a chat, and notes, at 40 columns."""
    with Screen(tmp_path, "repl", columns=40) as screen:
        text = screen.wait(lambda text: text.endswith(">>>"))
        assert re.search(r"^Droste [0-9.]+, Python [0-9.]+, isolation\n\w+, no model. Ctrl-C "
                         r"interrupts,\nexit\(\) or Ctrl-D leaves.\n>>>", text)
        screen.line("import os; os._exit(1)")
        assert "\ndroste: new session: the variables are\nlost\n>>>" in screen.wait("lost")
    with Screen(tmp_path, "chat", "--model", "replay:/dev/null", columns=40) as screen:
        text = screen.wait(lambda text: text.endswith("\n?"))
        assert "Type a question. /help lists the\ncommands; Ctrl-C stops, Ctrl-D leaves." in text
        screen.line("/help")
        text = screen.wait("Ctrl-D do")
        assert "Each line is a question. Ctrl-C stops\nthe one that is being answered.\n" in text
        assert "  /context [PATH]   give the next\n    question a context, or list the\n" in text


def test_a_notice_makes_room_for_what_follows(tmp_path):
    """An error after it stands at the beginning of the row, alone."""
    (tmp_path / "wheels").mkdir()
    with Screen(tmp_path, "packages", "build", "--packages", "missing", "--package-index", "none",
                "--find-links", tmp_path / "wheels") as screen:
        text = screen.wait("were not built")
        assert text.lstrip().startswith("droste: the packages were not built"), text


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lists_and_errors_fit_the_terminal(tmp_path, columns):
    """A run is one row, with as many columns as fit; the second column of a table stays in line;
    errors break between words."""
    (tmp_path / "two.jsonl").write_text('{"content": "Wait."}\n')
    run = "%s run 'Which of the %s words is it?' --model replay:two.jsonl" % (DROSTE, "many " * 50)
    with Screen(tmp_path, command="%s; %s runs ls; %s runs show last; %s prompts; %s nosuch" % (
            run, *[DROSTE] * 4), columns=columns, rows=300) as screen:
        screen.left()
        text = screen.text()
        whole = screen.tmux("capture-pane", "-p", "-J")     # joins rows of one line
    assert max(map(len, whole.splitlines())) <= columns
    table = text[text.index("RUN  "):text.index("run       ")].splitlines()
    assert len(table) == 2 and " error " in table[1], table
    assert ("SECONDS" in table[0], "MODEL" in table[0]) == (columns == 200, columns > 40)
    assert re.search(r"^question  Which of the( many)+\n          many many", text, re.M) or \
        columns == 200
    assert columns == 40 or "\nsystem                   The system prompt" in text
    assert "has no answer for" in text and "unknown command 'nosuch'" in text


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help_breaks_between_words(tmp_path, columns):
    """Also where a terminal is narrower than the text; examples stay whole, to be copied."""
    for words in (["--help"], ["volume", "--help"], ["run", "--help", "all"]):
        with Screen(tmp_path, *words, columns=columns, rows=400) as screen:
            assert screen.left() == 0
            shown = screen.tmux("capture-pane", "-p", "-J", "-S", "-")     # joins rows of one line
        text = shown.partition("Examples:")[0].partition("[left with")[0]
        assert max(map(len, text.splitlines())) <= columns, text
        whole = subprocess.run([DROSTE, *words], capture_output=True, text=True, check=True,
                               timeout=PATIENCE).stdout.partition("Examples:")[0]
        assert text.split() == whole.split()
