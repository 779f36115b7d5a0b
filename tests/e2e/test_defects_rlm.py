"""Defects of other runtimes for recursive language models, and what is right here: alexzhang13/rlm, dspy.RLM, and
verifiers' RLM environments; fleet-rlm and agentic-codebase-navigator are in test_defects_fleet.py. A docstring says
first what goes wrong there.

Not shown here, for there is no such part yet, or the proof is elsewhere:

| defect elsewhere | here |
| --- | --- |
| environments that differ in functions, recursion and tools | one environment, `local`, yet |
| no forks or snapshots of a session, no pools | no forks or snapshots yet; pools: test_rules.py |
| `history`, where only some environments have it | test_chat.py; no compaction yet |
| half a second to end each child run, 135 ms and more a cell | measured by `make bench`; no test times anything |
| a context copied for each session | test_big_context.py |
| answers lost with the process; no resumption | test_resume.py |
| a viewer that reads fields that nobody writes | test_page.py, test_export.py |
| errors after a guest's death, row by row | tests/session/test_endings.py |
| training harnesses with bodies of 1 MiB | no such part yet; prompts of 100 MB: test_calls.py |
"""
import hashlib
import json
import os
import re
import subprocess

import pytest

from conftest import answered, at, descendants, finish, line, needs_root, repl, still_alive, wait_until

LEVELS = ["full", "light", "landlock", "process"]
STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


# ---- alexzhang13/rlm: the session ----

@pytest.mark.parametrize("isolation", ["full", "process"])
def test_children_at_the_same_time_have_their_own_output_and_directory(tree, droste, isolation):
    """There: four children share one process, and get each other's prints, files and current directory; the
    root's output is lost. Here: all four are in the middle of a cell at once, and nothing of one is
    another's."""
    root = ("print('before')\nopen('kept', 'w').write('root')\n"
            "r = rlm_query_batched([{'prompt': 'go', 'context': n} for n in range(4)])\n"
            "print('after', open('kept').read())\nSUBMIT(r)")
    child = ("import os\nprint('I am', context)\nos.mkdir('own')\nos.chdir('own')\n"
             "open('file', 'w').write(str(context))\n"
             "llm_query_batched(['wait', 'wait'])\n"
             "print('still', context)\nSUBMIT([int(open('file').read()), os.listdir('.')])")
    result, _ = tree([line("root", repl(root)), line("one", repl(child), repeat=True),
                      line("two", "on", gate=8, repeat=True)], "--isolation", isolation)
    answered(result, [[n, ["file"]] for n in range(4)])
    said = sorted(cell["stdout"] for cell in droste.lines("cell"))
    assert said == ["I am %d\nstill %d\n" % (n, n) for n in range(4)] + ["before\nafter root\n"]


def test_endless_cells_end_at_their_deadline(session):
    """There: `while True` hangs for ever, and so does all that a cell can wait for. Here: each ends in time,
    also one that swallows exceptions; the session goes on with its variables."""
    endless = ["while True: pass", "while True:\n    try: 1 / 0\n    except Exception: pass",
               "import subprocess\nsubprocess.run(['sleep', '600'])", "import threading\nthreading.Event().wait()"]
    result, cells = session("n = 0", *["n += 1\n" + code for code in endless], "SUBMIT(n)",
                            flags=["--execute-timeout", "1"])
    answered(result, len(endless))
    assert [cell["status"] for cell in cells] == ["ok"] + ["timeout"] * len(endless) + ["submitted"]


def test_the_time_of_a_run_ends_a_cell_that_does_not_listen(droste, replay):
    """There: the run's limit is looked at between cells only. Here: a child's cell that ignores the interrupt
    is killed when the root's time is over, and nothing is left of it."""
    process = droste.start("run", "--question", "q", "--json", "--timeout", "3", "--model",
                           replay(repl("rlm_query('q')"), at(1, repl(STUBBORN), repeat=True)))
    wait_until(lambda: os.path.exists(droste.record.path) and droste.record.runs and len(droste.record.cells) == 2,
               what="the child's cell")
    below = descendants(process.pid)
    result = finish(process)
    assert (result.status, result.json["status"]) == (3, "timeout")
    assert len(below) >= 5
    wait_until(lambda: not still_alive(below), what="the end of the sandboxes")


