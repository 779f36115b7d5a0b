"""Tools of the command line: values, source, and programs of this machine, for real sandboxes and models
that were written down."""
import json
import os

import pytest

from conftest import finish, repl, wait_until

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

# Notes each call in a file beside it. {"wait": NAME} waits until there is a file NAME; {"fail": T} fails.
PROGRAM = '''#!/usr/bin/python3
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
line = sys.stdin.readline()
assert sys.stdin.read() == ""
asked = json.loads(line)["arguments"]
with open(os.path.join(here, "calls"), "a") as log:
    log.write(json.dumps(asked) + "\\n")
parent = os.getppid()
while "wait" in asked and not os.path.exists(os.path.join(here, asked["wait"])):
    if os.getppid() != parent:
        sys.exit("nobody waits any more")
    time.sleep(0.02)
if "fail" in asked:
    sys.exit("nothing is known of %s" % asked["fail"] + "!" * 600)
print(json.dumps({"n": asked.get("n"), "calls": sum(1 for _ in open(os.path.join(here, "calls")))}, indent=2))
'''
ABOUT = {"description": "Looks it up.\nSlowly.", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "description": "Which one."}, "wait": {}, "fail": {}}}}


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
        log = self.path / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def place(droste, tmp_path):
    return Place(tmp_path)


def run(droste, place, model, *flags):
    return droste("run", "--question", "q", "--json", "--model", model, *place.flags, *flags, cwd=place.path)


def cell(droste, place, code, *flags):
    return droste.cell(code, *place.flags, *flags, cwd=place.path)


# ---- what they are ----

def test_a_session_has_them_all(droste, place):
    """Values, source and programs, in `exec`; what the source keeps to itself is no tool."""
    said = cell(droste, place, "import inspect\n"
                               "SUBMIT(v=prices, g=grep('two'), l=look(n=3), s=str(inspect.signature(look)),\n"
                               "       d=look.__doc__, vars=[n for n in globals() if n[0] != '_'])")["submit"]
    assert said["v"] == {"a": 1.5, "b": [None]} and said["g"] == ["two", "three two"]
    assert said["l"] == {"n": 3, "calls": 1} and said["s"] == "(n: int = ..., wait=..., fail=...)"
    assert said["d"] == "Looks it up.\nSlowly.\n\nArguments:\n  n: Which one."
    assert set(said["vars"]) == {"answer", "prices", "functools", "helper", "context", "context_0", "inspect"}


def test_rules_leave_tools_alone(droste, place):
    """Source is set-up code: it may import what cells may not; its functions may be called by cells."""
    (place.path / "t.py").write_text("import subprocess\n"
                                     "def shell(command):\n    'Runs it.'\n"
                                     "    return subprocess.run(command, shell=True, capture_output=True).stdout.decode()")
    said = cell(droste, place, "try:\n    import socket\nexcept ImportError: SUBMIT(v=shell('echo x'), n=look(n=1)['n'])",
                "--rules", "yes")
    assert said["submit"] == {"v": "x\n", "n": 1}


def test_a_program_that_fails_is_a_runtime_error_with_its_last_words(droste, place):
    said = cell(droste, place, "try: look(fail='x')\nexcept RuntimeError as e: SUBMIT(e=str(e), t=type(e).__name__)")
    assert said["submit"] == {"e": "look ended with exit status 1: nothing is known of x" + "!" * 600,
                              "t": "RuntimeError"}


@pytest.mark.parametrize("text, says", [
    ("#!/bin/sh\necho 1 2\n", "the tool's answer is no JSON: JSON is wrong"),
    ("#!/bin/sh\n", "the tool's answer is no JSON"),
    ("#!/bin/sh\nkill -9 $$\n", "odd was ended by signal 9"),
    ("#!/nowhere/sh\n", "starting the tool ./odd: No such file"),
    ("#!/bin/sh\nhead -c 70000000 /dev/zero\n", "odd wrote more than 64 MiB"),
], ids=["two values", "nothing", "a signal", "no interpreter", "a flood"])
def test_a_program_that_gives_no_answer_is_an_error_that_says_so(droste, place, text, says):
    """And the next call starts it anew."""
    place.program("odd", text)
    said = cell(droste, place, "def said():\n    try: odd(1)\n    except RuntimeError as e: return str(e)\n"
                               "SUBMIT(a=said(), b=said())", "--tool", "odd=./odd")["submit"]
    assert says in said["a"] and said["a"] == said["b"]


