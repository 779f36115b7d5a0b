"""Conversations: several questions over one session, alive (`droste chat`) or gone over again from
the record (`droste run --continue`)."""
import json
import os
import subprocess

import pytest

from harness import Record, repl, wait_until, write_replay
from droste_cli import DROSTE, PATIENCE, Terminal, environment
from terminals import Model
from test_resume import settle

FIRST = repl("x = llm_query('p') + context.strip()\nSUBMIT(answer=x)")
SAID = {"content": "said ", "depth": 1}


@pytest.fixture
def place(droste, tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text(name + "\n")
    return tmp_path


def begin(droste, place, *lines, flags=()):
    """The first question; its run's id."""
    result = droste("run", "--question", "What is it?", "--json", "--context", place / "one",
                    "--model", write_replay(place / "first.jsonl", *lines), *flags)
    assert result.json["status"] == "answered", result
    return result.json["run"]


def go_on(droste, place, run, *lines, flags=(), question="And now?"):
    return droste("run", "--continue", run, "--question", question, "--json",
                  "--model", write_replay(place / "next.jsonl", *lines), *flags)


def refused(result, *words):
    assert result.status != 0 and result.out == "", result
    for word in words:
        assert word in result.complaint


# ---- from the record ----

def test_variables_are_there_and_nothing_is_asked_again(droste, serve, place):
    """The server sees the new question's calls only; each run has its own usage, and names the one
    before."""
    server = serve(turns=[repl("x = llm_query('p')\nSUBMIT(answer=x)")])
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    first = droste("run", "--question", "q", "--json", "--model", "turns", "--sub-model", "digest",
                   env=env)
    assert first.status == 0 and server.stats()["requests"] == 2, first
    second = go_on(droste, place, first.json["run"], repl("SUBMIT(answer=x)"))
    assert second.json["answer"] == first.json["answer"] and server.stats()["requests"] == 2
    assert second.json["usage"]["calls"] == 1
    runs = droste.record.runs
    assert [r["previous"]
            for r in runs] == [None, first.json["run"]] and [r["calls"] for r in runs] == [2, 1]
    assert len(droste.record.calls) == 3 and droste.record.is_whole


def test_the_record_of_the_first_run_stays_as_it_is(droste, place):
    """Going over it writes nothing."""
    run = begin(droste, place, FIRST, SAID)
    before = droste("runs", "export", run).out
    assert go_on(droste, place, run, repl("SUBMIT(answer=x)")).json["answer"] == "said one"
    assert droste("runs", "export", run).out == before


def test_a_chain_of_questions(droste, place):
    """Contexts count on, the first one stays `context`; what was said is `history`, and in the
    messages."""
    one = begin(droste, place, FIRST, SAID)
    two = go_on(droste, place, one, repl("y = x + context_1\nSUBMIT(answer={'y': y})"),
                flags=["--context", place / "two"], question="More?")
    assert two.json["answer"] == {"y": "said onetwo\n"}
    three = go_on(droste, place, two.json["run"], repl("print(y)"),
                  repl("SUBMIT(answer=[x, y, context, context_0, context_1, context_2, history])"),
                  flags=["--context", place / "three"])
    assert three.json["answer"] == [
        "said one", "said onetwo\n", "one\n", "one\n", "two\n", "three\n",
        [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "said one"},
         {"role": "user", "content": "More?"},
         {"role": "assistant", "content": '{"y":"said onetwo\\n"}'}]]
    shown = droste("runs", "show", three.json["run"]).out
    assert "\nafter     %s\n" % two.json["run"] in shown
    assert droste("runs", "show", three.json["run"], "--json").json["previous"] == two.json["run"]
    assert droste("runs", "ls").out.count("↳ ") == 2
    traces = droste("runs", "export", "--all", "--format", "otlp").out
    assert traces.count('"gen_ai.conversation.id","value":{"stringValue":"%s"}' % one) == 2