# What is lost or forbidden elsewhere: cells of one session, of which the last submits what is given.
PYTHON_OF_A_SESSION = {
    "bound before the cell raised": (["x = 1\ny = [2]\n1 / 0", "SUBMIT([x, y])"], [1, [2]]),
    "classes": (["from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
                 "    def two(self): return 2 * self.x",
                 "SUBMIT(P(21).two())"], 42),
    "a global that comes later": (["def f(): return later", "later = 5", "SUBMIT(f())"], 5),
    "global": (["n = 0\ndef up():\n    global n\n    n += 1", "up(); up()", "SUBMIT(n)"], 2),
    "del": (["x = 1", "del x", "SUBMIT('x' in globals())"], False),
    "names with an underscore": (["_x = 1", "SUBMIT(_x)"], 1),
    "exceptions and built-ins": (["try: 1 / 0\nexcept ZeroDivisionError: n = eval('len(frozenset([1]))')\n"
                                  "try: {}[0]\nexcept (TimeoutError, PermissionError, KeyError): n += 1",
                                  "SUBMIT(n + len({'n'} & set(globals())))"], 3),
    "sys.exit": (["import sys\nx = 3\nsys.exit(3)", "SUBMIT(x)"], 3),
    "top-level await": (["import asyncio\nx = await asyncio.sleep(0, 4)", "SUBMIT(x)"], 4),
    "what cannot be pickled": (["import socket, threading\ng = iter(range(9)); next(g)\n"
                                "f = open('t', 'w+'); f.write('ab')\nlock = threading.Lock(); lock.acquire()\n"
                                "a, b = socket.socketpair(); b.send(b'x')\nhalf = lambda n: n / 2",
                                "f.seek(0)\nSUBMIT([next(g), f.read(), lock.locked(), a.recv(1).decode(), half(3)])"],
                               [1, "ab", True, "x", 1.5]),
    "threads": (["import queue, threading\nq, r = queue.Queue(), queue.Queue()\n"
                 "threading.Thread(target=lambda: r.put(q.get() * 2)).start()", "q.put(21)\nSUBMIT(r.get())"], 42),
    "imports are made once": (["import json\njson.mark = 7", "import json\nSUBMIT(json.mark)"], 7),
    "changes of the context": (["context['rows'].append(9)", "context['rows'].append(8)",
                                "SUBMIT(context['rows'])"], [1, 9, 8]),
}


@pytest.mark.parametrize("what", PYTHON_OF_A_SESSION)
def test_a_session_is_python(session, tmp_path, what):
    """There: each cell runs in a fresh dict that is copied back if it did not raise, in a restricted set of
    built-ins (alexzhang13/rlm), or is given its inputs anew (dspy.RLM). Here: one module, as Python has it."""
    cells, answer = PYTHON_OF_A_SESSION[what]
    (tmp_path / "c.json").write_text('{"rows": [1]}')
    result, _ = session(*cells, flags=["--context", tmp_path / "c.json"])
    answered(result, answer)


def test_a_session_is_the_same_at_each_isolation(droste):
    """There: seven environments with four meanings. Here: all of the above in one session gives the same
    output, errors and answers at each isolation. (But for sys.exit, which leaves a prompt.)"""
    cells = ["context = {'rows': [1]}\n"] + [
        re.sub(r"^SUBMIT\((.*)\)$", r"print(\1)", cell, flags=re.M) + "\n\n"
        for what, (cells, _) in PYTHON_OF_A_SESSION.items() if what != "sys.exit" for cell in cells]
    seen = [droste("repl", "--isolation", level, input="".join(cells)) for level in LEVELS]
    assert seen[0].out.count("\n") >= len(PYTHON_OF_A_SESSION) - 1 and "ZeroDivisionError" in seen[0].err
    assert [(s.out, s.err, s.status) for s in seen[1:]] == [(seen[0].out, seen[0].err, seen[0].status)] * 3


# ---- alexzhang13/rlm: what was spent, and what happened ----

def test_usage_of_a_tree_is_the_servers_own_count(droste, serve):
    """There: root and children of one model's name overwrite each other's counters, children's calls are lost,
    and all items of a batch get the last one's tokens. Here: one name at all depths, and each call is counted
    as it was."""
    root = repl("SUBMIT(rlm_query('go'), llm_query_batched(['x' * 400, 'y' * 4000, 'z']))")
    server = serve(script=[line("m", root, "Question: q"),
                           line("m", repl("SUBMIT(llm_query('w' * 800))"), "Question: go"),
                           line("m", "said", repeat=True)])
    result = droste("run", "--question", "q", "--json", "--base-url", server.url, "--model", "scripted-m")
    usage = answered(result, ["said", ["said"] * 3])["usage"]
    told = server.stats()["told"]["scripted-m"]
    assert usage["calls"] == server.stats()["requests"] == 6
    assert [usage["input_tokens"], usage["output_tokens"]] == told and not usage["estimated"]
    of_prompts = sorted(call["input_tokens"] for call in droste.lines("call") if call["kind"] == "sub")
    assert of_prompts == [0, 100, 200, 1000]


