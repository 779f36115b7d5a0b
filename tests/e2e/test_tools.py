"""Tools of the command line: values, source, and programs of this machine, for real sandboxes and
models that were written down."""
import json
import os

import pytest

from harness import finish, process_stat, repl, wait_until, write_replay
from lives import settle

SOURCE = '''import functools

@functools.lru_cache
def grep(text: str, limit=3):
    """Lines of the context with this text.

    At most `limit`."""
    return [line for line in context.splitlines() if text in line][:limit]

def helper():
    pass

def _hidden():
    "Not for anybody."
'''

# Notes each call in a file beside it. {"wait": NAME} waits until there is a file NAME; {"fail":
# T} fails.
PROGRAM = '''#!/usr/bin/python3
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
line = sys.stdin.readline()
assert sys.stdin.read() == ""
asked = json.loads(line)["arguments"]
parent = os.getppid()
with open(os.path.join(here, "calls"), "a") as log:
    log.write(json.dumps(asked) + "\\n")
while "wait" in asked and not os.path.exists(os.path.join(here, asked["wait"])):
    if os.getppid() != parent:
        sys.exit("nobody waits any more")
    time.sleep(0.02)
if "fail" in asked:
    sys.exit("nothing is known of %s" % asked["fail"] + "!" * 600)
print(json.dumps({"n": asked.get("n"), "calls": sum(1 for _ in open(os.path.join(here, "calls")))}, indent=2))
'''
ABOUT = {"description": "Looks it up.\nSlowly.", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "description": "Which one."},
                                     "wait": {}, "fail": {}}}}


class Place:
    def __init__(self, path):
        self.path = path
        (path / "t.py").write_text(SOURCE)
        (path / "p.json").write_text('{"a": 1.5, "b": [null]}')
        (path / "c.txt").write_text("one\ntwo\nthree two\n")
        self.program("look", PROGRAM)
        (path / "look.json").write_text(json.dumps(ABOUT))
        self.flags = ["--tools", "t.py", "--tool-data", "prices=p.json", "--tool", "look=./look",
                      "--context", "c.txt"]

    def program(self, name, text):
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    @property
    def calls(self):
        """The calls in the log; a line that a program is still writing is not one yet."""
        log = self.path / "calls"
        text = log.read_text() if log.exists() else ""
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


@pytest.fixture
def place(droste, tmp_path):
    return Place(tmp_path)


def run(droste, place, model, *flags):
    return droste("run", "--question", "q", "--json", "--model", model, *place.flags, *flags,
                  cwd=place.path)


def cell(droste, place, code, *flags):
    return droste.cell(code, *place.flags, *flags, cwd=place.path)


# ---- what they are ----

def test_a_session_has_them_all(droste, place):
    """Values, source and programs, in `exec`; what the source keeps to itself is not a tool."""
    found = cell(droste, place, "import inspect\n"
                               "SUBMIT(v=prices, g=grep('two'), l=look(n=3), "
                               "s=str(inspect.signature(look)),\n"
                               "       d=look.__doc__, vars=[n for n in globals() if n[0] != "
                               "'_'])")["submit"]
    assert found["v"] == {"a": 1.5, "b": [None]} and found["g"] == ["two", "three two"]
    assert found["l"] == {"n": 3, "calls": 1} and found["s"] == "(n: int = ..., wait=..., fail=...)"
    assert found["d"] == "Looks it up.\nSlowly.\n\nArguments:\n  n: Which one."
    assert set(found["vars"]) == {"answer", "prices", "functools", "helper", "context", "context_0",
                                  "inspect"}


def test_tools_and_a_schema_go_together(droste, place, replay):
    """The schema is for the answer alone: not for the list of tools, which the guest sends the
    same way."""
    schema = ["--answer-schema",
              '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}']
    wrong, right = "```repl\nSUBMIT(n='x')\n```", "```repl\nSUBMIT(n=look(n=3)['n'])\n```"
    result = run(droste, place, replay(wrong, {"content": right,
                                               "contains": "does not match its schema"}), *schema)
    assert result.json["answer"] == {"n": 3}, result


