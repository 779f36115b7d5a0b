"""DESIGN.md: "Names in the guest: `context` (`context_0`…), `history`, `SUBMIT`, `answer`, `FINAL`,
`FINAL_VAR`, `SHOW_VARS`, `llm_query`, `llm_query_batched`, `rlm_query`, `rlm_query_batched` (also
as `sub_rlm`, `sub_rlm_batched`), the buffers, the text and volume helpers, and the user's tools."

PROOFS has a cell for each name of the table of docs/guest.md; each submits `proof`, which must be
true.
"""
import os
import re

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = "| name | what it is |\n| --- | --- |\n"

LOG = "text = '2026-01-02 10:01 start\\n2026-01-02 10:02 Error: disk\\n'\n"

# By name: a cell of a session whose model answers `re: ` and the question.
PROOFS = {
    "llm_query": "SUBMIT(proof=llm_query('a') == 're: a' and type(llm_query('a')) is str)",
    "llm_query_batched": "SUBMIT(proof=llm_query_batched(['a', 'b']) == ['re: a', 're: b'])",
    "rlm_query": "SUBMIT(proof=rlm_query('a').startswith('re: a'))",
    "sub_rlm": "SUBMIT(proof=sub_rlm('a').startswith('re: a'))",
    "rlm_query_batched":
    "SUBMIT(proof=[r[:5] for r in rlm_query_batched(['a', 'b'])] == ['re: a', 're: b'])",
    "sub_rlm_batched":
    "SUBMIT(proof=[r[:5] for r in sub_rlm_batched(['a', 'b'])] == ['re: a', 're: b'])",
    "llm_query_async": "SUBMIT(proof=await llm_query_async('a') == 're: a')",
    "llm_query_batched_async":
    "SUBMIT(proof=await llm_query_batched_async(['a', 'b']) == ['re: a', 're: b'])",
    "rlm_query_async": "SUBMIT(proof=(await rlm_query_async('a')).startswith('re: a'))",
    "rlm_query_batched_async":
    "SUBMIT(proof=[r[:5] for r in await rlm_query_batched_async(['a', 'b'])] == ['re: a', 're: "
    "b'])",
    "llm_submit": "SUBMIT(proof=llm_submit('a').result() == 're: a')",
    "rlm_submit": "SUBMIT(proof=rlm_submit('a').result().startswith('re: a'))",
    "fork_map": "n = 1\nSUBMIT(proof=fork_map(lambda x: x + n, [1, 2]) == [2, 3] and n == 1)",
    "ForkError": "import os\ntry: fork_map(os._exit, [1])\nexcept ForkError: SUBMIT(proof=True)",
    "SUBMIT": "SUBMIT(proof=True)",
    "FINAL": "try: FINAL(1)\nexcept BaseException as e: SUBMIT(proof=not isinstance(e, Exception))",
    "FINAL_VAR":
    "try: FINAL_VAR('nowhere')\nexcept NameError as e: SUBMIT(proof='nowhere' in str(e))",
    "answer": "SUBMIT(proof=answer == {'content': '', 'ready': False})",
    "SHOW_VARS": "rows = [1]\nSUBMIT(proof=\"'rows': 'list'\" in SHOW_VARS())",
    "add_buffer": "SUBMIT(proof=add_buffer('b', {1}) == {'status': 'ok', 'name': 'b', 'count': 1})",
    "get_buffer":
    "add_buffer('g', 1)\nadd_buffer('g', 2)\nSUBMIT(proof=get_buffer('g') == [1, 2] and "
    "get_buffer('none') == [])",
    "clear_buffer":
    "add_buffer('c', 1)\nadd_buffer('d', 1)\nclear_buffer('c')\nSUBMIT(proof=(get_buffer('c'), "
    "get_buffer('d')) == ([], [1]))",
    "grep": LOG
    + "SUBMIT(proof=grep(text, r'error: \\w+', ignore_case=True) == ['2026-01-02 10:02 Error: "
      "disk'])",
    "peek": "SUBMIT(proof=peek('abcdef', 2, 3) == 'cde' and peek([1, 2, 3], 1) == [2, 3])",
    "chunk_by_size":
    "SUBMIT(proof=chunk_by_size('abcdefg', size=4, overlap=1) == ['abcd', 'defg'])",
    "chunk_by_headers":
    "SUBMIT(proof=[p['header'] for p in chunk_by_headers('# A\\nx\\n## B\\ny')] == ['# A', "
    "'## B'])",
    "chunk_by_timestamps": LOG + "SUBMIT(proof=len(chunk_by_timestamps(text)) == 2)",
    "chunk_by_json_keys":
    "SUBMIT(proof=[p['key'] for p in chunk_by_json_keys('{\"a\": 1, \"b\": []}')] == ['a', 'b'])",
    "list_files":
    "open('f.txt', 'w').close()\nSUBMIT(proof='f.txt' in [p.rpartition('/')[2] for p in "
    "list_files('.')])",
    "find_files":
    "open('f.py', 'w').close()\nSUBMIT(proof=[p.rpartition('/')[2] for p in find_files('.', "
    "'f.p*')] == ['f.py'])",
    "read_file":
    "with open('r.txt', 'wb') as f: x = f.write(b'a\\xff')\nSUBMIT(proof=read_file('r.txt') == "
    "'a\\ufffd')",
    "run":
    "r = run('echo out; echo err >&2; exit 3')\nSUBMIT(proof=(r['exit_code'], r['stdout'], "
    "r['stderr'], r['ok']) == (3, 'out\\n', 'err\\n', False))",
    "resolve_path":
    "import os\nSUBMIT(proof=resolve_path('f') == os.path.join(os.getcwd(), 'f') and "
    "resolve_path('/f') == '/f')",
    "extract_python_ast":
    ("import json\nwith open('s.py', 'w') as f: x = f.write('class A:\\n    def b(self): "
     "pass\\n')\n"
     "found = json.loads(extract_python_ast('s.py'))\n"
     "SUBMIT(proof=[(e['type'], e['name'], e['methods']) for e in found] == [('Class', 'A', "
     "['b'])])"),
    "start_background_process":
    "SUBMIT(proof='was started' in start_background_process('s', 'exit 0'))",
    "read_process_logs": ("import time\nstart_background_process('r', 'echo said; sleep 1000')\n"
                          "while not read_process_logs('r'): "
                          "time.sleep(0.01)\nSUBMIT(proof=read_process_logs('r') == 'said')"),
    "kill_process":
    "start_background_process('k', 'sleep 1000')\nSUBMIT(proof=kill_process('k').endswith('was "
    "killed'))",
    "log_execution":
    "log_execution('f()', 'told', {'step': 1})\nSUBMIT(proof=get_last_execution()['metadata'] == "
    "{'step': 1})",
    "get_session_history":
    "log_execution('g()', '')\nSUBMIT(proof='g()' in [e['code_preview'] for e in "
    "get_session_history()])",
    "get_last_execution":
    "log_execution('h()', '')\nSUBMIT(proof=get_last_execution()['code_preview'] == 'h()')",
    # test_volumes_stay.py has one
    "save_to_volume": "SUBMIT(proof='no volume' in save_to_volume('a', 'b'))",
    "load_from_volume": "SUBMIT(proof='no volume' in load_from_volume('a'))",
    "workspace_write": "SUBMIT(proof=workspace_write('a', 'b').startswith('[error: '))",
    "workspace_append": "SUBMIT(proof=workspace_append('a', 'b').startswith('[error: '))",
    "workspace_read": "SUBMIT(proof=workspace_read('a').startswith('[error: '))",
    "workspace_list": "SUBMIT(proof=callable(workspace_list))",
    "LLMError":
    "try: llm_query('fail now')\nexcept LLMError as e: SUBMIT(proof='now' in str(e) and "
    "bool(e.code))",
    "BudgetExceeded": "SUBMIT(proof=issubclass(BudgetExceeded, LLMError))",
    "LLMTimeout": "SUBMIT(proof=issubclass(LLMTimeout, (LLMError, TimeoutError)))",
    "ToolError": "SUBMIT(proof=issubclass(ToolError, RuntimeError))",
    "display": "SUBMIT(proof=callable(display(1, display_id=True).update))",
    "update_display": "SUBMIT(proof=update_display(1, display_id='a') is None)",
    "clear_output": "SUBMIT(proof=clear_output(wait=True) is None)",
    "FailedReply":
    "r = llm_query_batched(['a', 'fail'])\nSUBMIT(proof=r[0] == 're: a' and isinstance(r[1], "
    "FailedReply) and r[1].startswith('[ERROR] '))",
}
# They are there where something was given; tests below and in test_staged_files.py have it.
GIVEN = {"context", "context_0", "context_1", "REPO_PATH", "WORKSPACE_ROOT", "CONTEXT_PATHS",
         "MEMORY_ROOT"}


