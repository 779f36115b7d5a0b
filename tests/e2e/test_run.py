"""droste run: a question, a context, an answer; over scripted models.

Most models here are recordings written by hand (docs/replay.md): what they say is code that really
runs. A line with `contains` answers only if the last message holds that text, so that a turn which
was not told what it must be told gets no answer, and its run fails.
"""
import contextlib
import json
import os
import pty
import signal
import threading

import pytest

from droste_cli import plain
from harness import (CANARY, PATIENT, answered, descendants, finish, needs_root, refused, repl,
                     still_alive, wait_until, when, write_replay)
from lives import Gate
from terminals import Model


def sub(text, contains=None, **more):
    """An answer to llm_query."""
    line = {"content": text, "depth": 1, **more}
    return {**line, "contains": contains} if contains else line


# ---- the answer ----

def test_answer_is_printed(droste, replay):
    """The answer is all there is on standard output, and a pipe sees no progress."""
    result = droste("run", "--question", "q", "--model", replay(repl("SUBMIT(answer='forty-two')")))
    assert (result.status, result.out, result.err) == (0, "forty-two\n", "")


def test_answer_that_is_no_text_is_json(droste, replay):
    """Everything but a str is printed as JSON."""
    result = droste("run", "--question", "q", "--model", replay(repl("SUBMIT({'a': [1, None]})")))
    assert json.loads(result.out) == {"a": [1, None]}


def test_json_has_the_documented_members(ask, tmp_path):
    """answer, status, run, iterations, usage {calls, input_tokens, output_tokens, cost,
    seconds}."""
    run = answered(ask([repl("x = llm_query('a'); SUBMIT(x)"), sub("b")]), "b")
    assert run["iterations"] == 1 and run["run"] and run["isolation"] == "full"
    assert set(run["usage"]) >= {"calls", "input_tokens", "output_tokens", "cost", "seconds"}
    assert run["usage"]["calls"] == 2
    assert run["usage"]["input_tokens"] > 0 and run["usage"]["output_tokens"] > 0


def test_context_is_computed_over(droste, replay, tmp_path):
    """The code of the model works on the context, which the question describes to it."""
    (tmp_path / "c.txt").write_text("needle\n" * 7 + "hay\n" * 1000)
    result = droste("run", "--question", "How many needles?", "--json", "--context",
                    tmp_path / "c.txt",
                    "--model", replay(when("a str of 4,049 characters",
                                           repl("SUBMIT(context.count('needle'))"))))
    answered(result, 7)


def test_blocks_of_a_turn_run_in_order(ask):
    """Several blocks of one reply are several cells of one session."""
    run = answered(ask([repl("x = 1", "x += 10", "SUBMIT(x * 2)")]), 22)
    assert run["iterations"] == 1


def test_blocks_behind_a_submission_do_not_run(ask, droste):
    """SUBMIT ends the work: what stands behind it in the reply is not run."""
    answered(ask([repl("SUBMIT(1)", "SUBMIT(2)")]), 1)
    assert len(droste.record.cells) == 1


def test_variables_stay_over_turns(ask):
    """What a turn bound is there in the next, functions and imports too."""
    answered(ask([repl("import math as m\ndef f(): return m.sqrt(x)\nx = 81"),
                  repl("SUBMIT(f())")]), 9.0)


def test_output_is_fed_back(ask):
    """The model sees what its code printed, and what the code wrote to standard error."""
    answered(ask([repl("import sys; print('seen'); print('warned', file=sys.stderr)"),
                  when("seen\nStandard error:\nwarned", repl("SUBMIT('ok')"))]), "ok")


def test_long_output_is_shortened_for_the_model(ask):
    """--max-output-chars bounds what a turn is shown; how much is missing is said."""
    answered(ask([repl("print('x' * 5000)"), when("4001 bytes left out", repl("SUBMIT(1)"))],
                 "--max-output-chars", "1000"), 1)


