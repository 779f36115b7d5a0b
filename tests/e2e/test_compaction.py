"""Compaction: a conversation that becomes too long gives way to a summary, and `history` has all of
it."""
import json
import sqlite3

import pytest

from harness import Record, answered, repl, system_prompts, when, write_replay

# The system prompt and the question are some 1700 tokens, a loud turn 2000: two are too many.
SMALL = ("--compaction", "0.8", "--model-window", "6000")
ASKED = "Write a summary with which you can go on"
SHORT = "Your own summary:\n\n"


def loud(letter, size=8000):
    """A turn whose output has so many characters, some 2000 tokens."""
    return repl("print('%s' * %d)" % (letter, size))


def requests(droste):
    """(kind, messages that were new) of the loop's calls."""
    lines = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    return [(line["kind"], line["request"]) for line in lines
            if line["type"] == "call" and line["kind"] in ("root", "summary")]


def test_a_long_conversation_is_replaced_by_a_summary(ask, droste):
    """After it the model is told the question, its own summary, and the last turn; nothing
    older."""
    answered(ask([loud("a"), loud("b"), when(ASKED, "a was 8000 long"), repl("SUBMIT('ok')")],
                 *SMALL), "ok")
    kinds = requests(droste)
    assert [kind for kind, _ in kinds] == ["root", "root", "summary", "root"]
    system, question, summary, last, output = kinds[3][1]
    assert system == kinds[0][1][0] and question == kinds[0][1][1]
    assert summary["role"] == "user" and summary["content"].endswith(SHORT + "a was 8000 long")
    assert last == {"role": "assistant", "content": loud("b")}
    assert "b" * 8000 in output["content"] and output["content"].endswith("Turn 3 of 30.")
    assert ["user", "user"] == [m["role"] for m in kinds[2][1]][
        -2:] and "a" * 8000 not in json.dumps(kinds[3][1])


def test_without_the_setting_nothing_is_shortened(ask, droste):
    """The twin: off is the default, and no word of it is said."""
    answered(ask([loud("a"), loud("b"), repl("SUBMIT('history' in globals())")], "--model-window",
                 "5000"), False)
    assert [kind for kind, _ in requests(droste)] == ["root"] * 3
    assert "history" not in system_prompts(droste)[0] and "summary" not in system_prompts(droste)[0]


def test_short_conversation_is_left_alone(ask, droste):
    """With the setting on but a large window there is no summary, and history is not spoken of."""
    answered(ask([loud("a"), loud("b"), repl("SUBMIT(1)")], "--compaction", "0.8"), 1)
    assert [kind for kind, _ in requests(droste)] == ["root"] * 3 and "history" not in json.dumps(
        requests(droste))


def test_guest_has_the_history(ask):
    """All that was said up to the summary, in order, as {role, content}."""
    code = (
        "SUBMIT([[m['role'] for m in history], history[0]['content'].startswith('Question: What is "
        "it?'),\n"
        "        'a' * 8000 in history[2]['content'], 'b' * 8000 in history[4]['content'],\n"
        "        sorted(history[0]), x])")
    result = ask([repl("x = 7\nprint('a' * 8000)"), loud("b"), when(ASKED, "s"), repl(code)],
                 *SMALL)
    answered(result, [["user", "assistant"] * 2 + ["user"], True, True, True, ["content", "role"],
                      7])


def test_history_grows_with_each_summary(ask, droste):
    """A second summary takes in the first; history has each message once, and no summary."""
    code = ("SUBMIT([len(history), [m['content'].count('z' * 9) for m in history].count(0), "
            "'S1' in str(history)])")
    turns = [loud("a"), loud("b"), when(ASKED, "S1"), loud("c"), when(ASKED, "S2"), repl(code)]
    answered(ask(turns, *SMALL), [7, 7, False])
    last = requests(droste)[-1][1]
    assert len(last) == 5 and last[2]["content"].endswith("S2") and "S1" not in json.dumps(last)


def test_summary_that_is_longer_is_refused(ask, droste):
    """The oldest outputs are cut instead, and say so; history has them whole."""
    code = "SUBMIT([len(history[2]['content']) > 8000, 'S' * 9 in str(history)])"
    answered(ask([loud("a"), loud("b"), when(ASKED, "S" * 9000), repl(code)], *SMALL),
             [True, False])
    _, messages = requests(droste)[-1]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant",
                                             "user"]
    assert "bytes left out" in messages[3]["content"] and "`history`" in messages[3]["content"]
    assert len(messages[3]["content"]) < 1000 and "b" * 8000 in messages[5]["content"]


def test_empty_summary_is_refused(ask, droste):
    """As one that is too long."""
    answered(ask([loud("a"), loud("b"), when(ASKED, ""), repl("SUBMIT(1)")], *SMALL), 1)
    assert "bytes left out" in requests(droste)[-1][1][3]["content"]


def test_what_does_not_help_is_not_tried_again_at_once(ask, droste):
    """Where the question alone fills the window, the model is asked for one summary and not for one
    a turn."""
    quiet = [repl("x = %d" % i) for i in range(3)]
    turns = [loud("a"), quiet[0], when(ASKED, "S1"), *quiet[1:], repl("SUBMIT(x)")]
    answered(ask(turns, "--compaction", "0.6", "--model-window", "1000"), 2)
    assert [kind for kind, _ in requests(droste)].count("summary") == 1