def test_the_messages_of_before_come_before_the_question(droste, place):
    """The model that is asked has all of them; the record of the call has what is new."""
    run = begin(droste, place, FIRST, SAID)
    result = go_on(droste, place, run, repl("SUBMIT(answer=1)"),
                   flags=["--record", place / "calls.jsonl"])
    (call,) = [json.loads(line) for line in open(place / "calls.jsonl")]
    assert [m["role"] for m in call["messages"]] == ["system", "user", "assistant", "user"]
    assert "What is it?" in call["messages"][1]["content"] and call["messages"][2][
        "content"] == FIRST
    assert 'answer was accepted: "said one"' in call["messages"][3]["content"]
    lines = [json.loads(line) for line in droste("runs", "export",
                                                 result.json["run"]).out.splitlines()]
    (root,) = [line for line in lines if line["type"] == "call"]
    assert [m["role"]
            for m in root["request"]] == ["user"] and "And now?" in root["request"][0]["content"]


def test_several_may_go_on_from_one(droste, place):
    """Each has the variables as they were then."""
    run = begin(droste, place, FIRST, SAID)
    code = repl("z = globals().get('z', 0) + 1\nSUBMIT(answer=z)")
    assert [go_on(droste, place, run, code).json["answer"] for _ in range(2)] == [1, 1]


def test_tools_and_children_are_answered_from_the_record(droste, place):
    """The program is started once for each call that was ever asked, a child run is in the record
    once."""
    (place / "count").write_text("#!/bin/sh\necho x >> calls\nwc -l < calls\n")
    (place / "count").chmod(0o755)
    run = begin(droste, place, repl("a = count()\nb = rlm_query('child')\nSUBMIT(answer=[a, b])"),
                {"content": repl("SUBMIT(answer=count())"), "depth": 1},
                flags=["--tool", "count=%s" % (place / "count")])
    assert droste.record.runs[0]["answer"] and len(droste.record.runs) == 2
    result = go_on(droste, place, run, repl("SUBMIT(answer=[a, b, count()])"))
    assert result.json["answer"] == [1, 2, 3]
    assert len(droste.record.runs) == 3


def test_settings_default_to_those_of_the_run(droste, place):
    """What the first question had holds for the next; a flag of its own goes over it."""
    run = begin(droste, place, FIRST, SAID, flags=["--max-iterations", "7", "--setup-code",
                                                   "given = 5"])
    result = go_on(droste, place, run, repl("SUBMIT(answer=given)"), flags=["--max-llm-calls", "3"])
    limits = droste("runs", "show", result.json["run"], "--json").json["limits"]
    assert result.json["answer"] == 5 and (limits["max_iterations"],
                                           limits["max_llm_calls"]) == (7, 3)


def test_budgets_are_each_questions_own(droste, place):
    """The first one has used up its calls; the next has as many."""
    run = begin(droste, place, FIRST, SAID, flags=["--max-llm-calls", "1"])
    result = go_on(droste, place, run, repl("try:\n    for i in range(9): y = llm_query('p')\n"
                                            "except BudgetExceeded: SUBMIT(answer=i)"),
                   {"content": "y", "depth": 1, "repeat": True})
    assert result.json["answer"] == 1


@pytest.mark.parametrize("flags, code", [
    (["--max-iterations", "1"], "x = 'kept'"),
    (["--max-errors", "1"], "x = 'kept'\n1 / 0"),
], ids=["exhausted", "errors"])
def test_a_run_without_an_answer_can_be_gone_on_from(droste, place, flags, code):
    """What its code bound is there for the next question, whatever ended it."""
    result = droste("run", "--question", "q", "--json", "--model",
                    write_replay(place / "first.jsonl", repl(code), "I do not know"), *flags)
    assert result.status != 0
    assert go_on(droste, place, result.json["run"],
                 repl("SUBMIT(answer=x)")).json["answer"] == "kept"


def test_a_sandbox_that_died_is_gone_over_as_it_was(droste, place):
    """What was lost then is not there now; what came after is."""
    run = begin(droste, place, repl("old = 1\nimport os\nos._exit(3)"),
                repl("new = 2\nSUBMIT(answer=1)"))
    result = go_on(droste, place, run, repl("SUBMIT(answer=['old' in globals(), new])"))
    assert result.json["answer"] == [False, 2]


# ---- what is refused ----

def test_code_that_does_something_else_stops_it(droste, place):
    """The error names the turn and cell; no model is asked, and no run is recorded."""
    run = begin(droste, place,
                repl("import os\nx = llm_query(os.urandom(4).hex())\nSUBMIT(answer=x)"), SAID)
    refused(go_on(droste, place, run, repl("SUBMIT(answer=1)"), SAID), run,
            "cannot be gone on from", "turn 1, cell 1")
    assert len(droste.record.runs) == 1 and len(droste.record.calls) == 2