def test_error_is_fed_back_and_mended(ask):
    """Code that raises is not an end: the model is shown the traceback and goes on."""
    answered(ask([repl("x = 5\n1 / 0"), when("line 2, in <module>", repl("SUBMIT(x)"))]), 5)


def test_deadline_of_a_cell_is_fed_back(ask):
    """After --execute-timeout the model is told so, and the variables are there."""
    answered(ask([repl("x = 5\nwhile True: pass"), when("longer than 1 s", repl("SUBMIT(x)"))],
                 "--execute-timeout", "1", *PATIENT), 5)


def test_reply_without_code_is_nudged(ask):
    """A reply without a block is answered with what is expected."""
    answered(ask(["Let me think about it.", when("no ```repl block", repl("SUBMIT(1)"))]), 1)


def test_blocks_of_other_languages_are_not_run(ask, droste):
    """A block that is marked json is not code."""
    answered(ask(["```json\n{\"a\": 1}\n```", when("no ```repl block", repl("SUBMIT(1)"))]), 1)
    assert len(droste.record.cells) == 1


def test_fences_within_strings_stay_text(ask):
    """Code that holds a fenced text is run whole when its own fence is longer."""
    answered(ask(
        ["````repl\nx = '''\n```python\nSUBMIT('wrong')\n```\n'''\nSUBMIT(x.count('`'))\n````"]), 6)


def test_fences_of_the_same_length_within_strings_stay_text(ask, droste):
    """A prompt in a string of several lines may have fences as its own block's, and another block
    may follow."""
    code = "x = '''\n```json\n{}\n```\nFINAL(no)\n'''\nprint(x)"
    answered(ask([repl(code, "SUBMIT(x.count('`'))")]), 6)
    assert len(droste.record.cells) == 2


def test_model_may_answer_at_once(ask, droste):
    """Without a line of code, and without a second call."""
    answered(ask(["FINAL(42)"]), "42")
    assert len(droste.record.calls) == 1 and not droste.record.cells


def test_long_output_keeps_head_and_tail(ask):
    """The model sees where an output begins and where it ends."""
    code = "print('BEGIN' + 'x' * 50000 + 'END')"
    answered(ask([repl(code), when("BEGINxxx", repl(code)), when("xxxEND\n", repl("SUBMIT(1)"))],
                 "--max-output-chars", "1000"), 1)


def test_setup_code_comes_before_everything(ask):
    """What it makes is there for the first turn, also in the session that follows one that died."""
    answered(ask([repl("import os\nassert given == 5\nos._exit(1)"),
                  repl("SUBMIT([given, context])")],
                 "--setup-code", "given = 5"), [5, ""])


def test_python_fence_is_code_too(ask):
    """Models also write ```python."""
    answered(ask(["```python\nSUBMIT('py')\n```"]), "py")


def test_final_in_words(ask):
    """FINAL(…) outside of code answers with the words."""
    answered(ask([repl("x = 1"), "I am done.\nFINAL(It is (about) 5.)"]), "It is (about) 5.")


def test_final_var_in_words(ask):
    """FINAL_VAR(name) outside of code answers with the variable."""
    answered(ask([repl("found = [1, 2]"), "FINAL_VAR(found)"]), [1, 2])


def test_final_var_of_nothing_is_fed_back(ask):
    """FINAL_VAR of a name that is not there is an error that the model can mend."""
    answered(ask(["FINAL_VAR(nothing)", when("there is no variable 'nothing'", repl("SUBMIT(1)"))]),
             1)


def test_final_in_code(ask):
    """FINAL and FINAL_VAR are functions of the session as well."""
    answered(ask([repl("x = 'a'\nFINAL_VAR('x')")]), "a")


def test_several_fields_answer_an_object(ask):
    """SUBMIT with several fields answers all of them."""
    answered(ask([repl("SUBMIT(a=1, b='x')")]), {"a": 1, "b": "x"})


def test_answer_dict_answers(ask):
    """Setting answer["ready"] ends the run with answer["content"]."""
    answered(ask([repl("answer['content'] = 'draft'"),
                  repl("answer['content'] += '!'; answer['ready'] = True")]),
             "draft!")


