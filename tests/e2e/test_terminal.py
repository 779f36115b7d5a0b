"""What people see: progress and its colours, whole messages, input that would be lost, and how to
leave."""
import http.server
import json
import os
import threading

import pytest

from harness import refused, repl, write_replay
from droste_cli import plain, Terminal

FAILS = repl("def inner():\n    raise KeyError('the cause')\ninner()")


def show(tmp_path, *turns, **env):
    """All that a terminal is sent by a run of these turns, escape sequences included."""
    write_replay(tmp_path / "m.jsonl", *turns)
    with Terminal(tmp_path, "run", "--question", "q", "--model", "replay:m.jsonl", **env) as t:
        assert t.status() == 0
        return t.output


# ---- progress ----

def test_a_failing_turn_shows_its_exception(tmp_path):
    """The last lines of the traceback, under the code that raised; a turn that went well has
    none."""
    text = show(tmp_path, FAILS, repl("SUBMIT(1)"))
    at = text.index("turn 2 of")
    assert "KeyError: 'the cause'" in text[:at] and "in inner" in text[:at] and "error" in text[:at]
    assert "  ! " not in text[at:]


def test_of_a_long_traceback_the_end_is_shown(tmp_path):
    """Where it was raised counts; the frames before that are in `runs show`."""
    deep = ("def f(n):\n    return g(n)\ndef g(n):\n    if n == 0:\n"
            "        raise OSError('at the end')\n    return f(n - 1)\nf(20)")
    text = show(tmp_path, repl(deep), repl("SUBMIT(1)"))
    complaint = [line for line in text.splitlines() if "  ! " in line]
    assert len(complaint) == 8 and "OSError: at the end" in complaint[-1]


@pytest.mark.parametrize("env, paints, moves", [
    ({}, True, True), ({"NO_COLOR": "1"}, False, True), ({"NO_COLOR": ""}, True, True),
    ({"TERM": "dumb"}, False, False)])
def test_colours_are_left_out_where_they_are_not_wanted(tmp_path, env, paints, moves):
    """NO_COLOR takes the colours away, TERM=dumb also the line that is rewritten in place; the
    words stay."""
    text = show(tmp_path, repl("print('out')\nSUBMIT(1)"), **env)
    assert ("\x1b[1m" in text) == paints and ("\x1b[K" in text) == moves, text
    for words in ("turn 1 of", "> print('out')", "| out", "answered after 1 turn, 1 call,"):
        assert words in plain(text)
    assert paints or moves or "\x1b" not in text


# ---- messages ----

LONG = "The organization 'example' has no quota: " + " ".join(
    "reason%d" % i for i in range(120)) + ". Ask billing."