def test_a_context_that_changed_is_refused(droste, place):
    """A file that is not what it was cannot be gone over again."""
    run = begin(droste, place, FIRST, SAID)
    (place / "one").write_text("another\n")
    refused(go_on(droste, place, run, repl("SUBMIT(answer=1)")), "has changed")


def test_runs_that_are_not_there_or_not_over_are_refused(droste, place):
    """By name, and for one that was broken off with the command that resumes it."""
    run = begin(droste, place, FIRST, SAID)
    refused(go_on(droste, place, "nonsense", "x"), "nonsense")
    settle(droste,
           "UPDATE runs SET status = 'running', ended_ms = NULL, owner_pid = 999999999, "
           "owner_start = 1")
    refused(go_on(droste, place, run, "x"), "was interrupted", "droste runs resume")


def test_a_chain_with_a_run_removed_is_refused(droste, place):
    """The run that is missing is named."""
    run = begin(droste, place, FIRST, SAID)
    two = go_on(droste, place, run, repl("SUBMIT(answer=1)")).json["run"]
    assert droste("runs", "rm", run).status == 0
    refused(go_on(droste, place, two, "x"), "the question before run '%s'" % two)


# ---- a question that was killed ----

def test_a_killed_question_is_resumed_with_what_came_before(droste, serve, place):
    """Its own calls are not made again, and those of the questions before neither."""
    server = serve(turns=[repl("x = llm_query('a')\nSUBMIT(answer=x)")])
    later = serve(turns=["its turn was the first one's", repl("y = llm_query('b')"),
                         repl("z = llm_query('hang')\nSUBMIT(answer=[x, y, history[0]])")])
    key = {"OPENAI_API_KEY": "k"}
    first = droste("run", "--question", "q", "--json", "--model", "turns", "--sub-model", "digest",
                   env={
        **key, "OPENAI_BASE_URL": server.url})
    process = droste.start("run", "--continue", first.json["run"], "--question", "r", "--json",
                           env={
        **key, "OPENAI_BASE_URL": later.url})
    wait_until(lambda: [c for c in droste.record.calls
                        if c["status"] == "running" and c["kind"] == "sub"] and
               later.stats()["last"]["body"]["messages"][-1]["content"].startswith("hang"),
               what="the call")
    process.kill()
    process.wait()
    before = server.stats()["requests"], later.stats()["requests"]
    result = droste("runs", "resume", droste.record.runs[1]["id"], "--json", env=key)
    assert result.status == 0, result
    assert result.json["answer"][0] == first.json["answer"]
    assert result.json["answer"][2] == {"role": "user", "content": "q"}
    assert (server.stats()["requests"], later.stats()["requests"]) == (before[0], before[1] + 1)
    assert len(result.json["resumed"]["repeated"]) == 1


# ---- a session that lives ----

def talk(droste, place, text, *lines, flags=(), name="chat.jsonl"):
    return droste("chat", "--model", write_replay(place / name, *lines), *flags, input=text,
                  cwd=place)


def test_a_chat_keeps_its_session(droste, place):
    """One sandbox: what is not in the record (an open file) is there, too."""
    result = talk(droste, place, "one?\n\n  :context two\ntwo?\nthree?\n",
                  repl("import os\nf = open('/dev/zero', 'rb')\nSUBMIT(answer=context)"),
                  repl("SUBMIT(answer=context_1 + f.read(1).hex())"),
                  repl("SUBMIT(answer=[h['content'] for h in history])"),
                  flags=["--context", "one"])
    assert result.status == 0, result
    assert result.out == 'one\n\ntwo\n00\n["one?","one\\n","two?","two\\n00"]\n'
    assert [r["previous"]
            for r in droste.record.runs] == [None] + [r["id"] for r in droste.record.runs[:2]]


def test_a_chat_goes_on_after_a_question_that_failed(droste, place):
    """Its exit status is the failure's; the variables are there."""
    result = talk(droste, place, "one?\ntwo?\n", repl("x = 1"), "I give up",
                  repl("SUBMIT(answer=x)"),
                  flags=["--max-iterations", "1"])
    assert result.out == "I give up\n1\n" and result.status == 3
    assert talk(droste, place, "one?\n", repl("SUBMIT(answer=1)")).status == 0


