"""Defects of fleet-rlm and agentic-codebase-navigator, and what is right here; those of other runtimes are in
test_defects_rlm.py. A docstring says first what goes wrong there.

Not shown here, for there is no such part yet, or the proof is elsewhere:

| defect elsewhere | here |
| --- | --- |
| brokers in containers, without a secret | no servers: test_defects_rlm.py; no containers yet |
| leases of calls, after which a call is given out again | no leases; a long call is one call: below |
| helpers that read the host's files, write volumes, start processes | no volumes and no such helpers yet |
| keys in cloud sandboxes, names and clean-up of containers | no cloud environments yet |
| speeds of brokers and sessions | measured by `make bench`; no test times anything |
| the system calls, reflection and resources of a hostile guest | `make attack` |
| ways out of Python's rules, one by one | test_rules.py |
"""
import hashlib
import json
import os
import pickle
import subprocess

import pytest

from conftest import CANARY, answered, at, finish, line, repl, wait_until

LEVELS = ["full", "light", "landlock", "process"]
# The channel, spoken by hand as src/wire/frame.h has it; what the guest holds back, that it is ready, goes first.
FRAME = ("import os, struct\nlink = SUBMIT.__globals__['state'].link\nrunning = SUBMIT.__globals__['state'].session.running\n"
         "def say(kind, ident, head=b'', blob=b''):\n    held = b''.join(link.outbox)\n    link.outbox.clear()\n"
         "    os.write(3, held + struct.pack('<BBHIQQ', 1, kind, 0, len(head), ident, len(blob)) + head + blob)\n")


@pytest.fixture
def sub(droste, serve):
    """sub(code, script, flags…): a cell whose code asks the model scripted-sub; (its result, the server)."""
    def run(code, script, *flags):
        server = serve(script=script)
        return droste.cell(code, "--base-url", server.url, "--model", "scripted-sub", *flags), server
    return run


# ---- the host and the guest ----

class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