def test_the_time_of_a_program_is_limited_and_all_of_it_ends(droste, place):
    """What it started ends with it; the guest gets a TimeoutError, and its session goes on."""
    place.program("slow", "#!/bin/sh\nsleep 1000 &\necho $! $$ > pids\nwait\n")
    said = cell(droste, place, "try: slow()\nexcept TimeoutError as e: SUBMIT(e=str(e), n=look(n=1)['n'])",
                "--tool", "slow=./slow", "--tool-timeout", "0.5")["submit"]
    assert said == {"e": "no answer within 0.5 s (tool-timeout); the call was cancelled", "n": 1}
    for pid in (place.path / "pids").read_text().split():
        assert not os.path.exists("/proc/%s" % pid) or "Z" in open("/proc/%s/stat" % pid).read().split()[2]


def test_so_many_programs_run_at_once_and_the_others_wait(droste, place):
    """Each waits until eight have begun, and notes how many there are; all thirty are answered."""
    place.program("crowd", "#!/usr/bin/python3\n"
                           "import os, time\n"
                           "os.makedirs('on', exist_ok=True)\n"
                           "me = 'on/%d' % os.getpid()\nopen(me, 'w').close()\nopen('begun', 'a').write('x')\n"
                           "while os.path.getsize('begun') < 8: time.sleep(0.01)\n"
                           "print(len(os.listdir('on')))\nos.unlink(me)\n")
    said = cell(droste, place, "from concurrent.futures import ThreadPoolExecutor\n"
                               "with ThreadPoolExecutor(30) as pool:\n"
                               "    SUBMIT(v=list(pool.map(lambda _: crowd(), range(30))))", "--tool", "crowd=./crowd")
    assert len(said["submit"]["v"]) == 30 and max(said["submit"]["v"]) <= 8


# ---- what is refused ----

RESERVED = """import builtins, keyword
SUBMIT(names=[n for n in dir(builtins) if n[0] != '_'] + keyword.kwlist
       + [n for n in globals() if n not in ("builtins", "keyword")])
"""


def test_no_tool_takes_a_name_that_python_or_the_guest_has(droste, place):
    """Every built-in of the guest, ours among them, every keyword, and what the namespace begins with."""
    names = droste.cell(RESERVED, "--context", "c.txt", cwd=place.path)["submit"]["names"]
    assert {"print", "llm_query", "SUBMIT", "for", "context", "answer"} < set(names) and len(names) > 150
    for name in names:
        result = droste("exec", "-c", "1", "--tool-data", "%s=p.json" % name, cwd=place.path)
        assert result.status == 2 and name in result.complaint, name
    assert droste("exec", "-c", "1", "--tool-data", "mine=p.json", cwd=place.path).status == 0


@pytest.mark.parametrize("flags, says", [
    (["--tool", "look"], "write NAME=PROGRAM"),
    (["--tool", "=./look"], "write NAME=PROGRAM"),
    (["--tool", "x=./nothing"], "tool 'x': the program ./nothing cannot be run"),
    (["--tool", "x=./t.py"], "tool 'x': the program ./t.py cannot be run"),
    (["--tool", "x=./bad"], "reading ./bad.json"),
    (["--tool-data", "x"], "write NAME=FILE"),
    (["--tool-data", "x=nothing"], "reading tool-data 'x'"),
    (["--tool-data", "x=t.py"], "tool-data 'x': JSON is wrong"),
    (["--tool-data", "a-b=p.json"], "'a-b' is no name for a tool"),
    (["--tool-data", "prices=p.json"], "two tools with the name 'prices'"),
    (["--tools", "nothing.py"], "reading the tools: opening nothing.py"),
    (["--tools", "c.txt"], "the tools failed in line 3 of <tools c.txt>: SyntaxError"),
    (["--tools", "t.py"], "the name 'grep' is taken"),
])
def test_what_cannot_be_a_tool_is_named(droste, place, flags, says):
    place.program("bad", "#!/bin/sh\n")
    (place.path / "bad.json").write_text("[]")
    result = droste("exec", "-c", "1", *place.flags, *flags, cwd=place.path)
    assert result.status in (1, 2) and says in result.complaint, result


# ---- in a run ----