def test_rules_leave_tools_alone(droste, place):
    """Source is set-up code: it may import what cells may not; its functions may be called by
    cells."""
    (place.path / "t.py").write_text("import subprocess\n"
                                     "def shell(command):\n    'Runs it.'\n"
                                     "    return subprocess.run(command, shell=True, "
                                     "capture_output=True).stdout.decode()")
    found = cell(droste, place,
                 "try:\n    import socket\nexcept ImportError: SUBMIT(v=shell('echo x'), "
                 "n=look(n=1)['n'])",
                 "--rules", "yes")
    assert found["submit"] == {"v": "x\n", "n": 1}


def test_a_program_that_fails_is_a_runtime_error_with_its_last_words(droste, place):
    """Its status and the end of its standard error are the message."""
    found = cell(droste, place,
                 "try: look(fail='x')\nexcept RuntimeError as e: SUBMIT(e=str(e), "
                 "t=type(e).__name__)")
    assert found["submit"] == {"e": "look ended with exit status 1: nothing is known of x"
                               + "!" * 600,
                               "t": "RuntimeError"}


@pytest.mark.parametrize("text, says", [
    ("#!/bin/sh\necho 1 2\n", "the tool's answer is not JSON: JSON is invalid"),
    ("#!/bin/sh\n", "the tool's answer is not JSON"),
    ("#!/bin/sh\nkill -9 $$\n", "odd was ended by signal 9"),
    ("#!/nowhere/sh\n", "starting the tool ./odd: No such file"),
    ("#!/bin/sh\nhead -c 70000000 /dev/zero\n", "odd wrote more than 64 MiB"),
], ids=["two values", "nothing", "a signal", "no interpreter", "a flood"])
def test_a_program_that_gives_no_answer_is_an_error_that_says_so(droste, place, text, says):
    """And the next call starts it anew."""
    place.program("odd", text)
    found = cell(droste, place,
                 "def said():\n    try: odd(1)\n    except RuntimeError as e: return str(e)\n"
                               "SUBMIT(a=said(), b=said())", "--tool", "odd=./odd")["submit"]
    assert says in found["a"] and found["a"] == found["b"]


def test_the_time_of_a_program_is_limited_and_all_of_it_ends(droste, place):
    """What it started ends with it; the guest gets a TimeoutError, and its session goes on."""
    place.program("slow", "#!/bin/sh\nsleep 1000 &\necho $! $$ > pids\nwait\n")
    for limit in "2", "20":
        found = cell(droste, place,
                     "try: slow()\nexcept TimeoutError as e: SUBMIT(e=str(e), n=look(n=1)['n'])",
                     "--tool", "slow=./slow", "--tool-timeout", limit)
        if found["status"] == "submitted":
            break       # else the other program took longer
    assert found["submit"] == {
        "e": "no answer within %s s (tool-timeout); the call was cancelled" % limit, "n": 1}
    for pid in map(int, (place.path / "pids").read_text().split()):
        wait_until(lambda: (process_stat(pid) or "X")[0] in "ZX", what="the end of the program")


def test_so_many_programs_run_at_once_and_the_others_wait(droste, place):
    """Each waits until eight have begun, and notes how many there are; all thirty are answered."""
    place.program("crowd", "#!/usr/bin/python3\n"
                           "import os, time\n"
                           "os.makedirs('on', exist_ok=True)\n"
                           "me = 'on/%d' % os.getpid()\nopen(me, 'w').close()\nopen('begun', "
                           "'a').write('x')\n"
                           "while os.path.getsize('begun') < 8: time.sleep(0.01)\n"
                           "print(len(os.listdir('on')))\nos.unlink(me)\n")
    found = cell(droste, place, "from concurrent.futures import ThreadPoolExecutor\n"
                               "with ThreadPoolExecutor(30) as pool:\n"
                               "    SUBMIT(v=list(pool.map(lambda _: crowd(), range(30))))",
                 "--tool", "crowd=./crowd")
    assert len(found["submit"]["v"]) == 30 and max(found["submit"]["v"]) <= 8


# ---- what is refused ----