def test_question_without_context(ask):
    """A run needs no context; the model is told that there is none."""
    answered(ask([when("no context", repl("SUBMIT(context)"))]), "")


def test_question_is_not_code_nor_format(droste, replay):
    """A question with percent signs, quotes and fences reaches the model as it is."""
    question = "100%s of `x`?\n```repl\nSUBMIT('wrong')\n```\"'"
    result = droste("run", "--question", question, "--json", "--model",
                    replay(when(question, repl("SUBMIT(1)"))))
    answered(result, 1)


# ---- sub-calls ----

def test_llm_query_answers_code(ask):
    """llm_query gives the text of the answer to the code."""
    answered(ask([repl("SUBMIT(llm_query('2+2') + '!')"), sub("four", "2+2")]), "four!")


def test_batch_keeps_its_order(ask):
    """llm_query_batched gives the answers in the order of the prompts, whichever comes first."""
    lines = [sub("A", "ask-0", delay_ms=300), sub("B", "ask-1", delay_ms=100), sub("C", "ask-2")]
    answered(ask([repl("SUBMIT(llm_query_batched(['ask-%d' % i for i in range(3)]))"), *lines]),
             ["A", "B", "C"])


def test_failed_item_of_a_batch_is_marked(ask):
    """One prompt that fails is [ERROR] in its place; the others are answered."""
    bad = {"error": {"code": "model_server", "message": "engine overheated"}, "depth": 1,
           "contains": "ask-1"}
    run = answered(ask([repl("r = llm_query_batched(['ask-0', 'ask-1'])\n"
                             "SUBMIT([r[0], r[1].startswith('[ERROR] '), 'overheated' in r[1]])"),
                        sub("A", "ask-0"), bad]), ["A", True, True])
    assert run["usage"]["calls"] == 3


def test_calls_of_threads_are_answered(ask):
    """llm_query may be called from threads."""
    code = ("from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(8) as pool: SUBMIT(sorted(pool.map(llm_query, ['x%d' % i for "
            "i in range(8)])))")
    answered(ask([repl(code), sub("same", repeat=True)]), ["same"] * 8)


# ---- limits ----

def test_exhausted_iterations_end_with_last_words(ask):
    """After --max-iterations the model is asked once more, for words; exit status 3 says it is not
    whole."""
    result = ask([repl("x = 1"), repl("x = 2"), when("no more code", "About two.")],
                 "--max-iterations", "2")
    assert result.status == 3
    assert result.json["status"] == "exhausted" and result.json["answer"] == "About two."
    assert result.json["iterations"] == 2 and "2 turns" in result.json["error"]["message"]


def test_last_words_run_no_code(ask, droste):
    """Code in the last words is not run."""
    result = ask([repl("x = 1"), repl("SUBMIT('wrong')")], "--max-iterations", "1")
    assert result.json["status"] == "exhausted" and len(droste.record.cells) == 1


def test_call_limit_is_an_exception_in_the_guest(ask):
    """Over --max-llm-calls llm_query raises BudgetExceeded with the documented text; the run goes
    on."""
    text = ("LLM call limit exceeded: 1 + 1 > 1. Use Python code for aggregation instead of making "
            "more LLM calls.")
    run = answered(ask([repl("llm_query('a')\nllm_query('b')"), sub("A"),
                        when("BudgetExceeded: " + text, repl("SUBMIT('without')"))],
                       "--max-llm-calls", "1"), "without")
    assert run["usage"]["calls"] == 3


def test_batch_over_the_limit_is_refused_whole(ask, droste):
    """A batch that does not fit makes none of its calls, and one that fits is made afterwards."""
    code = ("try: llm_query_batched(['a', 'b', 'c'])\n"
            "except BudgetExceeded as e: print(e)\n"
            "SUBMIT(llm_query_batched(['a', 'b']))")
    run = answered(ask([repl(code), sub("A", repeat=True)], "--max-llm-calls", "2"), ["A", "A"])
    assert run["usage"]["calls"] == 3