def test_money_is_bounded_over_the_whole_tree(tree, tmp_path):
    """There: what children spent is forgotten after each turn, and a run goes over its budget without saying
    so. Here: four children ask until they are refused, and all of them together stay below the limit."""
    (tmp_path / "prices").write_text("scripted-two 1000000 0\nscripted-* 0 0\n")    # a dollar an input token
    child = ("n = 0\ntry:\n    while True:\n        llm_query('x' * 400)\n        n += 1\n"
             "except BudgetExceeded: SUBMIT(n)")
    result, server = tree([line("root", repl("SUBMIT(sum(rlm_query_batched(['go'] * 4)))")),
                           line("one", repl(child), repeat=True), line("two", "said", repeat=True)],
                          "--prices", tmp_path / "prices", "--max-cost", "750", "--max-llm-calls", "1000")
    assert result.status == 0, result
    calls, (tokens, _) = server.stats()["models"]["scripted-two"], server.stats()["told"]["scripted-two"]
    assert result.json["answer"] == calls > 1 and tokens == calls * 100
    assert result.json["usage"]["cost"] == pytest.approx(tokens) and tokens <= 750


def test_a_result_has_one_shape_at_every_depth(ask):
    """There: at the depth limit a bare text comes back where elsewhere an object does. Here: the same members,
    and the calls at the limit are in the usage."""
    turns = [repl("SUBMIT(rlm_query('q'))"), at(1, repl("SUBMIT('deep')"), "Question: q"), at(1, "deep")]
    with_child, without = (answered(ask(turns, "--max-recursion-depth", n), "deep") for n in (1, 0))
    assert set(with_child) == set(without) and with_child["usage"]["calls"] == without["usage"]["calls"] == 2


def test_progress_and_results_can_be_looked_at(droste, replay):
    """There: the callbacks of turns are never called, and a result with sub-calls cannot be printed. Here: each
    turn, its code and output are told as they come, and the run can be shown afterwards."""
    result = droste("run", "--question", "q", "--verbose", "--model",
                    replay(repl("print(llm_query('x'), 1 + 1)"), at(1, "sub said"), repl("SUBMIT('end')")))
    told = ["turn 1 of", "> print(llm_query('x'), 1 + 1)", "| sub said 2", "turn 2 of", "> SUBMIT('end')"]
    assert re.search(".*".join(map(re.escape, told)), result.err, re.S), result.err
    (run,) = droste.record.runs
    shown = droste("runs", "show", run["id"])
    assert shown.status == 0 and "print(llm_query('x'), 1 + 1)" in shown.out and "sub said 2" in shown.out


def test_a_record_holds_a_context_once(droste, replay):
    """There: each step's log has the whole conversation and all variables again, ten times the context in five
    turns. Here: 4 MB of digits that came through a pipe, bound to five more names and given to a child, are
    kept once, packed."""
    context = os.urandom(2 << 20).hex()
    turns = [repl("copy%d = context + '.'\nprint(len(copy%d))" % (n, n)) for n in range(5)]
    result = droste("run", "--question", "q", "--json", "--context", "-", "--model", replay(
        *turns, repl("SUBMIT(rlm_query('q', context))"), at(1, repl("SUBMIT(len(context))"))), input=context)
    answered(result, len(context))
    assert len(context) / 2 < len(droste.record.bytes()) < 0.9 * len(context)


# ---- alexzhang13/rlm: the context, the names, the answer ----

CONTEXTS = {
    "an end in a quote": b'he said "yes"', "triple quotes and backslashes": b"'''\"\"\"\\n\\",
    "line ends": b"a\r\nb\rc\n\x0b\x0c\xc2\x85\xe2\x80\xa8", "a zero byte": b"a\0b", "empty": b"",
    "a mark at its start": b"\xef\xbb\xbfx", "percents and braces": b"%s {0} {context} $x",
    "3 MB": b"0123456789abcdef" * 196608, "bytes that are no text": b"\xed\xa0\x80\xff",
}


