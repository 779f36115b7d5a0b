"""What the model is told of its session is true: every name in backquotes is there and does what is
said, with whatever settings; and of what is off there is no word.

The prompt is taken from the record of a run; each thing in backquotes is then evaluated by a model
that was told it, in a run with the same settings.
"""
import itertools
import json
import re

import pytest

from harness import repl

LLM, CHILD = "llm_query", "rlm_query"
SCHEMA = json.dumps({"type": "object", "properties":
                     {"city": {"type": "string"}, "size": {"type": "integer"}},
                     "required": ["city"]})

# What may be off: the flags that turn it on, and words that only then may be there.
PARTS = {
    "children": ([], ["--max-recursion-depth", "0"], ["`rlm_query", "a child run"]),
    "contexts": (["--context", "{a}", "--context", "mail={b}"], [],
                 ["`context_0`", "`context_1`", "`mail`", "There are"]),
    "schema": (["--answer-schema", SCHEMA], [],
               ["JSON Schema", "`SUBMIT(value)`", "`SUBMIT(city=value, size=value)`"]),
    "rules": (["--rules", "yes"], [], ["has rules", "`eval`", "`exec`", "`compile`", "`input`"]),
    "helpers": ([], ["--helpers", "no"], ["`grep(", "`peek(", "`chunk_by_size(",
                                          "`chunk_by_headers(", "`chunk_by_timestamps(",
                                          "`chunk_by_json_keys(", "`list_files(", "`find_files(",
                                          "`read_file("]),
    "compaction": (["--compaction", "0.6", "--model-window", "1000"], [], ["`history`", "summary"]),
}

# How each thing in backquotes is tried: code that raises unless it does what the prompt says.
# What submits is
# tried with SUBMIT's exception, which ends a cell; `value` fits the schema where there is one.
TRIALS = {
    "context": "assert isinstance(context, str)",
    "context_0": "assert context_0 == context == 'alpha'",
    "context_1": "assert context_1 == mail == 'beta'",
    "mail": "assert mail == 'beta'",
    "llm_query(prompt)": "assert llm_query('say') == 'said'",
    "llm_query_batched(prompts)": "assert llm_query_batched(['say', 'say']) == ['said', 'said']",
    "llm_query_batched": "assert llm_query_batched([]) == []",
    "rlm_query(prompt, context=value)":
    "assert rlm_query('task', context={'k': [1]}) == {'k': [1]}",
    "rlm_query_batched(prompts, context=value)":
        "assert rlm_query_batched(['task', {'prompt': 'task', 'context': 'own'}], context=[1]) == "
        "[[1], 'own']",
    "add_buffer(name, value)": "add_buffer('b', 1)",
    "get_buffer(name)": "add_buffer('g', 1); assert get_buffer('g') == [1]",
    "clear_buffer(name)": "add_buffer('c', 1); clear_buffer('c'); assert get_buffer('c') == []",
    "grep(text, pattern, context=0, ignore_case=False, limit=None)":
        "assert grep('a1\\nb\\na2', r'A\\d$', context=1, ignore_case=True, limit=1) == ['a1\\nb']; "
        "assert grep({'k': 'a\\nb'}, 'b') == ['k: b'] and grep(['b'], 'b') == ['0: b']",
    "grep(text, pattern, context=0, ignore_case=True, limit=None)":
        "assert grep('a.c\\nabc\\nA.C', 'a.C', limit=1) == ['a.c'] and grep('a\\nA', 'A', "
        "ignore_case=False) == ['A']; "
        "assert grep({'k': 'a\\nb'}, 'B') == ['k: b'] and grep('a\\nb', 'B', context=1) == "
        "['a\\nb']",
    "peek(text, start, length)": "assert peek('abcdef', 2, 3) == 'cde'",
    "chunk_by_size(text, size)": "assert chunk_by_size('abcde', 2) == ['ab', 'cd', 'e']",
    "chunk_by_headers(text)":
    "assert [c['content'] for c in chunk_by_headers('# A\\nx\\n## B\\ny')] == ['x', 'y']",
    "chunk_by_timestamps(text)":
        "two = ['2024-01-02 a', '2024-01-03T b']; assert [c['content'] for c in "
        "chunk_by_timestamps('\\n'.join(two))] == two",
    "chunk_by_json_keys(text)":
    "assert [c['content'] for c in chunk_by_json_keys('{\"a\": 1, \"b\": \"x\"}')] == ['1', "
    "'\"x\"']",
    "list_files(path)": "made = write_file('l.txt'); assert made in list_files('.')",
    "find_files(path, \"**/*.txt\")":
    "made = write_file('deep/f.txt'); assert made in find_files('.', '**/*.txt')",
    "read_file(path)": "assert read_file(write_file('r.txt')) == 'text'",
    "run(command)": "done = run('echo out; exit 3'); "
                    "assert done == {'exit_code': 3, 'stdout': 'out\\n', 'stderr': '', 'ok': "
                    "False}",
    "SHOW_VARS()": "x_marks = 1; assert \"'x_marks': 'int'\" in SHOW_VARS()",
    "SUBMIT(answer=value)": "submits(lambda: SUBMIT(answer=value))",
    "SUBMIT(value)": "submits(lambda: SUBMIT(value))",
    "SUBMIT(city=value, size=value)": "submits(lambda: SUBMIT(city='Oslo', size=1))",
    "FINAL(value)": "submits(lambda: FINAL(value))",
    "FINAL_VAR(\"name\")": "name = value; submits(lambda: FINAL_VAR('name'))",
    "answer[\"content\"]": "assert answer['content'] == ''",
    "answer[\"ready\"]": "assert answer['ready'] is False",
    "eval": "raises(lambda: eval('1'))",
    "exec": "raises(lambda: exec('1'))",
    "compile": "raises(lambda: compile('1', 'x', 'eval'))",
    "input": "raises(lambda: input())",
    "/data": "import os; assert os.path.isdir('/data')",
    "workspace":
    "workspace_write('in', 'x'); import os; assert os.path.isfile('/data/workspace/in')",
    "save_to_volume(path, text)": "assert save_to_volume('s', 'x') == '/data/s'",
    "load_from_volume(path)": "save_to_volume('l', 'x'); assert load_from_volume('l') == 'x'",
    "workspace_write(path, text)": "assert workspace_write('w', 'x') == '/data/workspace/w'",
    "workspace_append(path, text)": "workspace_append('a', 'x')",
    "workspace_read(path)": "workspace_write('r', 'x'); assert workspace_read('r') == 'x'",
    "workspace_list(pattern)": "workspace_write('p', 'x'); assert workspace_list('p') == ['p']",
    "history":
    "assert [sorted(m) for m in history] == [['content', 'role']] * len(history) and len(history) "
    ">= 5",
}