RESERVED = """import builtins, keyword
SUBMIT(names=[n for n in dir(builtins) if n[0] != '_'] + keyword.kwlist
       + [n for n in globals() if n not in ("builtins", "keyword")])
"""


def test_no_tool_takes_a_name_that_python_or_the_guest_has(droste, place):
    """Every built-in of the guest, ours among them, every keyword, and what the namespace begins
    with; but the helpers for texts and files give theirs away."""
    names = droste.cell(RESERVED, "--context", "c.txt", "--helpers", "no",
                        cwd=place.path)["submit"]["names"]
    helpers = set(droste.cell(RESERVED, "--context", "c.txt",
                              cwd=place.path)["submit"]["names"]) - set(names)
    assert {"peek", "read_file", "run"} < helpers
    for name in helpers:
        code = "SUBMIT(v=%s(n=7)['n'])" % name
        assert droste.cell(code, "--tool", "%s=./look" % name, cwd=place.path)["submit"] == {"v": 7}
    assert {"print", "llm_query", "SUBMIT", "for", "context",
            "answer"} < set(names) and len(names) > 150
    for name in names:
        result = droste("exec", "-c", "1", "--tool-data", "%s=p.json" % name, cwd=place.path)
        assert result.status == 2 and name in result.complaint, name
    assert droste("exec", "-c", "1", "--tool-data", "mine=p.json", cwd=place.path).status == 0


@pytest.mark.parametrize("flags, says", [
    (["--tool", "look"], "write NAME=PROGRAM"),
    (["--tool", "=./look"], "write NAME=PROGRAM"),
    (["--tool", "x=./nothing"], "tool 'x': the program ./nothing could not be started"),
    (["--tool", "x=./t.py"], "tool 'x': the program ./t.py could not be started"),
    (["--tool", "x=./bad"], "reading ./bad.json"),
    (["--tool-data", "x"], "write NAME=FILE"),
    (["--tool-data", "x=nothing"], "reading tool-data 'x'"),
    (["--tool-data", "x=t.py"], "tool-data 'x': JSON is invalid"),
    (["--tool-data", "a-b=p.json"], "'a-b' is not a valid name for a tool"),
    (["--tool-data", "prices=p.json"], "two tools with the name 'prices'"),
    (["--tools", "nothing.py"], "reading the tools: opening the file nothing.py"),
    (["--tools", "c.txt"], "the tools failed in line 3 of <tools c.txt>: SyntaxError"),
    (["--tools", "t.py"], "the name 'grep' is already in use"),
])
def test_what_cannot_be_a_tool_is_named(droste, place, flags, says):
    """Before any code runs."""
    place.program("bad", "#!/bin/sh\n")
    (place.path / "bad.json").write_text("[]")
    result = droste("exec", "-c", "1", *place.flags, *flags, cwd=place.path)
    assert result.status in (1, 2) and says in result.complaint, result


# ---- in a run ----

def test_the_prompt_names_them(droste, place, replay):
    """Name, signature and description of tools, and what the values are, in the first message."""
    assert run(droste, place, replay(repl("SUBMIT(1)"))).status == 0
    shown = droste("runs", "show", "--full", droste.record.run["id"]).out
    for words in ("- `prices`: a dict of 2 keys",
                  "- `look(n: int = ..., wait=..., fail=...)`: Looks it up.",
                  "- `grep(text: str, limit=3)`: Lines of the context with this text."):
        assert words in shown
    assert "_hidden" not in shown and "`helper" not in shown