@pytest.mark.parametrize("what", CONTEXTS)
def test_a_context_arrives_to_the_byte(ask, tmp_path, what):
    """There: it is pasted into code as a literal, so that quotes, zero bytes and line ends break it and 45 KB
    are the most, or goes through a text file that changes its line ends. Here: root and child have what the
    file has."""
    (tmp_path / "c.txt").write_bytes(CONTEXTS[what])
    sha = "__import__('hashlib').sha256(context if type(context) is bytes else context.encode()).hexdigest()"
    digest = hashlib.sha256(CONTEXTS[what]).hexdigest()
    answered(ask([repl("SUBMIT(%s, rlm_query('q', context))" % sha), at(1, repl("SUBMIT(%s)" % sha))],
                 "--context", tmp_path / "c.txt"), [digest, digest])


def promised(messages):
    """The functions that a conversation's system message speaks of."""
    return sorted(set(re.findall(r"`([A-Za-z_]+)\(", messages[0]["content"])))


@pytest.mark.parametrize("isolation", LEVELS)
def test_what_the_model_is_told_is_there(droste, replay, isolation):
    """There: one prompt for all environments, of which four lack functions that it speaks of. Here: each name
    in what the model of the root and that of the deepest run are told can be called, at each isolation."""
    look = "names = {**vars(__builtins__), **globals()}\nSUBMIT(%ssorted(n for n in names if callable(names[n])))"
    result = droste("run", "--question", "q", "--json", "--isolation", isolation, "--max-recursion-depth", "1",
                    "--model", replay(repl("deep = rlm_query('q')"), at(1, repl(look % "")), repl(look % "deep, ")))
    assert result.status == 0, result
    deep, root = result.json["answer"]
    first = {call["depth"]: call["request"] for call in droste.lines("call") if call["turn"] == 1}
    assert len(promised(first[0])) >= 8 and set(promised(first[0])) <= set(root)
    assert len(promised(first[1])) >= 8 and set(promised(first[1])) <= set(deep)
    assert "rlm_query" in promised(first[0]) and "rlm_query" not in promised(first[1])


ECHO = '''#!/usr/bin/python3
import json, os, sys
print(json.dumps({"home": os.environ["HOME"], **json.loads(sys.stdin.readline())["arguments"]}))
'''


@pytest.mark.parametrize("isolation", LEVELS)
def test_tools_of_the_host_are_there_at_each_isolation(droste, tmp_path, isolation):
    """There: functions of the host are dropped where there is a wall, and data of several lines is executed as code.
    Here: a program of the host's answers from outside the wall, and data is data."""
    data = "def f():\n    raise SystemExit\nf()"
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "echo").write_text(ECHO)
    (tmp_path / "echo").chmod(0o755)
    result = droste.cell("SUBMIT(echo(n=[1, None]), text, 'f' in globals())", "--isolation", isolation,
                         "--tool", "echo=%s" % (tmp_path / "echo"), "--tool-data", "text=%s" % (tmp_path / "data.json"))
    assert result["submit"]["output"] == [{"home": droste.home, "n": [1, None]}, data, False]


READY = {
    "by item": "answer['content'] = 'x'\nanswer['ready'] = True",
    "ready first": "answer['ready'] = True\nanswer['content'] = 'x'",
    "update": "answer.update(content='x', ready=True)",
    "or": "answer |= {'content': 'x', 'ready': True}",
    "a new dict": "answer = {'content': 'x', 'ready': True}",
    "an alias": "a = answer\na['content'] = 'x'\na['ready'] = 1",
    "in a function": "def done(): answer.update(content='x', ready=True)\ndone()",
    "and then it raises": "answer.update(content='x', ready=True)\n1 / 0",
    "a new dict, and then it raises": "answer = {'content': 'x', 'ready': True}\n1 / 0",
}


@pytest.mark.parametrize("way", READY)
def test_an_answer_that_is_ready_is_seen(ask, way):
    """There: only an assignment to `answer["ready"]` is seen, with the content of that moment; `update` is not,
    and what is seen differs by environment. Here: what counts is how it stands when the cell ends."""
    answered(ask([repl(READY[way])]), "x")


def test_an_answer_is_given_once(droste):
    """There: `ready` stays from one question to the next. Here: the cell after is not taken for an answer."""
    result = droste("repl", input="answer.update(content='x', ready=True)\nanswer['ready']\nanswer['content'] = 'y'\n")
    assert result.out == 'submitted: {"answer": "x"}\nFalse\n'


# ---- alexzhang13/rlm: the wall and the channel ----