def test_the_model_is_told_of_them(droste, place, replay):
    """Name, signature and description of tools, and what the values are, in the first message."""
    assert run(droste, place, replay(repl("SUBMIT(1)"))).status == 0
    shown = droste("runs", "show", "--full", droste.record.run["id"]).out
    for words in ("- `prices`: a dict of 2 keys", "- `look(n: int = ..., wait=..., fail=...)`: Looks it up.",
                  "- `grep(text: str, limit=3)`: Lines of the context with this text."):
        assert words in shown
    assert "_hidden" not in shown and "`helper" not in shown


def test_calls_are_in_the_record_and_shown(droste, place, replay):
    """Arguments and answers, how they ended; they are no calls of a model."""
    result = run(droste, place, replay(repl("a = look(n=7)\ntry: look(fail='x')\nexcept RuntimeError: SUBMIT(a)")))
    assert result.json["answer"] == {"n": 7, "calls": 1} and result.json["usage"]["calls"] == 1
    good, bad = [c for c in droste.record.calls if c["kind"] == "tool"]
    assert (good["model"], good["status"], good["cell"]) == ("look", "ok", droste.record.cells[0]["id"])
    assert bad["status"] == "failed" and bad["error"].startswith("RuntimeError: look ended with exit status 1")
    lines = [json.loads(line) for line in droste("runs", "export", result.json["run"]).out.splitlines()]
    exported = [line for line in lines if line["type"] == "call" and line["kind"] == "tool"]
    assert json.loads(exported[0]["request"]) == {"n": 7} and json.loads(exported[0]["reply"])["n"] == 7
    assert json.loads(exported[1]["reply"])["type"] == "RuntimeError"
    shown = droste("runs", "show", result.json["run"]).out
    assert "  tool look: ok in " in shown and '    < {"n": 7}' in shown and "  tool look: failed in " in shown
    assert "tokens" not in shown.partition("tool look: ok")[2].partition("\n")[0]


@pytest.mark.parametrize("sub_tools, answer", [("yes", [2, ["two", "three two"], 1.5]), ("no", "none")])
def test_children_have_the_tools_of_their_parents(droste, place, replay, sub_tools, answer):
    """Unless it is said that they have none: then their models are not told of them either."""
    child = "try: SUBMIT(answer=[look(n=2)['n'], grep('two'), prices['a']])\nexcept NameError: SUBMIT(answer='none')"
    result = run(droste, place, replay(repl("SUBMIT(answer=rlm_query('q', context=context))"),
                                       {"content": repl(child), "depth": 1}), "--sub-tools", sub_tools)
    assert result.json["answer"] == answer
    shown = [droste("runs", "show", "--full", r["id"]).out for r in droste.record.runs]
    assert ["`look(n" in text for text in shown] == [True, sub_tools == "yes"]


def test_calls_are_counted_for_the_whole_tree(droste, place, replay):
    """A child's calls are the run's."""
    code = "n = 0\ntry:\n    while True: look(n=n); n += 1\nexcept BudgetExceeded as e: SUBMIT(answer=[n, str(e)])"
    result = run(droste, place, replay(repl("look(n=0)\nSUBMIT(answer=rlm_query('q'))"),
                                       {"content": repl(code), "depth": 1}), "--max-tool-calls", "4")
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
    process = droste.start("run", "--question", "q", "--json", "--model", model, *place.flags, cwd=place.path)
    wait_until(lambda: len(place.calls) == 5, what="the call")
    process.kill()
    finish(process)


def test_recorded_calls_are_not_made_again(droste, place, replay):
    """Answers and failures come from the record, whole; only the call under way at the kill, of which nobody knows
    what became, is made again, and is listed."""
    interrupt(droste, place, replay(repl(CODE)))
    (place.path / "go").touch()
    result = droste("runs", "resume", droste.record.run["id"], "--json")
    assert result.json["answer"] == [1, 2, 3, len("look ended with exit status 1: nothing is known of all") + 600, 6]
    assert [c.get("n", c) for c in place.calls] == [0, 1, 2, {"fail": "all"}, {"wait": "go"}, {"wait": "go"}]
    assert result.json["resumed"] == {"replayed": 5,
                                      "repeated": [{"turn": 1, "cell": 1, "call": 5, "tool": "look"}]}
    assert [c["repeated"] for c in droste.record.calls if c["kind"] == "tool"] == [0, 0, 0, 0, 1]
    assert result.json["usage"]["calls"] == 1


def test_the_totals_of_an_interrupted_run_are_those_of_its_models(droste, place, replay):
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