def documented():
    """The names in the table of docs/guest.md."""
    with open(os.path.join(ROOT, "docs", "guest.md"), encoding="utf-8") as page:
        rows = page.read().partition(HEAD)[2].partition("\n\n")[0].splitlines()
    return [name for row in rows for text in re.findall(
        r"`([^`]+)`", row.split(" | ")[0] + ("`sub_rlm`" if "rlm_query(" in row else "")
        + ("`sub_rlm_batched`" if "rlm_query_batched(" in row else ""))
            for name in re.findall(r"^\w+", text)]


def test_every_documented_name_is_proved_and_no_other():
    """No name of that table is left out below, and none is made up."""
    assert set(documented()) == set(PROOFS) | GIVEN


@pytest.mark.parametrize("name", PROOFS)
def test_a_name_of_the_guest_works(session, opened, name):
    """Every name in the guest is there and does what docs/guest.md says."""
    if name in ("fork_map", "ForkError"):       # other names leave threads in the shared session
        session = opened()
    result = session.execute(PROOFS[name])
    assert result.status == "submitted" and result.proof is True, result.json


def test_names_are_built_ins(session):
    """A variable of the same name hides one, and `del` brings it back; functions and classes find
    them, too."""
    result = session.execute("peek = 5\nseen = [peek]\ndel peek\nseen.append(peek('abc', 1))\n"
                             "class C:\n    def f(self): return peek('xyz', 2)\nSUBMIT(seen=seen + "
                             "[C().f()])")
    assert result.seen == [5, "bc", "z"]