def listening(root):
    """The ports at which a process or one below it listens."""
    sockets = {os.readlink("/proc/%d/fd/%s" % (pid, fd)) for pid in [root, *descendants(root)]
               if os.path.exists("/proc/%d/exe" % pid) for fd in os.listdir("/proc/%d/fd" % pid)
               if os.path.lexists("/proc/%d/fd/%s" % (pid, fd))}
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open("/proc/%d/net/%s" % (root, table)) as lines:
            rows = [row.split() for row in list(lines)[1:]]
        found += [row[1] for row in rows if row[3] in ("0A", "07") and "socket:[%s]" % row[9] in sockets]
    return found


@pytest.mark.parametrize("isolation", ["full", "process"])
def test_nothing_listens_for_calls(droste, serve, isolation):
    """There: calls go through a server on all of the host's addresses that anybody may ask. Here: while a guest
    waits for a model nothing of Droste listens anywhere; the model's server, which does, is the twin."""
    server = serve(script=[line("sub", hang=True)])
    assert len(listening(server.pid)) == 2
    process = droste.start("exec", "-c", "llm_query('x')", "--isolation", isolation, "--base-url", server.url,
                           "--model", "scripted-sub")
    wait_until(lambda: server.stats()["requests"] == 1, what="the call")
    found = listening(process.pid)
    process.terminate()
    assert finish(process).status == 130 and found == []


def test_each_sandbox_has_limits(droste):
    """There: containers without limits of memory, processes, processor time or files. Here: limits are in force
    where nobody set any, and the result names who enforces them."""
    limits = droste.cell("x = 1")["resources"]["limits"]
    for name in ("memory", "processes", "open-files", "file-size", "tmp-size", "output-limit"):
        assert limits[name]["value"] > 0 and limits[name]["by"] in ("cgroup", "rlimit", "mount", "host"), name


TEXTS = ["Error: LM query failed - x", "[ERROR] x", "Error: None", "None", ""]


def test_an_error_is_no_text_and_a_text_no_error(droste, serve):
    """There: failures come back as texts that begin with `Error:`, as a model's reply may, and an empty reply
    becomes `Error: None`. Here: replies are what they are, also an empty one; a failure raises, and in a batch
    has its own type."""
    server = serve(script=[line("sub", text, "say %d" % n, repeat=True) for n, text in enumerate(TEXTS)]
                   + [line("sub", contains="fail", status=400, repeat=True)])
    code = ("def name(p, m=None):\n    try: return llm_query(p, model=m)\n"
            "    except Exception as e: return [type(e).__name__, getattr(e, 'code', '')]\n"
            "r = llm_query_batched(['say %d' % n for n in range(5)] + ['fail'])\n"
            "SUBMIT([type(x).__name__ for x in r], r[:5], name('say 1'), name('fail'), name('x', 'nullcontent'),\n"
            "       name(''))")
    result = droste.cell(code, "--base-url", server.url, "--model", "scripted-sub", "--retries", "0")
    assert result["submit"]["output"] == [["str"] * 5 + ["FailedReply"], TEXTS, "[ERROR] x", ["LLMError", "model"],
                                          ["LLMError", "model_reply"], ["ValueError", ""]]


def test_256_threads_ask_at_once(droste, serve):
    """There: a queue of five connections, so that 64 threads wait for seconds. Here: 256 threads have their
    calls open at the same time, more than which the server would not answer, over one channel."""
    server = serve(script=[line("sub", "in", gate=256, repeat=True)])
    code = ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(256) as pool:\n"
            "    r = list(pool.map(llm_query, map(str, range(256))))\nSUBMIT(r == ['in'] * 256)")
    flags = ["--base-url", server.url, "--model", "scripted-sub", "--concurrency", "256", "--max-llm-calls", "256",
             "--processes", "512"]
    assert droste.cell(code, *flags)["submit"] == {"output": True}


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_level_is_what_it_says(droste, isolation):
    """There: one page calls a container fully isolated, another not isolated. Here: the result names the level,
    and each that claims to be a wall hides a file of the user's; `process`, which does not, does not."""
    secret = os.path.join(droste.home, "secret")
    open(secret, "w").write("the host's")
    os.chmod(secret, 0o644)
    code = "try: r = open(%r).read()\nexcept OSError: r = None\nSUBMIT(r)" % secret
    result = droste.cell(code, "--isolation", isolation)
    assert result["isolation"] == isolation
    assert result["submit"] == {"output": "the host's" if isolation == "process" else None}