CARRIERS = {
    "on the channel": "os.write(3, bomb)", "as the head of a call": "say(19, 9, bomb)",
    "in a result": "say(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
                   " struct.pack('<IQ', 1, len(bomb)) + bomb)",
    "on standard output": "os.write(1, bomb)", "submitted": "try: SUBMIT(bomb)\nexcept TypeError: pass",
    "as a prompt": "try: llm_query([bomb])\nexcept ValueError: pass",
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_host_unpickles_nothing(session, tmp_path, carrier):
    """There: code runs in the host's process, and the host unpickles what it sends. Here: whatever carries the
    bytes, the host makes nothing of them, and the run goes on, in a new sandbox if need be; unpickled by this
    test, they act."""
    mark = str(tmp_path / "mark")
    bomb = pickle.dumps(Bomb(mark))
    result, _ = session(FRAME + "bomb = %r\n%s" % (bomb, CARRIERS[carrier]), *["SUBMIT('went on')"] * 2,
                        replies=[at(1, "x", repeat=True)])
    answered(result, "went on")
    assert not os.path.exists(mark)
    pickle.loads(bomb)
    assert os.path.isdir(mark)


@pytest.mark.parametrize("isolation", LEVELS)
def test_code_runs_in_another_process(droste, isolation):
    """There: in the host's own. Here: at no isolation, and what it ends, crashes or exhausts is not the
    host's."""
    code = "import os\nprint(os.getpid(), os.readlink('/proc/self/exe'), flush=True)\nos.abort()"
    result = droste("exec", "--json", "--isolation", isolation, "-c", code)
    pid, program = result.json["stdout"].split()
    assert int(pid) != result.pid and "python" in program
    assert (result.status, result.json["killed"]) == (3, "signal 6 SIGABRT")


FORGED = {  # what a guest says before its own result, and what then becomes of its cell
    "forged": ("b = b'{\"output\": \"FORGED\"}'\nsay(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
               " struct.pack('<IQ', 1, len(b)) + b)",
               ("submitted", {"output": "FORGED"})),
    "empty": ("say(20, running, b'{\"status\": \"ok\"}')", ("ok", None)),
    "broken": ("say(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
               " struct.pack('<IQ', 1, 5) + b'{\"a\":')", ("error", None)),
    "of the next cell": ("say(20, running + 1, b'{\"status\": \"ok\"}')", ("killed", None)),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_result_shifts_nothing(droste, how):
    """There: a forged reply is taken, and each call after it gets the one before: off by one for ever. Here: it
    is at most that cell's own; the sandbox whose result is left over is replaced, and all later cells get
    theirs."""
    code, outcome = FORGED[how]
    cell = FRAME + code + "\nimport time\ntime.sleep(%s)\n"
    told = droste.cell(cell % 600)
    assert (told["status"], told["submit"]) == outcome
    result = droste("repl", input="exec(%r)\n'two'\n'three'\n'four'\n" % (cell % 0.5))
    shown = result.out.replace("submitted: %s\n" % json.dumps(outcome[1]), "")
    assert shown in ("'two'\n'three'\n'four'\n", "'three'\n'four'\n")
    assert result.err.count("a new session") == 1


def test_a_fork_answers_for_nobody(droste):
    """There: a forked child sends results too, and all later calls are off by one. Here: it has no channel; it
    ends where the cell ends, and what it prints is the cell's."""
    result = droste("repl", input="import os; pid = os.fork(); print('one', flush=True)\n"
                    "pid > 0 and os.waitpid(pid, 0)[1]\n'three'\n")
    assert result.out == "one\none\n0\n'three'\n" and result.status == 0


def test_what_escapes_the_rules_finds_no_key_and_no_network(droste, serve):
    """There: a list of modules is the only wall, and behind it are the host's files, network and forty
    variables with keys. Here: code that finds `os` through any of these has the sandbox's; the twin is what it
    may have."""
    server = serve()
    code = ("import pathlib, random, typing\n"
            "classes = {c.__name__: c for c in ().__class__.__base__.__subclasses__()}\n"
            "ways = [pathlib.os, random._os, typing.sys.modules['os'], print.__self__.__import__('os'),\n"
            "  llm_query.__globals__['sys'].modules['os'], classes['_wrap_close'].__init__.__globals__]\n"
            "os = ways[0]\nkeys = [n for n in os.environ if 'KEY' in n or 'DROSTE' in n]\n"
            "try: import socket; net = socket.create_connection(('127.0.0.1', %s), 2) and True\n"
            "except (ImportError, OSError): net = False\n"
            "try: home = os.listdir(%r)\nexcept OSError: home = None\n"
            "SUBMIT(n=len(ways), keys=keys, net=net, home=home, said=llm_query('x'))"
            % (server.url.split(":")[2].split("/")[0], droste.home))
    result = droste.cell(code, "--base-url", server.url, "--model", "ok", "--isolation", "full",
                         env={"OPENAI_API_KEY": CANARY})
    assert result["submit"] == {"n": 6, "keys": [], "net": False, "home": None, "said": "The answer is ⟨42⟩."}


def named(name):
    """The processes that were started under this name."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as command:
                found += [pid] if command.read().startswith(name.encode()) else []
        except OSError:
            pass
    return found


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_grandchild_in_a_session_of_its_own_ends_too(droste, isolation):
    """There: what called setsid outlives the clean-up. Here: it ends with the sandbox, whatever it is the child
    of."""
    name = "droste-orphan-%d-%s" % (os.getpid(), isolation)
    code = ("import os\nif os.fork() == 0:\n    os.setsid()\n"
            "    os.fork() or os.execv('/bin/sleep', [%r, '600'])\n    os._exit(0)\nos.wait()" % name)
    process = droste.start("repl", "--isolation", isolation, stdin=subprocess.PIPE)
    process.stdin.write(b"exec(%a)\n" % code)
    process.stdin.flush()
    wait_until(lambda: named(name), what="the grandchild")
    assert finish(process, input=b"'end'\n").out == "'end'\n"
    wait_until(lambda: not named(name), what="its end")


ODD = [   # a cell, and the type of its error
    ("raise SystemExit", "SystemExit"), ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("raise GeneratorExit", "GeneratorExit"), ("class E(BaseException): pass\nraise E", "E"),
    ("import sys\nsys.stdout = sys.__stdout__\nsys.exit('bye')", "SystemExit"), ("def f(): f()\nf()", "RecursionError"),
    ("l = []; l.append(l); d = {}; d['d'] = d", None), ("x = 10 ** 10000", None),
    ("class R:\n    def __repr__(self): raise SystemExit\n    __str__ = __len__ = __repr__\nr = R()", None),
    ("class X(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise X", "X"),
    ("SUBMIT(object())", "TypeError"), ("SUBMIT(l)", "ValueError"), ("SUBMIT(float('nan'))", "ValueError"),
    ("SUBMIT({'a': [1, -float('inf')]})", "ValueError"), ("SUBMIT('\\ud800')", "ValueError"),
    ("import sys\nsys.stdout = sys.stderr = None", None), ("del __builtins__.print", None),
]


def test_nothing_odd_ends_a_worker(session):
    """There: SystemExit, an interrupt, a list that holds itself, or an object that cannot be submitted ends the
    worker. Here: each is at most the error of its cell, the variables stay, and what is submitted at last is strict
    JSON."""
    result, cells = session("kept = 41", *[code for code, _ in ODD], "SUBMIT([kept, {1}, (2,)])")
    answered(result, [41, [1], [2]])
    assert [(cell["error"] or {}).get("type") for cell in cells] == [None, *[kind for _, kind in ODD], None]


# ---- local sandboxes, the channel and the secrets ----

@pytest.mark.parametrize("isolation", ["full", "light", "landlock"])
def test_a_guest_is_nobody_with_no_rights(droste, isolation):
    """There: root with all of a container's capabilities. Here: no user of the host's, no capability in any set
    that counts, no new privileges, and system calls are filtered."""
    code = "SUBMIT(open('/proc/self/status').read())"
    status = droste.cell(code, "--isolation", isolation)["submit"]["output"]
    told = dict(row.split(":\t") for row in status.splitlines())
    assert {int(told[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2") and "0" not in told["Uid"].split()


def test_a_last_line_is_no_result(droste):
    """There: the host reads a result from the last line, also that of a process that ended itself. Here: its
    end is its end."""
    forged = json.dumps({"status": "ok", "submit": {"output": 1}, "stdout": "", "alive": True})
    result = droste("exec", "--json", "-c", "import os\nprint(%r, flush=True)\nos._exit(0)" % forged)
    cell = result.json
    assert (result.status, cell["status"], cell["killed"], cell["submit"]) == (3, "killed", "exit 0", None)
    assert cell["stdout"] == forged + "\n"


def test_a_key_is_not_in_the_guests_memory(droste, serve):
    """There: the whole secret is in the sandbox's environment. Here: with a key in use, from the environment
    and from the configuration, it is nowhere in the guest's memory, which is a copy of the zygote's. The guest
    knows its hash and looks at all that begins as it does; a key that it makes up itself, the twin, it
    finds."""
    droste.configure("anthropic-api-key = %s\n" % CANARY)
    server = serve(key=CANARY)
    made = CANARY[:10] + "0" * (len(CANARY) - 10)
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in (CANARY, made)]
    code = ("said = llm_query('x')\nimport hashlib, re\nmade = %r + '0' * %d\nseen = set()\n"
            "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:\n"
            "    for row in maps:\n        a, b = (int(n, 16) for n in row.split()[0].split('-'))\n"
            "        try: mem.seek(a); data = mem.read(b - a)\n"
            "        except (OSError, ValueError, OverflowError): continue\n"
            "        for key in re.findall(made[:10].encode() + b'.{%d}', data, re.S):\n"
            "            seen.add(hashlib.sha256(key).hexdigest())\n"
            "SUBMIT(said=said, found=[h in seen for h in %r])" % (CANARY[:10], len(made) - 10, len(made) - 10, hashes))
    result = droste.cell(code, "--base-url", server.url, "--model", "ok", env={"OPENAI_API_KEY": CANARY})
    assert result["submit"] == {"said": "The answer is ⟨42⟩.", "found": [False, True]}


def test_input_takes_nothing_of_the_channel(droste):
    """There: `input()` eats lines of the protocol. Here: it is at its end, and later cells get their
    results."""
    result = droste("repl", input="input()\nimport sys, os; sys.stdin.read(), os.read(0, 100)\n'three'\n")
    assert "EOFError" in result.err and result.out == "('', b'')\n'three'\n"


def test_a_child_process_inherits_no_channel(droste):
    """There: any process in the sandbox can take a call and answer it. Here: a program that code starts has the
    standard descriptors alone, also where it asks to keep all; the guest itself, the twin, has the channel."""
    code = ("import os, subprocess\nlook = ['/bin/sh', '-c', 'for fd in /proc/$$/fd/*; do readlink $fd; done']\n"
            "theirs = subprocess.run(look, capture_output=True, text=True, close_fds=False).stdout\n"
            "SUBMIT(channel=os.readlink('/proc/self/fd/3'), theirs=theirs)")
    told = droste.cell(code)["submit"]
    assert told["channel"].startswith("socket:") and len(told["theirs"].split("\n")) >= 3
    assert "socket:" not in told["theirs"]


def test_a_context_is_a_value_and_no_path(ask, droste, tmp_path):
    """There: a guest names a path, and the host reads it. Here: a path is a text, for a child's context as for
    a prompt."""
    secret = str(tmp_path / "secret")
    with open(secret, "w") as f:
        f.write("the host's")
    answered(ask([repl("p = %r\nSUBMIT(rlm_query('@' + p, p), rlm_query('q', {'path': p}))" % secret),
                  at(1, repl("SUBMIT(context)"), repeat=True)]), [secret, {"path": secret}])
    assert b"the host's" not in droste.record.bytes()


MARKERS = ("rlm_query('x') llm_query( SUBMIT(1)\n```repl\nSUBMIT('wrong')\n```\nFINAL(wrong)\n"
           "__DSPY_FINAL_OUTPUT__{}__DSPY_FINAL_OUTPUT__ \0")


def test_words_of_the_engine_in_a_text_are_words(ask, tmp_path):
    """There: a document that contains `rlm_query(` cannot be worked on, and printed markers are results. Here:
    they are text in a context, in output, in a variable and in a reply to code."""
    (tmp_path / "c.txt").write_text(MARKERS)
    turns = [repl("print(context)\nx = context"),
             repl("SUBMIT(x == context, rlm_query('q', context), llm_query('say'))"),
             at(1, repl("print(context)\nSUBMIT(len(context))"), "Question: q"), at(1, "FINAL(wrong)")]
    answered(ask(turns, "--context", tmp_path / "c.txt"), [True, len(MARKERS), "FINAL(wrong)"])


# ---- defects and races ----

def test_a_cell_of_a_dead_sandbox_is_not_run_again(droste, serve):
    """There: after a failure the code runs once more in a fresh sandbox, with all that it does. Here: its call
    reaches the server once, and the model is told that the variables are gone."""
    dies = "x = 1\nllm_query('once')\nimport os\nos._exit(7)"
    server = serve(script=[line("m", repl(dies), "Question: q"), line("m", "said", "once", repeat=True),
                           line("m", repl("SUBMIT('x' in globals())"), "status 7")])
    result = droste("run", "--question", "q", "--json", "--base-url", server.url, "--model", "scripted-m")
    answered(result, False)
    assert server.stats()["requests"] == 3
    assert [cell["status"] for cell in droste.lines("cell")] == ["killed", "submitted"]


@pytest.mark.parametrize("value", ["float('nan')", "[float('inf')]", "{'a': {'b': -float('inf')}}",
                                   "__import__('decimal').Decimal('NaN')"])
def test_a_result_is_strict_json(ask, value):
    """There: NaN goes out as a word that JSON does not have. Here: it is an error in the cell, which says what
    to do, and what is submitted instead can be read by anybody."""
    result = ask([repl("try: SUBMIT(%s)\n"
                       "except (ValueError, TypeError) as e: SUBMIT(['submit' in str(e), None])" % value)])
    answered(result, [True, None])
    json.loads(result.out, parse_constant=lambda word: pytest.fail("%s is not JSON" % word))


PRINTS = {
    "a program": "import subprocess; subprocess.run(['printf', 'hi'])", "a shell": "import os; os.system('printf hi')",
    "a descriptor": "import os; os.write(1, b'hi')",
    "C": "import ctypes; libc = ctypes.CDLL(None); libc.printf(b'hi'); libc.fflush(None)",
    "a fork": "import os; os.fork() or (os.write(1, b'hi'), os._exit(0)); os.wait()",
}


@pytest.mark.parametrize("who", PRINTS)
def test_output_without_a_line_end_delays_nothing(droste, who):
    """There: two letters from a child process merge with the reply's line, the host drops it, and waits for ten
    minutes. Here: they are output, and the result is there."""
    cell = droste.cell(PRINTS[who] + "\nSUBMIT(1)")
    assert (cell["status"], cell["stdout"], cell["submit"]) == ("submitted", "hi", {"output": 1})


def test_a_call_that_waits_for_its_turn_loses_no_time(sub):
    """There: a batch is asked one by one, and the wait counts against the time of each call, so that half of
    them fail. Here: where one at a time is what was set, the last waits longer than a call may take, and is
    answered."""
    result, server = sub("SUBMIT(llm_query_batched(['x'] * 6))", [line("sub", "in", delay_ms=500, repeat=True)],
                         "--concurrency", "1", "--llm-call-timeout", "2", "--retries", "0")
    assert result["submit"] == {"output": ["in"] * 6} and server.stats()["max_in_flight"] == 1


def test_a_long_call_is_made_once(sub):
    """There: a call that takes longer than its lease is given out again, and its answer is refused. Here: it is
    one request, whose answer is taken, while eight short ones come and go."""
    code = "slow = llm_submit('slow')\nfor i in range(8): llm_query('fast')\nSUBMIT(slow.result())"
    result, server = sub(code, [line("sub", "at last", "slow", delay_ms=1000), line("sub", "in", "fast", repeat=True)])
    assert result["submit"] == {"output": "at last"}
    stats = server.stats()
    assert stats["requests"] == 9 and set(stats["idempotency"].values()) == {1} and stats["cancelled"] == 0


REPLIES = ["[1, 2]", '{"error": "x"}', "null", "1", "true", '"quoted"', " spaces \n", "{"]


def test_a_reply_is_the_text_that_it_is(ask):
    """There: a reply that looks like JSON comes back as a list, and an error as a dict. Here: a model's reply
    is a str, and the value of a child run is of the type that it submitted."""
    turns = [repl("r = [llm_query(str(n)) for n in range(%d)]\n"
                  "SUBMIT(r, [rlm_query('t', '[1, 2]'), rlm_query('t', [1, 2])])" % len(REPLIES)),
             at(1, repl("SUBMIT(context)"), "Question: t", repeat=True)]
    answered(ask(turns + [at(1, text) for text in REPLIES]), [REPLIES, ["[1, 2]", [1, 2]]])


TOOL = '''#!/usr/bin/python3
import json, sys
print(json.loads(sys.stdin.readline())["arguments"]["say"] or sys.exit("no"))
'''


def test_a_tools_answer_is_the_value_and_its_error_an_exception(droste, tmp_path):
    """There: a text that looks like a list becomes one, and a tool that fails gives a dict with its error. Here: what a
    tool says is JSON of whatever type, a dict with `error` is a dict, and a failure raises."""
    (tmp_path / "tool").write_text(TOOL)
    (tmp_path / "tool").chmod(0o755)
    code = ("try: tool(say='')\nexcept RuntimeError as e: why = str(e)\n"
            "SUBMIT([tool(say='\"[1, 2]\"'), tool(say='[1, 2]'), tool(say='{\"error\": \"x\"}'), why])")
    result = droste.cell(code, "--tool", "tool=%s" % (tmp_path / "tool"))
    assert result["submit"]["output"] == ["[1, 2]", [1, 2], {"error": "x"}, "tool ended with exit status 1: no"]


ALIASES = {
    "another name": "f = llm_query\nr = f('a')", "map": "r = list(map(llm_query, ['a']))[0]",
    "partial": "import functools\nr = functools.partial(llm_query, 'a')()", "eval": "r = eval('llm_' 'query')('a')",
    "getattr": "import builtins\nr = getattr(builtins, 'llm' + '_query')('a')",
    "a method": "class A:\n    ask = staticmethod(llm_query)\nr = A.ask('a')",
    "a list": "def g(x): return [f(x) for f in (llm_query,)]\nr = g('a')[0]",
}


@pytest.mark.parametrize("way", ALIASES)
def test_a_call_is_a_call_by_any_name(droste, replay, way):
    """There: calls work only where the text of the cell holds `llm_query(`. Here: it is a function."""
    assert droste.cell(ALIASES[way] + "\nSUBMIT(r)", "--model", replay(at(1, "said")))["submit"] == {"output": "said"}


@pytest.mark.parametrize("catch, goes_on", [("except Exception", False), ("except (ValueError, RuntimeError)", False),
                                            ("finally", False), ("except BaseException", True)])
def test_a_submission_is_not_swallowed(droste, catch, goes_on):
    """There: `except Exception` catches it, and the code goes on after its answer. Here: it ends the cell; one
    that catches all that there is has gone on by its own will, and the answer counts all the same."""
    cell = droste.cell("try: SUBMIT(1)\n%s: pass\nprint('went on')" % catch)
    assert (cell["status"], cell["submit"]) == ("submitted", {"output": 1})
    assert cell["stdout"] == ("went on\n" if goes_on else "")


def test_children_share_what_is_left(droste, serve):
    """There: each child gets the whole remaining budget, four times over. Here: eight children, and theirs, ask
    until they are refused, and as many calls as were allowed reach the server."""
    asks = "n = %s\ntry:\n    while True: n += llm_query('more') == 'in'\nexcept BudgetExceeded: SUBMIT(n)"
    server = serve(script=[line("m", repl("SUBMIT(sum(rlm_query_batched(['child'] * 8)))"), "Question: q"),
                           line("m", repl(asks % "rlm_query('grandchild')"), "Question: child", repeat=True),
                           line("m", repl(asks % 0), "Question: grandchild", repeat=True),
                           line("m", "in", repeat=True)])
    result = droste("run", "--question", "q", "--json", "--base-url", server.url, "--model", "scripted-m",
                    "--max-llm-calls", "60")
    assert answered(result, 60 - 16)["usage"]["calls"] == server.stats()["requests"] == 61


def test_a_deadline_has_one_outcome(droste):
    """There: sixteen equal runs into the deadline keep their state and output by chance, half of them. Here:
    eight cells in a row are interrupted, each keeps what it printed without a flush, and the count."""
    cells = "n = 0\ndef spin():\n    while True: pass\n\n" + "n += 1; print('part', n); spin()\n" * 8 + "n\n"
    result = droste("repl", "--execute-timeout", "0.5", input=cells)
    assert result.out == "".join("part %d\n" % n for n in range(1, 9)) + "8\n" and result.status == 3
    assert result.err.count("its variables are kept") == 8 and "a new session" not in result.err


def test_deadlines_hold_while_the_host_waits_for_a_model(sub):
    """There: nobody looks at the deadline while a model is asked, and the time of a call from code is not used.
    Here: both end the wait, the cell catches the one, and the server sees its clients go."""
    script = [line("sub", hang=True, repeat=True)]
    result, server = sub("try: llm_query('a')\nexcept LLMTimeout as e: SUBMIT(str(e))", script, "--broker-timeout", "1")
    assert "broker-timeout" in result["submit"]["output"]
    wait_until(lambda: server.stats()["cancelled"] == 1, what="the end of the request")
    result, server = sub("print('asks')\nllm_query_batched(['b', 'c'])", script, "--execute-timeout", "2")
    assert (result["status"], result["stdout"], result["alive"]) == ("timeout", "asks\n", True)
    wait_until(lambda: server.stats()["cancelled"] == 2, what="the end of the requests")


@pytest.mark.parametrize("isolation", LEVELS)
def test_calls_need_no_network_in_the_sandbox(droste, serve, isolation):
    """There: a container asks a proxy on an address that it cannot reach. Here: code that cannot connect to the
    model's server is answered by it, at each isolation; only `process` can."""
    server = serve()
    code = ("import socket\ntry: socket.create_connection(('127.0.0.1', %s), 2); met = True\n"
            "except OSError: met = False\nSUBMIT(met, llm_query('x'))" % server.url.split(":")[2].split("/")[0])
    result = droste.cell(code, "--base-url", server.url, "--model", "ok", "--isolation", isolation)
    assert result["submit"] == {"output": [isolation == "process", "The answer is ⟨42⟩."]}


LATER = {
    "functions, classes, lambdas, imports": (["import math as m\ndef f(): return g()\nclass C: v = 2\nh = lambda: C.v",
                                              "def g(): return h() * m.floor(3.5)", "SUBMIT(f())"], 6),
    "FINAL_VAR of the same block": (["found = [1]\nFINAL_VAR('found')"], [1]),
    "state after sys.exit": (["x = 1\nimport sys; sys.exit(1)", "SUBMIT(x)"], 1),
    "state after the deadline": (["x = {1: object()}\nwhile True: pass", "SUBMIT(len(x))"], 1),
    "a cell of a megabyte": (["x = %r" % ("0123456789" * 100000), "SUBMIT(len(x))"], 1000000),
    "line numbers and from __future__": (["from __future__ import annotations\nimport traceback\ntry: 1 / 0\n"
                                          "except ZeroDivisionError: t = traceback.format_exc()",
                                          "SUBMIT('line 3' in t)"], True),
}


@pytest.mark.parametrize("what", LATER)
def test_what_a_cell_made_is_there_later(session, what):
    """There: functions, classes and imports vanish between cells, a variable of the same block is not seen,
    sys.exit and deadlines lose the state, and code of 128 KB does not fit. Here: one interpreter, and code is
    sent like all else."""
    cells, answer = LATER[what]
    result, _ = session(*cells, flags=["--execute-timeout", "1"] if "deadline" in what else [])
    answered(result, answer)


BATCHES = ["llm_query_batched(%s)", "await llm_query_batched_async(%s)", "rlm_query_batched(%s)",
           "await rlm_query_batched_async(%s)"]


@pytest.mark.parametrize("isolation", ["full", "process"])
def test_batches_fail_alike(sub, isolation):
    """There: all or nothing in one environment, item by item in others. Here: each batch of each kind gives the
    good items, a typed text in the place of the bad one, or by choice the exception, and none of it where it
    does not fit."""
    asks = [call % p for call in BATCHES for p in ("p", "p, errors='return'")]
    code = ("p = ['x', 'broken', 'y']\nr = [%s]\n"
            "SUBMIT([[type(x).__name__ for x in one] for one in r], [one[0] for one in r])" % ", ".join(asks))
    script = [line("sub", contains="broken", status=400, repeat=True),
              line("sub", repl("SUBMIT('in')"), contains="Turn 1 of", repeat=True), line("sub", "in", repeat=True)]
    result, _ = sub(code, script, "--isolation", isolation, "--retries", "0")
    kinds = [["str", "FailedReply", "str"], ["str", "LLMError", "str"]] * len(BATCHES)
    assert result["submit"]["output"] == [kinds, ["in"] * len(kinds)]
    tries = ["try: %s\nexcept BudgetExceeded: n += 1\n" % (call % "['x'] * 3") for call in BATCHES]
    result, server = sub("n = 0\n" + "".join(tries) + "SUBMIT(n)", script, "--isolation", isolation,
                         "--max-llm-calls", "2")
    assert result["submit"] == {"output": 4} and server.stats()["requests"] == 0