def test_calls_are_in_the_record_and_shown(droste, place, replay):
    """Arguments and answers, how they ended; they are not calls of a model."""
    result = run(droste, place,
                 replay(repl("a = look(n=7)\ntry: look(fail='x')\nexcept RuntimeError: SUBMIT(a)")))
    assert result.json["answer"] == {"n": 7, "calls": 1} and result.json["usage"]["calls"] == 1
    good, bad = [c for c in droste.record.calls if c["kind"] == "tool"]
    assert (good["model"], good["status"],
            good["cell"]) == ("look", "ok", droste.record.cells[0]["id"])
    assert bad["status"] == "failed" and bad["error"].startswith(
        "RuntimeError: look ended with exit status 1")
    lines = [json.loads(line) for line in droste("runs", "export",
                                                 result.json["run"]).out.splitlines()]
    exported = [line for line in lines if line["type"] == "call" and line["kind"] == "tool"]
    assert json.loads(exported[0]["request"]) == {"n":
                                                  7} and json.loads(exported[0]["reply"])["n"] == 7
    assert json.loads(exported[1]["reply"])["type"] == "RuntimeError"
    shown = droste("runs", "show", result.json["run"]).out
    assert ("  tool look: ok in " in shown and '    < {"n": 7}' in shown
            and "  tool look: failed in " in shown)
    assert "tokens" not in shown.partition("tool look: ok")[2].partition("\n")[0]


@pytest.mark.parametrize("sub_tools, answer",
                         [("yes", [2, ["two", "three two"], 1.5]), ("no", "none")])
def test_children_have_the_tools_of_their_parents(droste, place, replay, sub_tools, answer):
    """Unless it is said that they have none: then their models are not told of them either."""
    child = ("try: SUBMIT(answer=[look(n=2)['n'], grep('two'), prices['a']])\n"
             "except NameError: SUBMIT(answer='none')")
    result = run(droste, place, replay(repl("SUBMIT(answer=rlm_query('q', context=context))"),
                                       {"content": repl(child), "depth": 1}), "--sub-tools",
                 sub_tools)
    assert result.json["answer"] == answer
    shown = [droste("runs", "show", "--full", r["id"]).out for r in droste.record.runs]
    assert ["`look(n" in text for text in shown] == [True, sub_tools == "yes"]


def test_calls_are_counted_for_the_whole_tree(droste, place, replay):
    """A child's calls are the run's."""
    code = ("n = 0\ntry:\n    while True: look(n=n); n += 1\n"
            "except BudgetExceeded as e: SUBMIT(answer=[n, str(e)])")
    result = run(droste, place, replay(repl("look(n=0)\nSUBMIT(answer=rlm_query('q'))"),
                                       {"content": repl(code), "depth": 1}), "--max-tool-calls",
                 "4")
    assert result.json["answer"] == [3, "tool call limit exceeded: 4 + 1 > 4 (max-tool-calls)"]
    assert len(place.calls) == 4


# ---- a run that is resumed ----

CODE = """said = []
for i in range(3): said.append(look(n=i)['calls'])
try: look(fail='all')
except RuntimeError as e: said.append(len(str(e)))
said.append(look(wait='go')['calls'])
SUBMIT(said)
"""


def interrupt(droste, place, model):
    """Kills a run in its fifth call of a tool."""
    process = droste.start("run", "--question", "q", "--json", "--model", model, *place.flags,
                           cwd=place.path)
    wait_until(lambda: len(place.calls) == 5, what="the call")
    process.kill()
    finish(process)


def test_recorded_calls_are_not_made_again(droste, place, replay):
    """Answers and failures come from the record, whole; only the call under way at the kill, of
    which nobody knows what became, is made again, and is listed."""
    interrupt(droste, place, replay(repl(CODE)))
    (place.path / "go").touch()
    result = droste("runs", "resume", droste.record.run["id"], "--json")
    assert result.json["answer"] == [
        1, 2, 3, len("look ended with exit status 1: nothing is known of all") + 600, 6]
    assert [c.get("n", c) for c in place.calls] == [0, 1, 2, {"fail": "all"}, {"wait": "go"},
                                                    {"wait": "go"}]
    assert result.json["resumed"] == {"replayed": 5,
                                      "repeated":
                                      [{"turn": 1, "cell": 1, "call": 5, "tool": "look"}]}
    assert [c["repeated"] for c in droste.record.calls if c["kind"] == "tool"] == [0, 0, 0, 0, 1]
    assert result.json["usage"]["calls"] == 1


def test_the_totals_of_an_interrupted_run_are_those_of_its_models(droste, place, replay):
    """A call of a tool is not a call of a model."""
    interrupt(droste, place, replay(repl(CODE)))
    assert droste("runs", "gc").status == 0
    assert droste.record.run["status"] == "interrupted" and droste.record.run["calls"] == 1