def test_no_calls_allowed(ask):
    """--max-llm-calls 0 allows none, and the loop's own turns do not count."""
    answered(ask([repl("llm_query('a')"), when("0 + 1 > 0", repl("SUBMIT(1)"))], "--max-llm-calls",
                 "0"), 1)


@pytest.mark.parametrize("flag", ["--max-input-tokens", "--max-output-tokens",
                                  "--max-total-tokens"])
def test_token_limit_ends_the_run(ask, flag):
    """A limit on tokens ends a run as `budget`, exit status 3; what was spent is said."""
    turns = [{"content": repl("x = 1"), "usage": {"input_tokens": 600, "output_tokens": 600},
              "repeat": True}]
    result = ask(turns, flag, "2000")
    assert result.status == 3 and result.json["status"] == "budget"
    assert "token limit exceeded" in result.json["error"]["message"] and "2000" in result.json[
        "error"]["message"]


def test_token_limit_leaves_what_fits_alone(ask):
    """The same run within its limit is answered."""
    answered(ask([repl("SUBMIT(1)")], "--max-total-tokens", "100000"), 1)


def test_time_limit_in_a_model_call(ask):
    """--timeout ends a run that waits for a model."""
    result = ask([{"content": "late", "delay_ms": 600000}], "--timeout", "0.5",
                 "--llm-call-timeout", "0")
    assert result.status == 3 and result.json["status"] == "timeout"
    assert "0.5 s" in result.json["error"]["message"]


def test_time_limit_in_a_cell(ask):
    """--timeout ends a run whose code does not end."""
    result = ask([repl("while True: pass")], "--timeout", "0.5")
    assert result.status == 3 and result.json["status"] == "timeout"


def test_time_limit_in_a_sub_call(ask):
    """--timeout ends a run whose code waits for a model; no process is left."""
    result = ask([repl("llm_query('x')"), sub("late", delay_ms=600000)], "--timeout", "0.5")
    assert result.status == 3 and result.json["status"] == "timeout"


def test_time_of_one_call_is_an_error_in_the_guest(ask):
    """--llm-call-timeout bounds one call: the code gets an LLMError, LLMTimeout, and goes on."""
    code = "try: llm_query('x')\nexcept LLMError as e: SUBMIT(type(e).__name__)"
    answered(ask([repl(code), sub("late", delay_ms=600000)], "--llm-call-timeout", "0.5"),
             "LLMTimeout")


def test_code_that_keeps_failing_ends_the_run(ask):
    """After --max-errors turns in a row whose code raised the run ends as a limit does, and says
    so."""
    result = ask([{"content": repl("1 / 0"), "repeat": True}], "--max-errors", "3")
    assert result.status == 3 and result.json["status"] == "budget" and result.json[
        "iterations"] == 3
    assert "3 turns in a row" in result.json["error"]["message"]


def test_errors_that_are_mended_do_not_add_up(ask):
    """A turn whose code works begins the count anew; one without code does not."""
    turns = [repl("1 / 0"), repl("x = 1"), repl("1 / 0"), "Let me think.", repl("SUBMIT(x)")]
    answered(ask(turns, "--max-errors", "2"), 1)
    assert ask([repl("1 / 0"), "Let me think.", repl("1 / 0")], "--max-errors",
               "2").json["status"] == "budget"


# ---- what the model is told ----

def test_instructions_reach_the_model(ask, droste, tmp_path):
    """--instructions, as a text or from a file, stand in what the model is told first."""
    (tmp_path / "i.txt").write_text("Answer in Latin.\n")
    answered(ask([repl("SUBMIT(1)")], "--instructions", "Answer in Greek."), 1)
    answered(ask([repl("SUBMIT(1)")], "--instructions", "@%s" % (tmp_path / "i.txt")), 1)
    shown = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    systems = [line["request"][0]["content"] for line in shown if line["type"] == "call"]
    assert "Answer in Greek." in systems[0] and "Answer in Latin." in systems[1]