TOOLS = """def write_file(name):
    import pathlib
    path = pathlib.Path(name).absolute()
    path.parent.mkdir(exist_ok=True)
    path.write_text('text')
    return str(path)


def submits(call):
    try:
        call()
    except BaseException as e:
        assert type(e).__name__ == 'Submitted', repr(e)
    else:
        raise AssertionError('it went on')


def raises(call):
    try:
        call()
    except Exception as e:
        assert type(e).__name__ == 'RuleError', repr(e)
    else:
        raise AssertionError('it went on')


value = %s
"""


def settings():
    """Every combination of what may be on and off."""
    for on in itertools.product((False, True), repeat=len(PARTS)):
        chosen = [name for name, here in zip(PARTS, on) if here]
        yield pytest.param(chosen, id="+".join(chosen) or "nothing")


def flags_of(chosen, files):
    flags = []
    for name, (on, off, _) in PARTS.items():
        flags += on if name in chosen else off
    if "contexts" not in chosen:
        flags += ["--context", "{a}"]
    return [flag.format(**files) if flag in ("{a}", "mail={b}") else flag for flag in flags]


def backquoted(text):
    """What stands in single backquotes; a fence is none."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def sent_to_root(droste):
    """All that the loop said to the model of the root, in the run that is the newest."""
    run = droste.record.rows("SELECT id FROM runs WHERE parent IS NULL ORDER BY seq DESC")[0]["id"]
    lines = [json.loads(line) for line in droste("runs", "export", run).out.splitlines()]
    return "\n".join(m["content"] for line in lines if line["type"] == "call" and line["depth"] == 0
                     for m in line["request"]
                     if m["role"] != "assistant" and "print(" not in m["content"][:6])


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    return {"a": str(tmp_path / "a.txt"), "b": str(tmp_path / "b.txt")}


def converse(ask, chosen, files, code, more=()):
    """A few turns, a summary if it is on, and then this code."""
    value = "{'city': 'Oslo'}" if "schema" in chosen else "5"
    turns = [repl("print('a' * 3000)"), repl("y = 2")]
    turns += [repl(TOOLS % value, *code), repl("SUBMIT(value)")]
    answers = [{"content": "what I did", "contains": "Write a summary with which", "repeat": True},
               {"content": "said", "depth": 1, "contains": "say", "repeat": True},
               {"content": repl("SUBMIT(context)"), "depth": 1, "contains": "task", "repeat": True}]
    return ask([*answers, *turns], *flags_of(chosen, files), *more)


@pytest.mark.parametrize("chosen", settings())
def test_what_the_prompt_names_is_there_and_works(ask, droste, files, chosen):
    """Each thing in backquotes, tried in a session that is as the prompt says; nothing else is
    named."""
    first = converse(ask, chosen, files, [])
    assert first.status == 0, first
    text = sent_to_root(droste)
    named = sorted(set(backquoted(text)))
    untried = set(named) - set(TRIALS)
    assert not untried, "the prompt names what is not tried here"
    assert len(named) >= 12
    second = converse(ask, chosen, files, [TRIALS[name] for name in named])
    assert second.status == 0, second
    failed = droste.record.rows("SELECT c.status, b.data FROM cells c JOIN runs r ON c.run = r.id"
                                " LEFT JOIN blobs b ON b.hash = c.error WHERE c.status = 'error'")
    assert failed == []
    for name, (_, _, words) in PARTS.items():
        for word in words:
            assert (word in text) == (name in chosen), "%r in what is said, with %s" % (word,
                                                                                        chosen)


def prompt_names_run(ask, droste, *flags):
    assert ask([repl("SUBMIT(1)")], *flags).status == 0
    return "`run(command)`" in sent_to_root(droste)


def test_the_prompt_names_processes_if_they_are_allowed(ask, droste):
    """Neither under rules nor without helpers."""
    assert prompt_names_run(ask, droste)
    assert not prompt_names_run(ask, droste, "--rules", "yes")
    assert not prompt_names_run(ask, droste, "--helpers", "no")


def test_the_prompt_says_how_grep_searches(ask, droste, files):
    """With literal-grep it says so in the place of what it says without, and that is what grep
    does."""
    patterns, words = ("grep(text, pattern, context=0, ignore_case=%s, limit=None)" % case
                       for case in (False, True))
    assert converse(ask, ["helpers"], files, [TRIALS[patterns]]).status == 0
    named = backquoted(sent_to_root(droste))
    assert patterns in named and words not in named
    assert converse(ask, ["helpers"], files, [TRIALS[words]], ["--literal-grep", "yes"]).status == 0
    named = backquoted(sent_to_root(droste))
    assert words in named and patterns not in named
    assert [c for c in droste.record.cells if c["status"] == "error"] == []


def test_the_prompt_omits_helpers_whose_names_are_taken(ask, droste, files, tmp_path):
    """A context, a tool or a value of the same name is there instead, and what the prompt says is
    still true."""
    (tmp_path / "tools.py").write_text(
        "def read_file(path):\n    'Reads from elsewhere.'\n    return 'mine'\n")
    (tmp_path / "data.json").write_text("[1]")
    code = "SUBMIT([grep, read_file('x'), run, peek('abc', 1, 1)])"
    result = ask([repl(code)], "--context", "grep=" + files["a"], "--tools", tmp_path / "tools.py",
                 "--tool-data", "run=%s" % (tmp_path / "data.json"))
    assert result.json["answer"] == ["alpha", "mine", [1], "b"]
    text = sent_to_root(droste)
    assert "Reads from elsewhere." in text and "`peek(" in text
    for gone in ("`grep(", "`find_files(", "`run("):
        assert gone not in text


def test_what_the_prompt_names_of_a_volume_is_there_and_works(ask, droste, files):
    """The same for a session with a volume; one without has none of it in what it is told."""
    flags = ["--volume-name", "v", "--isolation", "full"]
    assert converse(ask, [], files, []).status == 0
    without = set(backquoted(sent_to_root(droste)))
    assert converse(ask, [], files, [], flags).status == 0
    named = sorted(set(backquoted(sent_to_root(droste))) - without)
    assert len(named) >= 7 and "/data" in named and set(named) <= set(TRIALS)
    assert converse(ask, [], files, [TRIALS[name] for name in named], flags).status == 0
    assert [c for c in droste.record.cells if c["status"] == "error"] == []


def test_each_trial_can_fail(ask, droste, files):
    """The twin: with everything off, what would have been on is not there."""
    off = ["context_1", "rlm_query(prompt, context=value)", "SUBMIT(city=value, size=value)",
           "eval", "history"]
    assert converse(ask, [], files, [TRIALS[name] for name in off[:1] + off[3:]]).status == 0
    assert [c["status"] for c in droste.record.cells
            if c["status"] != "submitted"].count("error") == 3


ORDERS = """2025-03-01 order 1041 customer=ada total=19.90
# a comment = none
2025-03-02 order 1042 customer=bob total=30.00
2025-03-02 order 1043 customer=ada total=15.00
"""
REVIEWS = "\n\n".join("Came late." if i in (7, 160) else "Good." for i in range(250))


@pytest.fixture
def examples(ask, droste, files):
    """The blocks of the system prompt: how to write one, then two for each example."""
    assert converse(ask, [], files, []).status == 0
    first, *others = re.findall(r"```repl\n.*?\n```", droste("prompts", "system").out, re.S)
    assert all(block in sent_to_root(droste) for block in (first, *others)) and len(others) == 4
    return first, others[:2], others[2:]


def test_first_block_of_the_prompt_runs(ask, examples, files):
    """It is a block by the rules of the loop, and prints what it says."""
    result = ask([examples[0], {"content": repl("SUBMIT(1)"), "contains": "<class 'str'> 5"}],
                 "--context", files["a"])
    assert result.status == 0, result


@pytest.mark.parametrize("rules", (["--rules", "yes", "--standard-imports", "no"], []))
def test_example_of_searching_runs(ask, examples, tmp_path, rules):
    """Each customer's total is computed, the output shows it, and the answer is right; also with
    rules."""
    (tmp_path / "orders").write_text(ORDERS)
    look, submit = examples[1]
    result = ask([look,
                  {"content": submit, "contains": "2 customers; [('ada', 34.9), ('bob', 30.0)]"}],
                 "--context", tmp_path / "orders", *rules)
    assert result.json["answer"] == "ada", result


@pytest.mark.parametrize("rules", (["--rules", "yes", "--standard-imports", "no"], []))
def test_example_of_mapping_runs(ask, examples, tmp_path, rules):
    """Three prompts are sent, their replies are combined, and the answer is right."""
    (tmp_path / "reviews").write_text(REVIEWS)
    look, submit = examples[2]
    reads = [{"content": "7", "depth": 1, "contains": "\n\n0: Good."},
             {"content": "160", "depth": 1, "contains": "100: "},
             {"content": "NONE", "depth": 1, "contains": "200: "}]
    expected = "3 prompts, 0 failed; 2 reviews: [7, 160]\n7 Came late."
    result = ask([look, *reads, {"content": submit, "contains": expected}], "--context",
                 tmp_path / "reviews", *rules)
    assert result.json["answer"] == 2, result


def test_prompts_are_listed_and_printed(droste):
    """Each name of the list has a text; a name that is none is refused with a pointer to the
    list."""
    listed = re.findall(r"^([a-z0-9-]+) +\S", droste("prompts").out, re.M)
    assert {"system", "model-qwen", "session-rules", "no-code",
            "history"} <= set(listed) and len(set(listed)) == len(listed)
    texts = [droste("prompts", name).out for name in ("system", "no-code", "model-qwen")]
    assert all(text.strip() for text in texts) and "{session}" in texts[0] and "```repl" in texts[1]
    refused = droste("prompts", "sytsem")
    assert refused.status == 2
    assert "there is no prompt 'sytsem'; `droste prompts` lists them" in refused.err


def system_prompt(droste):
    """What the root's model got as its system prompt, in the run that is the newest."""
    run = droste.record.rows("SELECT id FROM runs WHERE parent IS NULL ORDER BY seq DESC")[0]["id"]
    calls = [json.loads(line) for line in droste("runs", "export", run).out.splitlines()]
    (first, *_) = [call["request"] for call in calls
                   if call["type"] == "call" and call["depth"] == 0]
    assert first[0]["role"] == "system"
    return first[0]["content"]