def test_the_limit_of_calls_counts_those_of_the_record(droste, place, replay):
    """The five of before the kill are all that there may be."""
    place.flags += ["--max-tool-calls", "5"]
    more = "try: look(n=5)\nexcept BudgetExceeded: SUBMIT(len(said))"
    interrupt(droste, place, replay(repl(CODE.replace("SUBMIT(said)", more))))
    (place.path / "go").touch()
    result = droste("runs", "resume", droste.record.run["id"], "--json")
    assert result.json["answer"] == 5 and len(place.calls) == 6


WAITING = "x = (prices['a'], grep('two'))\nlook(wait='go')\nSUBMIT(x)\n"
CHANGES = {
    "t.py": ("the source of tools 't.py'", lambda p: p.write_text(p.read_text() + "# more\n")),
    "p.json": ("tool-data 'prices'", lambda p: p.write_text('{"a": 2}')),
    "look": ("the program of tool 'look'", lambda p: p.write_text(p.read_text() + "# more\n")),
    "look.json": ("the description of tool 'look'", lambda p: p.unlink()),
}


def kill_waiting(droste, place, replay):
    """Kills a run in its call of the program."""
    process = droste.start("run", "--question", "q", "--json", "--model", replay(repl(WAITING)),
                           *place.flags,
                           cwd=place.path)
    wait_until(lambda: place.calls, what="the call")
    process.kill()
    finish(process)
    return droste.record.run["id"]


@pytest.mark.parametrize("name", CHANGES)
def test_what_tools_were_made_of_must_be_what_it_was(droste, place, replay, name):
    """A file that changed is named with what to do, and the run stays as it is; when it is back,
    the run goes on."""
    run_id, (words, change) = kill_waiting(droste, place, replay), CHANGES[name]
    before, mode = (place.path / name).read_bytes(), (place.path / name).stat().st_mode
    change(place.path / name)
    (place.path / "go").touch()
    result = droste("runs", "resume", run_id, "--json")
    assert result.status == 2 and words in result.complaint and str(
        place.path / name) in result.complaint, result
    assert ("has changed since run '%s' began: restore it, or start a new run"
            % run_id in result.complaint)
    assert droste.record.run["status"] == "running" and len(place.calls) == 1
    (place.path / name).write_bytes(before)
    (place.path / name).chmod(mode)
    assert droste("runs", "resume", run_id, "--json").json["answer"] == [1.5, ["two", "three two"]]


def test_a_description_that_came_later_is_a_change(droste, place, replay):
    """It would refuse calls that were allowed then."""
    (place.path / "look.json").unlink()
    run_id = kill_waiting(droste, place, replay)
    (place.path / "look.json").write_text(json.dumps(ABOUT))
    result = droste("runs", "resume", run_id)
    assert result.status == 2 and "the description of tool 'look' has changed" in result.complaint
    (place.path / "look.json").unlink()
    (place.path / "go").touch()
    assert droste("runs", "resume", run_id).status == 0


def test_the_record_knows_tools_by_their_hashes(droste, place, replay):
    """In the export, in the order of the guest; a run without tools has null there, and so has a
    record of before."""
    import hashlib
    run(droste, place, replay(repl("SUBMIT(1)")), "--tool", "sort=sort")
    tools = droste.lines("run")[0]["tools"]
    assert [(t["kind"], t["name"]) for t in tools] == [
        ("data", "prices"), ("source", "t.py"), ("program", "look"), ("description", "look"),
        ("program", "sort")]
    for tool, name in zip(tools, ("p.json", "t.py", "look", "look.json")):
        assert tool["path"] == os.path.realpath(place.path / name)
        assert tool["sha256"] == hashlib.sha256((place.path / name).read_bytes()).hexdigest()
    assert (tools[4]["path"], tools[4]["sha256"]) == (None, None)
    assert droste("run", "--question", "q", "--model", replay(repl("SUBMIT(1)"))).status == 0
    assert droste.lines("run")[1]["tools"] is None