def test_instructions_that_cannot_be_read(droste, replay, tmp_path):
    """A file that is not there is named, before a model is asked."""
    refused(droste("run", "--question", "q", "--instructions", "@nowhere.txt", "--model",
                   replay("x")), 2,
            "instructions", "nowhere.txt")


# ---- a sandbox that dies ----

def test_dead_sandbox_is_replaced(droste, replay, tmp_path):
    """A guest that kills itself is replaced: context is there again, variables are not, the model
    knows."""
    (tmp_path / "c.txt").write_text("abc")
    result = droste("run", "--question", "q", "--json", "--context", tmp_path / "c.txt", "--model",
                    replay(
        repl("x = 1\nprint('before', flush=True)\nimport os; os._exit(7)"),
        when("status 7", repl("SUBMIT([context, context_0, 'x' in globals()])"))))
    answered(result, ["abc", "abc", False])
    cells = droste.record.cells
    assert [(c["status"], c["killed"]) for c in cells] == [("killed", "exit 7"),
                                                           ("submitted", None)]


def test_sandbox_that_dies_while_the_model_thinks_is_replaced(droste, tmp_path):
    """A thread that a cell left behind ends the guest between two cells: the next cell is not run,
    its record says what became of it, and the model goes on in a new sandbox."""
    gate, answer = Gate(tmp_path / "gate"), threading.Event()
    gate.shut()
    ends = repl("x = 1\nimport threading\ndef end():\n%s    os._exit(5)\nimport os\n"
                "threading.Thread(target=end).start()"
                % "".join("    %s\n" % text for text in gate.code.splitlines()))
    with Model(("Turn 1 of", ends), ("Turn 2 of", answer, repl("print('ran')")),
               ("status 5; its variables are gone. A new one was started",
                repl("SUBMIT('x' in globals())"))) as model:
        process = droste.start("run", "--question", "q", "--json", *model.flags(), *gate.flags,
                               env={"OPENAI_API_KEY": "k"})
        wait_until(lambda: os.path.exists(droste.record.path) and droste.record.runs
                   and [cell for cell in droste.record.cells if cell["ended_ms"]], what="a cell")
        below = descendants(process.pid)
        gate.open()
        wait_until(lambda: len(still_alive(below)) < len(below), what="the end of the guest")
        answer.set()
        answered(finish(process), False)
    assert [(c["status"], c["killed"], c["stdout"]) for c in droste.lines("cell")] == [
        ("ok", None, ""), ("killed", "exit 5", ""), ("submitted", None, "")]


def test_dead_sandbox_ends_the_blocks_of_its_turn(ask):
    """What is left of the reply was written for variables that are gone: it does not run."""
    answered(ask([repl("import os; os._exit(1)", "SUBMIT('wrong')"), repl("SUBMIT('right')")]),
             "right")


def test_sandbox_that_always_dies_ends_the_run(ask):
    """A run whose sandboxes all die is given up with exit status 4."""
    result = ask([{"content": repl("import os; os._exit(1)"), "repeat": True}])
    assert result.status == 4 and result.json["status"] == "error"
    assert "died" in result.json["error"]["message"]


def test_answers_to_a_dead_sandbox_are_dropped(ask):
    """A guest that dies with a call open does not disturb the one after it."""
    code = ("import threading, time, os\nthreading.Thread(target=llm_query, args=('x',)).start()\n"
            "time.sleep(0.2); os._exit(1)")
    answered(ask([repl(code), sub("late", delay_ms=500),
                  repl("import time; time.sleep(0.6); SUBMIT(1)")]), 1)


# ---- contexts ----

def test_large_context(droste, replay, tmp_path):
    """100 MB of text are a str in the guest."""
    with open(tmp_path / "big.txt", "wb") as f:
        for _ in range(100):
            f.write((b"x" * 1023 + b"\n") * 1024)
    result = droste("run", "--question", "q", "--json", "--context", tmp_path / "big.txt",
                    "--model",
                    replay(when("104,857,600 characters", repl("SUBMIT(context.count('\\n'))"))))
    answered(result, 102400)