def test_the_system_prompt_can_be_replaced(ask, droste, tmp_path):
    """With a text, also in child runs: placeholders are filled, other braces stay. Twin:
    Droste's."""
    child = {"content": repl("SUBMIT(1)"), "depth": 1, "contains": "Question: q"}
    assert ask([repl("SUBMIT(rlm_query('q'))"), child], "--system-prompt",
               "Mine: {'a': {b}} {no}.\n\n{session}\n\n{rules}\n\nEnd.").status == 0
    text = system_prompt(droste)
    assert text.startswith("Mine: {'a': {b}} {no}.\n\n- `context`: ") and text.endswith(
        "is not.\n\nEnd.\n")
    assert "Example 1" not in text and "{session}" not in text
    lines = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    assert [line["request"][0]["content"][:5] for line in lines
            if line["type"] == "call"] == ["Mine:"] * 2
    assert ask([repl("SUBMIT(1)")]).status == 0 and "Example 1" in system_prompt(droste)


def test_the_prompt_that_is_printed_is_the_default(ask, droste, tmp_path):
    """`droste prompts system`, given back as a file, makes the same system prompt."""
    flags = ["--answer-schema", SCHEMA, "--instructions", "Be {brief}.", "--rules", "yes"]
    (tmp_path / "mine.txt").write_text(droste("prompts", "system").out)
    answer = repl("SUBMIT(city='Oslo')")
    assert ask([answer], *flags).status == 0
    default = system_prompt(droste)
    assert ask([answer], *flags, "--system-prompt", "@%s" % (tmp_path / "mine.txt")).status == 0
    assert system_prompt(droste) == default and "Be {brief}." in default