@pytest.fixture
def refuses():
    """refuses(message): the flags of a run whose provider answers every request with this
    message."""
    servers = []

    def start(message):
        class Refuses(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.dumps({"error": {"message": message,
                                             "type": "invalid_request_error"}}).encode()
                self.send_response(400)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        servers.append(http.server.HTTPServer(("127.0.0.1", 0), Refuses))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return ["run", "--question", "q", "--model", "m", "--base-url",
                "http://127.0.0.1:%d/v1" % servers[-1].server_port]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_message_of_a_provider_is_whole(droste, refuses):
    """On the screen, in --json and in the record: what helps may stand at its end."""
    flags = refuses(LONG)
    assert LONG in droste(*flags).complaint
    assert LONG in droste(*flags, "--json").json["error"]["message"]
    assert all(LONG in run["error"] for run in droste.record.runs)


def test_a_message_that_is_cut_says_so(droste, refuses):
    """What is longer than any message should be ends with an ellipsis, on the screen and in the
    record."""
    complaint = droste(*refuses(100 * LONG)).complaint
    assert LONG in complaint and 100 * LONG not in complaint and complaint.endswith("…")
    assert droste.record.run["error"].endswith("…")


def test_a_message_of_a_program_that_is_cut_says_so(droste, tmp_path):
    """The same of a model that is a program."""
    program = tmp_path / "model.py"
    program.write_text("#!/usr/bin/python3\nimport json, sys\nfor line in sys.stdin:\n"
                       "    print(json.dumps({'id': json.loads(line)['id'], 'error': 'long ' * "
                       "1000}), flush=True)\n")
    program.chmod(0o755)
    complaint = droste("run", "--question", "q", "--model", "exec:%s" % program).complaint
    assert "long long" in complaint and complaint.endswith("…")


@pytest.mark.parametrize("words, best", [
    (["exce"], "exec"), (["runs", "sohw", "x"], "show"), (["volume", "craete", "v"], "create"),
    (["env", "shwo"], "show")])
def test_a_mistyped_word_gets_a_suggestion(droste, words, best):
    """Commands and their verbs; what resembles none of them gets the list."""
    result = droste(*words)
    assert result.status == 2 and "did you mean %s?" % best in result.err
    result = droste("runs", "elephant")
    assert result.status == 2 and "expected one of: ls, show, " in result.err


# ---- standard input ----

ANSWERS = repl("SUBMIT(len(context))")


def test_input_that_nothing_reads_is_a_mistake(droste, replay, tmp_path):
    """A pipe or a file on standard input without --context -: nothing is asked, and the message
    says what to do."""
    (tmp_path / "text").write_text("some text\n")
    for options in ({"input": "some text\n"}, {"stdin": open(tmp_path / "text")}):
        result = droste("run", "--question", "q", "--model", replay(ANSWERS), **options)
        assert result.status == 2 and result.out == ""
        assert "--context -" in result.err and "/dev/null" in result.err
    assert droste("runs", "ls", "--json").out == "[]\n"


def test_input_that_is_asked_for_is_read(droste, replay):
    """The twin: with --context - it is the context."""
    result = droste("run", "--question", "q", "--model", replay(ANSWERS), "--context", "-",
                    input="some text\n")
    assert (result.status, result.out) == (0, "10\n")


@pytest.mark.parametrize("options", [{}, {"input": ""}])
def test_no_input_is_no_mistake(droste, replay, options):
    """/dev/null and a pipe that ends at once are what programs have that give no input."""
    result = droste("run", "--question", "q", "--model", replay(ANSWERS), **options)
    assert (result.status, result.out, result.err) == (0, "0\n", "")


@pytest.mark.parametrize("words", [["-c", "print(1)"], ["code.py"]])
def test_input_that_code_cannot_read_is_noted(droste, words):
    """The code of `exec` has no standard input; what is piped to it is a context, or code."""
    with open(os.path.join(droste.home, "code.py"), "w") as f:
        f.write("print(1)")
    result = droste("exec", *words, input="data\n")
    assert (result.status, result.out) == (0, "1\n") and "use --context -" in result.err
    for more in ({"input": ""}, {}):
        assert droste("exec", *words, **more).err == ""
    result = droste("exec", "-c", "print(context)", "--context", "-", input="data\n")
    assert (result.out, result.err) == ("data\n\n", "")
    result = droste("exec", "-", input="print(2)")
    assert (result.out, result.err) == ("2\n", "")


def test_input_beside_a_context_is_noted(droste, replay, tmp_path):
    """`while read` loops are fine: the run goes on with the context that was given."""
    (tmp_path / "c.txt").write_text("abc")
    result = droste("run", "--question", "q", "--model", replay(ANSWERS), "--context",
                    tmp_path / "c.txt", input="more\n")
    assert (result.status,
            result.out) == (0, "3\n") and "standard input is not read" in result.complaint


def test_an_empty_pipe_is_not_paid_for(droste, replay):
    """--context - with nothing in it: the command before the pipe has failed, and no model is
    asked."""
    result = droste("run", "--question", "q", "--model", replay(ANSWERS), "--context", "-",
                    input="")
    refused(result, 2, "standard input is empty")


# ---- leaving ----

@pytest.mark.parametrize("word", ["exit", "quit", "exit()", ":q", "/quit", "  exit  "])
def test_leaving_a_chat_costs_nothing(droste, tmp_path, word):
    """The words that leave other prompts are not questions; one that only begins so is."""
    model = write_replay(tmp_path / "m.jsonl", repl("SUBMIT(1)"), repl("SUBMIT(2)"))
    result = droste("chat", "--model", model, input="exit strategy?\n%s\nnever asked\n" % word)
    assert (result.status, result.out) == (0, "1\n") and len(droste.record.runs) == 1


@pytest.mark.parametrize("cell, status", [("exit()", 0), ("import sys; sys.exit(3)", 3),
                                          ("raise SystemExit('bye')", 1)])
def test_exit_leaves_a_repl(tmp_path, cell, status):
    """exit() and sys.exit() end it with their status, on a terminal and from a pipe."""
    with Terminal(tmp_path, "repl") as t:
        t.expect(">>> ")
        t.type(cell + "\n")
        assert t.status() == status


def test_exit_leaves_a_repl_of_a_pipe(droste):
    """What stands behind it is not run."""
    result = droste("repl", input="print('on')\nexit(4)\nprint('not reached')\n")
    assert (result.status, result.out, result.err) == (4, "on\n", "")