def test_directory_with_binary_files(droste, replay, tmp_path):
    """Binary files of a directory are left out; the note says how many and names one."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("a = 1\n")
    (tree / "logo.png").write_bytes(b"\x89PNG\xff\xfe")
    flags = ["run", "--question", "q", "--context", tree]
    turns = [when("a dict of 1 keys", repl("SUBMIT(list(context))"))]
    result = droste(*flags, "--json", "--model", replay(*turns))
    assert answered(result, ["a.py"])["left_out"] == 1
    shown = droste(*flags, "--verbose", "--model", replay(*turns)).err
    assert "note: 1 of 2 files were left out of the context" in shown and "logo.png" in shown


def test_context_from_standard_input(droste, replay):
    """`--context -` is standard input."""
    result = droste("run", "--question", "q", "--json", "--context", "-", "--model",
                    replay(repl("SUBMIT(len(context))")), input="x" * 70000)
    answered(result, 70000)


# ---- where settings come from ----

def test_sources_of_settings_rise(droste, serve):
    """The environment gives a model, config.ini goes over it, a flag over both."""
    server = serve()
    env = {"OPENAI_BASE_URL": server.url, "DROSTE_MODEL": "ok"}
    flags = ["run", "--question", "q", "--max-iterations", "1"]
    droste(*flags, env=env)
    droste.configure("[models]\nmodel = echo\n")
    droste(*flags, env=env)
    droste(*flags, "--model", "nousage", env=env)
    assert server.stats()["models"] == {"ok": 2, "echo": 2, "nousage": 2}


def test_key_from_the_configuration(droste, serve):
    """api-key in config.ini is used."""
    server = serve(key=CANARY, script=[repl("SUBMIT(1)")])
    droste.configure("api-key = %s\nbase-url = %s\nmodel = scripted\n" % (CANARY, server.url))
    answered(droste("run", "--question", "q", "--json"), 1)


@pytest.mark.parametrize("text, word", [("modle = x\n", "modle"), ("model\n", "line 1"),
                                        ("memory = lots\n", "lots")])
def test_mistake_in_the_configuration(droste, replay, text, word):
    """A configuration that is not understood is exit status 2, and the file is named."""
    droste.configure(text)
    refused(droste("run", "--question", "q", "--model", replay("x")), 2, "config.ini", word)


# ---- progress ----

def test_terminal_sees_the_run(droste, replay):
    """On a terminal the turns, the code and its output are shown as they come, and the answer is
    alone on standard output."""
    master, slave = pty.openpty()
    process = droste.start("run", "--question", "q", "--model",
                           replay(repl("print('from the cell')"), repl("SUBMIT('done')")),
                           stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while True:
            shown += os.read(master, 65536)
    except OSError:
        pass
    os.close(master)
    assert process.communicate(timeout=60)[0] == b"done\n" and process.returncode == 0
    for words in ("turn 1 of 30", "> print('from the cell')", "| from the cell", "turn 2 of 30",
                  "answered"):
        assert words in plain(shown.decode())


def test_a_full_pipe_for_progress_does_not_hold_up_the_run(droste, replay):
    """Nothing reads standard error, which is full: the answer comes all the same."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    process = droste.start("run", "--verbose", "--question", "q", "--model",
                           replay(repl("print('from the cell')"), repl("SUBMIT('done')")),
                           stderr=writer)
    os.close(writer)
    assert process.communicate(timeout=60)[0] == b"done\n" and process.returncode == 0
    os.close(reader)