def test_summary_is_under_the_budget(ask):
    """Its call and its tokens count like any other's."""
    turns = [loud("a"), loud("b"), when(ASKED, "s"), repl("SUBMIT(1)")]
    assert answered(ask(turns, *SMALL), 1)["usage"]["calls"] == 4
    spent = answered(ask(turns, *SMALL), 1)["usage"]["input_tokens"]
    result = ask(turns, *SMALL, "--max-input-tokens", str(spent // 2))
    assert result.json["status"] == "budget"


def test_provider_counts_are_what_counts(ask, droste):
    """What a provider reported of the last call comes before an estimate by bytes."""
    def counted(n):
        return {"content": loud("a", 10), "usage": {"input_tokens": n, "output_tokens": 1}}
    turns = [counted(10), counted(4900), when(ASKED, "s"), repl("SUBMIT(1)")]
    answered(ask(turns, *SMALL), 1)
    assert [kind for kind, _ in requests(droste)].count("summary") == 1


def test_new_session_has_history_again(ask):
    """After the death of a sandbox `history` is there as the contexts are."""
    turns = [loud("a"), loud("b"), when(ASKED, "s"), repl("import os; os._exit(1)"),
             repl("SUBMIT(len(history))")]
    answered(ask(turns, *SMALL), 5)


def test_children_shorten_theirs(ask, droste):
    """A child inherits the setting, and its summary is a call in its own record."""
    def child(text, contains=None):
        return {"content": text, "depth": 1, **({"contains": contains} if contains else {})}
    turns = [repl("SUBMIT(rlm_query('q'))"), child(loud("a")), child(loud("b")), child("s", ASKED),
             child(repl("SUBMIT(len(history))"), "Turn 3 of 8")]
    answered(ask(turns, *SMALL), 5)
    kinds = droste.record.rows("SELECT kind, depth FROM calls WHERE kind = 'summary'")
    assert [(k["kind"], k["depth"]) for k in kinds] == [("summary", 1)]


def test_conversation_goes_on_from_a_summary(ask, droste, tmp_path):
    """The next question finds the summary where the turns were, and in history all of them and what
    followed."""
    first = answered(ask([loud("a"), loud("b"), when(ASKED, "s"), repl("SUBMIT('one')")], *SMALL),
                     "one")
    code = ("SUBMIT([len(history), 'a' * 8000 in history[2]['content'], history[-2]['content'], "
            "history[-1]['content']])")
    second = droste("run", "--continue", first["run"], "--question", "And now?", "--json",
                    "--model",
                    write_replay(tmp_path / "next.jsonl", when("`history` is a list", repl(code))))
    answered(second, [7, True, "What is it?", "one"])
    (call,) = [line for line in map(json.loads,
                                    droste("runs", "export", second.json["run"]).out.splitlines())
               if line["type"] == "call"]
    assert len(call["request"]) == 1


def test_conversation_becomes_too_long_over_its_questions(ask, droste, tmp_path):
    """Turns of a question before give way to a summary too."""
    first = answered(ask([loud("a"), repl("SUBMIT('one')")], *SMALL), "one")
    second = droste("run", "--continue", first["run"], "--question", "And now?", "--json",
                    "--model",
                    write_replay(tmp_path / "next.jsonl", loud("b"), when(ASKED, "s"),
                                 repl("SUBMIT(['a' * 8000 in str(history), len(history)])")))
    answered(second, [True, 7])


@pytest.mark.parametrize("size", ["1.5", "-1", "x"])
def test_share_is_a_share(ask, size):
    """From 0 to 1."""
    assert ask(["x"], "--compaction", size).status == 2


# ---- resumed ----

TURNS = [loud("a"), loud("b"), "the summary", repl("print(len(history))"),
         repl("SUBMIT([len(history), llm_query('x')])")]


def cut_off(droste, position):
    """Makes the record what it would be had the process died when so many calls had ended, the next
    under way."""
    record = Record(droste.record.path)
    calls = [c["id"] for c in record.calls]
    db = sqlite3.connect(record.path)
    with db:
        db.executescript(
            "UPDATE runs SET status = 'running', answer = NULL, ended_ms = NULL, owner_pid = "
            "999999999, owner_start = 1;"
            "DELETE FROM calls WHERE id > %(id)d; DELETE FROM cells WHERE id > %(id)d;"
            "UPDATE calls SET status = 'running', ended_ms = NULL, reply = NULL WHERE id = %(id)d;"
            "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL"
            " WHERE id = (SELECT cell FROM calls WHERE id = %(id)d);"
            "DELETE FROM turns WHERE turn > (SELECT turn FROM calls WHERE id = %(id)d)"
            % {"id": calls[position]})
    db.close()


@pytest.mark.parametrize("position", range(6),
                         ids=["first", "second", "summary", "behind it", "last", "guest's"])
def test_resumed_across_a_summary(droste, serve, position):
    """Killed in any call before, at and behind a summary, the run ends with its answer, and what
    was recorded is not asked again."""
    script = [{"model": "root", "contains": text, "content": reply, "repeat": True}
              for text, reply in [
        (ASKED, TURNS[2]), ("Turn 1 of", TURNS[0]), ("Turn 2 of", TURNS[1]),
        ("Turn 3 of", TURNS[3]), ("Turn 4 of", TURNS[4])]]
    server = serve(script=script
                   + [{"model": "sub", "contains": "x", "content": "said", "repeat": True}])
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    whole = droste("run", "--question", "q", "--json", "--model", "scripted-root", "--sub-model",
                   "scripted-sub", *SMALL, env=env)
    assert answered(whole, [5, "said"])["usage"]["calls"] == 6
    before, seen = server.stats()["requests"], requests(droste)
    cut_off(droste, position)
    again = droste("runs", "resume", droste.record.run["id"], "--json", env={"OPENAI_API_KEY": "k"})
    answered(again, [5, "said"])
    assert server.stats()["requests"] - before == 6 - position
    assert requests(droste) == seen and again.json["usage"]["calls"] == 6