def test_the_context_is_a_variable(session):
    """`context` is what was given, as a value; helpers without a text look into it."""
    session.set("context", "one\ntwo\nthree\n")
    assert session.execute(
        "SUBMIT(n=len(context), hits=grep('^t'), head=peek(length=3))").fields == {
        "n": 14, "hits": ["two", "three"], "head": "one"}


def test_helpers_without_a_context_say_so(session):
    """The twin: there is none, and the error says what to do."""
    assert session.execute("peek()").error.type == "NameError"


def reply(code):
    return "Next:\n```repl\n%s\n```" % code


def test_a_run_has_its_context_by_both_names(environment):
    """In a run `context` and `context_0` are the value that was given: texts, bytes and JSON."""
    for context in ("text \U0001f600", b"\x00\xff", {"a": [1, None]}):
        done = environment.rlm(lambda messages: reply(
            "SUBMIT(answer=[repr(context), context is context_0])")).run("q", context)
        assert done.answer == [repr(context), True], done.error


def test_a_run_starts_child_runs_over_contexts_of_their_own(environment):
    """`rlm_query` in a run: a model writes code over the child's context in another sandbox, and
    its value comes back."""
    def model(messages):
        if "double it" in str(messages):
            return reply("SUBMIT(answer=[2 * n for n in context['numbers']])")
        return reply("mine = 1\nSUBMIT(answer=rlm_query('double it', context={'numbers': [1, 2]}))")

    done = environment.rlm(model).run("q")
    assert done.answer == [2, 4], done.error


def test_a_conversation_that_was_shortened_is_in_history(environment):
    """`history` is the whole conversation, once the model is shown a shorter one."""
    turns = []

    def model(messages):
        if "```repl" not in str(messages[0]) or "summar" in str(messages[-1]).lower():
            return "In short: nothing."
        turns.append(messages)
        return reply("print('x' * 8000)" if len(turns) < 6 else
                     "SUBMIT(answer=[type(history).__name__, history[0]['role'], 'what is it' in "
                     "str(history[0]['content'])])")

    done = environment.rlm(model, compaction=0.5, model_window=8000).run("what is it")
    assert done.answer == ["list", "user", True], done.error


def test_setup_code_runs_before_the_first_cell(opened):
    """What it binds and defines is there, under every isolation."""
    assert opened(setup_code="import math\nbase = 40\ndef add(n): return base + n").execute(
        "SUBMIT(n=add(2))").n == 42


def test_setup_code_that_fails_opens_no_session(environment):
    """The error names what it raised; nothing runs in a session that is set up by half."""
    import droste
    with pytest.raises(droste.Error, match="ZeroDivisionError"):
        environment.open(setup_code="x = 1\n1 / 0")


def test_the_interpreter_is_cpython(session):
    """CPython 3.8 or newer, with the whole standard library."""
    assert session.execute("import sys, sqlite3, ssl, decimal, ctypes, multiprocessing, asyncio").ok
    assert session.execute(
        "SUBMIT(v=list(sys.version_info[:2]), of=sys.implementation.name)").of == "cpython"
    assert session.execute("SUBMIT(v=list(sys.version_info[:2]))").v >= [3, 8]


@pytest.mark.needs("preload")
def test_preloaded_modules_are_there_and_are_the_sessions_own(opened):
    """`preload`: imported once, and what one session does to its copy another does not see."""
    one, two = opened(preload=["calendar"]), opened(preload=["calendar"])
    assert one.execute(
        "import sys\nthere = 'calendar' in sys.modules\nimport calendar\ncalendar.mine = 1\n"
        "there").echo == "True"
    assert two.execute("import calendar\nhasattr(calendar, 'mine')").echo == "False"