def test_terminal_is_safe_from_the_guest(droste, replay):
    """Escape sequences that the guest prints do not reach the terminal."""
    master, slave = pty.openpty()
    process = droste.start("run", "--question", "q", "--model",
                           replay(repl("print('\\x1b]0;owned\\x07'); SUBMIT(1)")), stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while True:
            shown += os.read(master, 65536)
    except OSError:
        pass
    os.close(master)
    process.communicate(timeout=60)
    assert b"owned" in shown and b"\x1b]0;owned" not in shown


# ---- interrupts and deaths ----

def run_until(droste, condition, model, *flags):
    """Starts a run and waits until the record says so; (process, its descendants)."""
    process = droste.start("run", "--question", "q", "--json", "--model", model, *flags)

    def reached():
        assert process.poll() is None, finish(process)
        try:
            return condition(droste.record)
        except Exception:
            return False

    wait_until(reached, what="the step")
    return process, descendants(process.pid)


WAITS_FOR_MODEL = [repl("x = 1\nprint('one')"), {"content": "late", "delay_ms": 600000}]
WAITS_IN_CELL = [repl("x = 1\nprint('one')"),
                 repl("import subprocess\nsubprocess.Popen(['sleep', '600'])\nwhile True: pass")]
WAITS_IN_SUB_CALL = [repl("x = 1\nprint('one')"), repl("llm_query('slow')"),
                     sub("late", delay_ms=600000)]
STEPS = pytest.mark.parametrize("turns, reached", [
    (WAITS_FOR_MODEL, lambda r: len(r.calls) == 2),
    (WAITS_IN_CELL, lambda r: len(r.cells) == 2),
    (WAITS_IN_SUB_CALL, lambda r: len(r.calls) == 3),
], ids=["model call", "cell", "sub-call"])


@STEPS
def test_interrupt_leaves_a_whole_record(droste, replay, turns, reached):
    """Ctrl-C in the middle: exit 130, the run is `cancelled`, every step is in the record and none
    is left open, and nothing of the sandbox is left."""
    process, below = run_until(droste, reached, replay(*turns))
    os.kill(process.pid, signal.SIGINT)
    result = finish(process)
    assert result.status == 130
    assert result.json["status"] == "cancelled"
    assert len(below) >= 3 and wait_until(lambda: not still_alive(below),
                                          what="the end of the sandbox")
    record = droste.record
    assert record.is_whole and record.run["status"] == "cancelled" and record.run["ended_ms"]
    assert record.cells[0]["status"] == "ok" and record.calls[0]["status"] == "ok"
    assert [row for row in record.cells + record.calls if row["status"] == "running"] == []


@STEPS
def test_sigkill_leaves_the_finished_steps(droste, replay, turns, reached):
    """However droste dies, the finished steps are on disk and its sandbox does not survive it."""
    process, below = run_until(droste, reached, replay(*turns))
    process.kill()
    finish(process)
    assert len(below) >= 3 and wait_until(lambda: not still_alive(below),
                                          what="the end of the sandbox")
    record = droste.record
    assert record.is_whole and record.run["ended_ms"] is None
    assert record.cells[0]["status"] == "ok" and record.calls[0]["status"] == "ok"


def waits_for_input(pid):
    """Whether a thread waits in poll(2), where standard input is read; the loop's is in
    epoll_wait."""
    for thread in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(OSError):      # it has ended
            with open("/proc/%d/task/%s/wchan" % (pid, thread)) as f:
                if "poll_schedule" in f.read():
                    return True
    return False


def test_interrupt_while_the_context_is_read(droste, replay, tmp_path):
    """Ctrl-C while a context is still coming through a pipe ends the program."""
    reader, writer = os.pipe()
    process = droste.start("run", "--question", "q", "--context", "-", "--model", replay("x"),
                           stdin=reader)
    wait_until(lambda: waits_for_input(process.pid), what="the read")
    os.kill(process.pid, signal.SIGINT)
    assert finish(process).status in (130, -signal.SIGINT)
    os.close(reader)
    os.close(writer)


# ---- where the record cannot be kept ----

def in_mount(droste, options):
    """Puts a file system of its own over the data directory, which only droste sees."""
    os.makedirs(droste.data, exist_ok=True)
    droste.prefix = ["unshare", "--mount", "sh", "-c",
                     'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"',
                     "sh", options, droste.data]


@needs_root
@pytest.mark.parametrize("options", ["ro", "size=4k,nr_inodes=1"], ids=["read-only", "full"])
def test_record_that_cannot_be_written_ends_the_run_first(online, droste, options):
    """Where the record cannot be kept nothing is paid: the error comes before the first call."""
    in_mount(droste, options)
    result, server = online([repl("SUBMIT(1)")])
    assert result.status == 1 and "DROSTE_HOME" in result.complaint
    assert server.stats()["requests"] == 0


def test_the_data_directory_of_another_user(ordinary_user):
    """A data directory that this user may not write is one clear line."""
    model = write_replay(os.path.join(os.path.dirname(ordinary_user.home), "r.jsonl"),
                         repl("SUBMIT(1)"))
    result = ordinary_user("run", "--question", "q", "--model", model,
                           env={"DROSTE_HOME": "/usr/droste"})
    refused(result, 1, "/usr/droste", "DROSTE_HOME")


def test_run_without_a_record(droste, replay):
    """--database none keeps nothing, and works where nothing can be kept."""
    result = droste("run", "--question", "q", "--json", "--database", "none", "--model",
                    replay(repl("SUBMIT(1)")), env={"DROSTE_HOME": "/proc/nowhere"})
    assert answered(result, 1)["run"] is None


@needs_root
def test_disk_that_fills_up_ends_the_run(online, droste):
    """A disk that fills in the middle ends the run with what is to be done, and no call goes on
    unrecorded."""
    in_mount(droste, "size=600k")
    result, server = online(
        [repl("import os, base64; print(base64.b64encode(os.urandom(750000)).decode())"),
         repl("SUBMIT(1)")])
    assert result.status == 1 and result.json["status"] == "error"
    assert "disk is full" in result.json["error"]["message"]
    assert server.stats()["requests"] == 1


@pytest.mark.parametrize("json_flag", [["--json"], []], ids=["json", "text"])
def test_full_disk_under_the_answer(droste, replay, json_flag):
    """An answer that could not be written is exit status 4, and it is in the record."""
    with open("/dev/full", "w") as full:
        result = droste("run", "--question", "q", "--model", replay(repl("SUBMIT('kept')")),
                        *json_flag,
                        stdout=full)
    assert result.status == 4 and "writing the answer" in result.complaint
    assert droste.record.run["status"] == "answered"


def test_closed_output(droste, replay):
    """A closed standard output is told, too."""
    result = droste("run", "--question", "q", "--model", replay(repl("SUBMIT(1)")),
                    preexec_fn=lambda: os.close(1))
    assert result.status == 4 and "writing the answer" in result.complaint


# ---- the record ----

def test_record_has_every_step(online, droste):
    """The database holds the question, each turn's reply, each cell's code and output, each
    call."""
    result, server = online([repl("print(llm_query('p'))"), "SUB", repl("SUBMIT('end')")])
    answered(result, "end")
    record = droste.record
    run = record.run
    assert run["status"] == "answered" and run["calls"] == 3 and run["isolation"] == "full"
    assert [c["kind"] for c in record.calls] == ["root", "sub", "root"]
    assert [c["status"] for c in record.calls] == ["ok"] * 3
    assert [c["status"] for c in record.cells] == ["ok", "submitted"]
    assert record.calls[1]["cell"] == record.cells[0]["id"]
    assert run["input_tokens"] == sum(c["input_tokens"] for c in record.calls)


def test_record_is_its_owners(ask, droste):
    """Nobody else may read the record."""
    ask([repl("SUBMIT(1)")])
    assert os.stat(droste.record.path).st_mode & 0o077 == 0


def test_two_runs_at_once_share_the_record(droste, tmp_path):
    """Two runs of the same user at the same time are both in the record."""
    model = write_replay(tmp_path / "r.jsonl", repl("import time; time.sleep(0.3)"),
                         repl("SUBMIT(1)"))
    running = [droste.start("run", "--question", "q", "--json", "--model", model) for _ in range(4)]
    for process in running:
        answered(finish(process), 1)
    assert [r["status"] for r in droste.record.rows("SELECT status FROM runs")] == ["answered"] * 4