def test_a_prompt_without_placeholders_is_completed(ask, droste, tmp_path):
    """Schema, instructions and tools follow a text without placeholders for them; none is twice."""
    (tmp_path / "tools.py").write_text("def lookup(key):\n    'Looks a key up.'\n    return key\n")
    flags = ["--answer-schema", SCHEMA, "--instructions", "Be brief.", "--tools",
             tmp_path / "tools.py"]
    assert ask([repl("SUBMIT(city='Oslo')")], *flags, "--system-prompt",
               "{instructions}\nMine.").status == 0
    text = system_prompt(droste)
    assert text.startswith(
        "Instructions for this task:\nBe brief.\nMine.\n\nThe answer must fit this JSON Schema:\n")
    assert text.count("Be brief.") == 1 and "Looks a key up." in text and "llm_query" not in text


def test_a_system_prompt_that_cannot_be_read_is_refused(ask):
    """No model is asked."""
    refused = ask([repl("SUBMIT(1)")], "--system-prompt", "@/nonexistent")
    assert refused.status == 2 and "reading the system prompt" in refused.err


def test_batch_marks_what_failed_as_the_prompt_says(ask):
    """A reply that failed begins with [ERROR]."""
    bad = {"error": {"code": "model_server", "message": "overheated"}, "depth": 1}
    result = ask([repl("SUBMIT(llm_query_batched(['q'])[0].startswith('[ERROR]'))"), bad])
    assert result.json["answer"] is True