def test_a_run_of_before_is_not_compared(droste, place, replay):
    """A record that has no hashes goes on as it did."""
    run_id = kill_waiting(droste, place, replay)
    settle(droste, "UPDATE runs SET tools = NULL")
    (place.path / "t.py").write_text(SOURCE + "# more\n")
    (place.path / "go").touch()
    assert droste("runs", "resume", run_id).status == 0


def test_a_task_with_other_tools_begins_anew(droste, place, replay):
    """A batch that was killed goes on with what was asked the same; tools are part of that."""
    (place.path / "tasks.jsonl").write_text('{"id": "t", "question": "q"}\n')
    words = ["batch", "tasks.jsonl", "--out", "r.jsonl", "--json", "--model",
             replay({"content": repl(WAITING), "repeat": True}), *place.flags]
    process = droste.start(*words, cwd=place.path)
    wait_until(lambda: place.calls, what="the call")
    process.kill()
    finish(process)
    (place.path / "go").touch()
    (place.path / "p.json").write_text('{"a": 2}')
    result = droste(*words, cwd=place.path)
    assert result.status == 0 and "task t starts again: tool-data 'prices'" in result.err, result
    assert json.loads((place.path / "r.jsonl").read_text())["answer"] == [2, ["two", "three two"]]
    assert len(droste.record.runs) == 2


def test_going_on_from_a_run_wants_its_values_and_source_but_no_program(droste, place, replay):
    """Its calls are answered from the record; what its session was prepared with is needed
    again."""
    first = run(droste, place,
                replay(repl("x = look(n=1)['n'] + prices['a']\nSUBMIT(x)"))).json["run"]
    (place.path / "look").write_text("#!/bin/sh\nexit 1\n")
    words = ["run", "--question", "And?", "--json", "--model",
             write_replay(place.path / "next.jsonl",
                          {"content": repl("SUBMIT(x)"), "repeat": True}), "--continue"]
    second = droste(*words, first)
    assert second.status == 0 and second.json["answer"] == 2.5, second
    assert droste(*words, second.json["run"]).json["answer"] == 2.5
    (place.path / "p.json").write_text('{"a": 2}')
    result = droste(*words, first)
    assert (result.status == 2 and "tool-data 'prices'" in result.complaint
            and "has changed" in result.complaint)


# ---- contexts beside them ----

@pytest.mark.parametrize("name, says", [
    ("prices", "has the same name as a tool or tool-data"),
    ("look", "has the same name as a tool or tool-data"),
    ("grep", "has the same name as a tool or tool-data"), ("print", "Python's names"),
    ("id", "Python's names"),
    ("llm_query", "Droste's names"), ("helper2", None),
])
def test_no_context_hides_a_tool_or_what_python_or_the_guest_has(droste, place, replay, name, says):
    """Refused by its name, in runs and in sessions, before a model is asked; any other name is
    taken."""
    flags = ["--context", "%s=c.txt" % name]
    model = replay(repl("SUBMIT(%s[:3])" % name), {"content": "x", "depth": 1})
    asked = run(droste, place, model, *flags)
    cells = droste("exec", "-c", "print(%s[:3])" % name, *place.flags, *flags, cwd=place.path)
    typed = droste("repl", *place.flags, *flags, cwd=place.path, input="print(%s[:3])\n" % name)
    if says is None:
        assert asked.json["answer"] == "one" and cells.out == "one\n" == typed.out
        return
    for result in (asked, cells, typed):
        output = result.out + result.err
        assert result.status == 2 and "'%s'" % name in output and says in output, result
    assert not os.path.exists(droste.record.path) or droste.record.calls == []


def test_no_later_context_of_a_conversation_hides_a_tool(droste, place, replay):
    """Not of its session's source either."""
    first = run(droste, place, replay(repl("SUBMIT(1)"))).json["run"]
    model = write_replay(place.path / "next.jsonl", repl("SUBMIT(2)"))
    for name, status in (("prices", 2), ("grep", 2), ("other", 0)):
        result = droste("run", "--continue", first, "--question", "And?", "--context",
                        "%s=%s" % (name, place.path / "c.txt"), "--model", model)
        assert result.status == status and ("the same name as a tool" in result.err) == (
            name != "other"), result