def test_a_sandbox_that_dies_in_a_later_question_is_replaced(droste, place):
    """All contexts and the history are bound again."""
    result = talk(droste, place, "/context one\nq\n/context two\nr\n",
                  repl("x = 1\nSUBMIT(answer=1)"), repl("import os\nos._exit(1)"),
                  repl("SUBMIT(answer=['x' in globals(), context, context_1, len(history)])"))
    assert result.out == '1\n[false,"one\\n","two\\n",2]\n'


def test_a_chat_that_was_left_is_gone_on_with(droste, place):
    """--continue has the variables of the conversation that ended."""
    talk(droste, place, "q\n", repl("x = 41\nSUBMIT(answer=1)"))
    result = talk(droste, place, "r\n", repl("SUBMIT(answer=x + 1)"), name="later.jsonl",
                  flags=["--continue", droste.record.run["id"]])
    assert result.out == "42\n"


def test_a_question_that_is_interrupted_ends_alone(tmp_path):
    """Ctrl-C in a cell: the next question finds a new session, and is told so."""
    write_replay(tmp_path / "m.jsonl", repl("x = 1\nwhile True: pass"),
                 repl("SUBMIT(answer=['x' in globals(), len(history)])"))
    with Terminal(tmp_path, "chat", "--model", "replay:m.jsonl", "--quiet") as t:
        t.expect("? ")
        t.type("one?\n")
        wait_until(lambda: t.read(0.05) and running_cells(tmp_path), what="the cell")
        t.type("\x03")
        t.expect("the run was cancelled")
        t.expect("? ")
        t.type("two?\n")
        t.expect("[false,2]")
        t.expect("? ")      # before, the key would be the terminal's and not the line editor's
        t.type("\x04")
        assert t.status() == 130        # that of a question that was interrupted


def test_commands_ask_no_model(droste, place):
    """/help, /context and /cost print to standard error, /quit leaves, and none of them is a
    run."""
    typed = ["/help", "/context", "/context one", "/context", "q", "/context", "/cost", "/quit",
             "no"]
    result = talk(droste, place, "\n".join(typed), repl("SUBMIT(answer=context)"))
    assert (result.status, result.out, len(droste.record.runs)) == (0, "one\n\n", 1)
    lines = result.err.splitlines()
    for words in ("  /context [PATH]   give the next question a context, or list the contexts",
                  "no context; /context PATH gives the next question one",
                  "of the next question: one", "context: one"):
        assert words in lines
    assert any(line.startswith("1 question, 1 call, ") for line in lines)


def test_a_mistyped_command_is_no_question(droste, place):
    """It gets a suggestion; a path or another word with a slash is a question."""
    result = talk(droste, place, "/hlep\n/etc/passwd?\n", repl("SUBMIT(answer=1)"))
    assert "there is no command '/hlep'; did you mean /help" in result.err
    assert result.out == "1\n" and len(droste.record.runs) == 1


def test_an_error_keeps_the_conversation(tmp_path):
    """A question whose model fails leaves the variables and the history to the next one; the
    provider's text is on the screen."""
    prices = tmp_path / "prices"
    prices.write_text("gpt-5-mini 1 10\n")
    with Model(("one?", repl("x = 41\nSUBMIT(answer=1)")),
               ("two?", 401, "No such key, ask billing"),
               ("three?", repl("SUBMIT(answer=x + 1)"))) as model:
        result = subprocess.run([DROSTE, "chat", *model.flags(), "--prices", prices], text=True,
                                input="one?\ntwo?\nthree?\n/cost\n", capture_output=True,
                                timeout=PATIENCE,
                                env=environment(tmp_path, OPENAI_API_KEY="sk-test"))
    assert result.stdout == "1\n42\n" and "No such key, ask billing" in result.stderr
    assert "3 questions, 3 calls, 2000 + 200 tokens, $0.0040" in result.stderr


def running_cells(home):
    record = Record(os.path.join(home, "data", "runs.db"))
    return (os.path.exists(record.path) and record.runs
            and [c for c in record.cells if c["status"] == "running"])