def test_answer_dict_answers_as_the_prompt_says(ask):
    """Setting content and then ready gives the answer, and ends the work."""
    result = ask([repl("answer[\"content\"] = 5\nanswer[\"ready\"] = True")])
    assert result.json["answer"] == 5


def test_child_sees_only_what_the_prompt_says(ask):
    """A session of its own: none of the parent's variables, the prompt and the context."""
    child = {"content": repl("SUBMIT(['secret' in globals(), context])"), "depth": 1,
             "contains": "Question: the task"}
    result = ask([repl("secret = 1\nSUBMIT(rlm_query('the task', context=b'bytes'.decode()))"),
                  child])
    assert result.json["answer"] == [False, "bytes"]


def test_the_prompt_omits_child_runs_at_the_last_depth(ask, droste):
    """The deepest child's prompt has no word of child runs; its parent's has."""
    child = {"content": repl("SUBMIT(1)"), "depth": 1}
    assert ask([repl("SUBMIT(rlm_query('q'))"), child], "--max-recursion-depth", "1").status == 0
    lines = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    systems = {line["depth"]: line["request"][0]["content"] for line in lines
               if line["type"] == "call"}
    assert "rlm_query" in systems[0] and "rlm_query" not in systems[1]


def test_custom_instructions_are_in_the_prompt_unchanged(ask, droste):
    """At the end of the system prompt, also where they are full of format marks; without them
    there is no word."""
    text = "Answer in French: 100%s {of} `it`."
    assert ask([repl("SUBMIT(1)")], "--instructions", text).status == 0
    sent = sent_to_root(droste)
    assert "\nInstructions for this task:\n%s\n" % text in sent
    assert ask([repl("SUBMIT(1)")]).status == 0
    assert "Instructions" not in sent_to_root(droste)
