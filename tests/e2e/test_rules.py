"""Rules over what cells import, call and open, the setup code, and the limits that come with them:
as a user meets them, in isolation full and process. $RULES_PYTHON names another interpreter."""
import os

import pytest

from harness import repl

PYTHON = os.environ.get("RULES_PYTHON")
NUMBERS = "import math\nSUBMIT(x=math.floor(2.5))"


@pytest.fixture(params=["full", "process"])
def isolation(request):
    return request.param


@pytest.fixture
def cell(droste, isolation):
    """cell(code, flags…): a cell's result in this isolation, with rules."""
    def run(code, *flags, rules="yes"):
        flags = ["--isolation", isolation, "--rules", rules, *flags]
        return droste.cell(code, *flags, *(["--python", PYTHON] if PYTHON else []))
    return run


def refused(result, kind):
    assert result["status"] == "error" and result["error"]["type"] == kind, result
    assert "rules of this session" in result["error"]["message"]
    return result["error"]


def submitted(result, **fields):
    assert result["status"] == "submitted" and result["submit"] == fields, result


# ---- the rules ----

def test_the_result_says_whether_rules_are_in_force(cell):
    assert cell("pass")["rules"] is True
    assert cell("pass", rules="no")["rules"] is False


@pytest.mark.parametrize("code, kind", [
    ("import subprocess", "ImportError"), ("from os import path", "ImportError"),
    ("eval('1')", "RuleError"), ("exec('x = 1')", "RuleError"), ("input()", "RuleError"),
    ("open('/etc/passwd')", "PermissionError"), ("open('/dev/shm/x', 'w')", "PermissionError"),
    ("import pathlib\npathlib.Path('/etc/passwd').read_text()", "PermissionError"),
    ("import pathlib\npathlib.Path('/dev/shm/x').mkdir()", "PermissionError"),
    ("open(3)", "PermissionError")])
def test_what_the_rules_refuse_is_there_without_them(cell, code, kind):
    """open(3) is the channel and input() ends at once: without rules they fail in their own
    words."""
    error = refused(cell(code), kind)
    assert "<droste>" not in error["traceback"] and "<cell 1>" in error["traceback"]
    without = cell(code, rules="no")["error"]
    assert without is None or "rules of this session" not in without["message"]


def test_ordinary_work_is_not_disturbed(cell):
    """Libraries that import, open and write what they need, in the session's directory."""
    submitted(cell(
        "import asyncio, collections, csv, dataclasses, datetime, json, logging, pathlib, re, "
        "shutil\n"
        "import sqlite3, statistics, tempfile, threading, urllib.parse, zipfile\n"
        "@dataclasses.dataclass\nclass Row:\n    x: int\n"
        "Point = collections.namedtuple('Point', 'x y')\n"
        "async def two():\n    await asyncio.sleep(0)\n    return 2\n"
        "with open('t.csv', 'w') as f:\n    csv.writer(f).writerow([1, 2])\n"
        "with zipfile.ZipFile('t.zip', 'w') as z:\n    z.write('t.csv')\n"
        "place = pathlib.Path(tempfile.mkdtemp())\n(place / "
        "'x').write_text('y')\nshutil.rmtree(place)\n"
        "sqlite3.connect('db').execute('create table t (a)')\n"
        "try:\n    json.loads('{')\nexcept ValueError:\n    logging.exception('not JSON')\n"
        "SUBMIT(a=await two(), b=datetime.datetime.strptime('2024', '%Y').year, c=Row(3).x,\n"
        "       d=list(Point(4, 5)), e=pathlib.Path('t.csv').read_text().strip())"),
        a=2, b=2024, c=3, d=[4, 5], e="1,2")


def test_the_names_of_the_engine_stay(cell):
    submitted(cell("add_buffer('b', 1)\nSUBMIT(b=get_buffer('b'), g='context' in globals(),\n"
                   "       e=[issubclass(k, Exception) for k in (LLMError, RuleError)])"),
              b=[1], g=False, e=[True, True])


def test_allowed_modules_and_directories_are_imported(cell, tmp_path):
    """--allow-import shows a directory to the sandbox and puts it on the path."""
    modules = tmp_path / "modules"
    modules.mkdir()
    modules.chmod(0o755)
    (modules / "own.py").write_text("import subprocess\nvalue = open(__file__).read(6)\n")
    code = "import os, own\nSUBMIT(x=own.value, y=bool(os.getpid()))"
    submitted(cell(code, "--allow-import", "os", "--allow-import", modules), x="import", y=True)
    assert refused(cell(code, "--allow-import", "os"), "ImportError")["message"].endswith(
        "--allow-import own")
    assert refused(cell(code, "--allow-import", modules), "ImportError")["message"].endswith(
        "--allow-import os")


def test_only_what_is_named_is_imported_without_the_standard_library(cell, tmp_path):
    """standard-imports no: the names of allow-import are all there is; what these import themselves
    they have."""
    flags = ["--standard-imports", "no", "--allow-import", "json"]
    submitted(cell("import json\nSUBMIT(x=json.loads('[1]'))", *flags), x=[1])
    assert refused(cell("import math", *flags),
                   "ImportError")["message"].endswith("--allow-import math")
    submitted(cell("import json, math\nSUBMIT(x=math.floor(1.5))", *flags[2:]), x=1)


def test_what_is_preloaded_may_be_imported(cell):
    code = "import signal\nSUBMIT(x=signal.SIGINT.value)"
    submitted(cell(code, "--preload", "signal"), x=2)
    refused(cell(code), "ImportError")


def test_what_is_shown_is_read_and_not_written(cell, tmp_path):
    """By the rules, or in `full` by the wall, where the path is below the session's own /tmp."""
    shown = tmp_path / "shown"
    shown.write_text("seen")
    submitted(cell("SUBMIT(x=open(%r).read())" % str(shown), "--read", shown), x="seen")
    error = cell("open(%r, 'w')" % str(shown), "--read", shown)["error"]
    assert "rules of this session" in error["message"] or "Read-only" in error["message"]
    assert shown.read_text() == "seen"


def test_the_context_is_there(droste, isolation, tmp_path):
    """It is a variable, not a file, and needs no permission."""
    big = tmp_path / "big.txt"
    big.write_text("x" * 200000)
    result = droste.cell("SUBMIT(n=len(context))", "--rules", "yes", "--isolation", isolation,
                         "--context", big)
    submitted(result, n=200000)


def test_temporary_files_are_the_sessions_own_and_go_with_it(cell, isolation):
    result = cell("import tempfile, pathlib\nmade = pathlib.Path(tempfile.mkdtemp())\n"
                  "(made / 'x').write_text('x')\n"
                  "SUBMIT(made=str(made), here=str(pathlib.Path.cwd()), "
                  "home=str(pathlib.Path.home()))")
    made, here = result["submit"]["made"], result["submit"]["here"]
    assert os.path.dirname(made) == here == result["submit"]["home"]
    assert here == "/tmp" if isolation == "full" else "/droste-" in os.path.dirname(here)
    assert not os.path.exists(made)


def test_rules_hold_in_a_sandbox_that_was_kept_ready(droste, isolation):
    """Those of a pool are cloned before anybody says whether they will have rules."""
    script = "import os\nprint(1 + 1)\n"
    result = droste("repl", "--rules", "yes", "--pool", "2", "--isolation", isolation, input=script)
    assert "ImportError" in result.err and "2\n" in result.out


def test_an_ordinary_user_has_rules_too(ordinary_user):
    refused(ordinary_user("exec", "--rules", "yes", "--json", "-c", "import os").json,
            "ImportError")
    submitted(ordinary_user("exec", "--rules", "yes", "--json", "-c", NUMBERS).json, x=2)


ESCAPES = {
    "a class": "o = [c for c in ().__class__.__base__.__subclasses__()"
               " if c.__name__ == '_wrap_close'][0].__init__.__globals__",
    "a module": "import sys\no = vars(sys.modules['os'])",
    "a library": "import random\no = vars(random._os)",
    "a frame": "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\n"
               "o = vars(f.f_globals['sys'].modules['os'])",
    "a format": "import string, random\n"
                "o = vars(string.Formatter().get_field('0._os', (random,), {})[0])",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_escape_from_the_rules_gains_nothing_that_the_wall_denies(droste, tmp_path, escape):
    """The rules are no security boundary: each of these ways reaches `os` and runs a program with
    it. What it reaches is what the wall of `full` leaves: no file of the host's, no network, no
    rights."""
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    secret.chmod(0o644)
    code = (ESCAPES[escape]
            + "\nout = o['popen']('id -u; cat %s; echo changed > %s; ls /home; head -c1 "
              "/etc/shadow; "
            "grep -vc Iface /proc/net/route').read().split()\nSUBMIT(out=out)" % (secret, secret))
    flags = ["--rules", "yes", "--isolation", "full"]
    result = droste.cell(code, *flags, *(["--python", PYTHON] if PYTHON else []))
    out = result["submit"]["out"]
    assert out[0] == "1000", "the escape did not work; is it one no more?"
    assert out[1:] == ["0"], "there is a route to somewhere, or a file of the host's"
    assert secret.read_text() == "the host's"


# ---- the setup code ----

def test_setup_code_runs_before_everything_else(droste, isolation, tmp_path):
    setup = tmp_path / "setup.py"
    setup.write_text(
        "import os\nseen = 'context' in globals()\ndef pid():\n    return os.getpid()\n")
    for option in ("@%s" % setup, setup.read_text()):
        result = droste("exec", "--setup-code", option, "--isolation", isolation, "--context", "-",
                        "--json", "-c", "SUBMIT(seen=seen, c=context, pid=pid() > 0)", input="text")
        submitted(result.json, seen=False, c="text", pid=True)


def test_setup_code_is_free_of_the_rules_and_cells_are_not(cell):
    setup = "import os\ndef read():\n    return eval('1') + len(open('/etc/passwd').read(1))"
    submitted(cell("import os\nSUBMIT(x=read())", "--setup-code", setup), x=2)
    refused(cell("eval('1')", "--setup-code", setup), "RuleError")
    refused(cell("open('/etc/passwd')", "--setup-code", setup), "PermissionError")


@pytest.mark.parametrize("setup, status, words", [
    ("x = 1\n1 / 0", 2, "the setup code failed in line 2: ZeroDivisionError: division by zero"),
    ("@/no/such/file", 2, "reading the setup code"),
    ("while True: pass", 3, "the setup code failed in line 1: TimeoutError"),
    ("import os; os._exit(3)", 4, "running the setup code: the guest's process exited")])
def test_setup_code_that_fails_is_named_and_no_cell_runs(droste, isolation, setup, status, words):
    limits = ["--execute-timeout", "0.5", "--grace", "60"] if "while" in setup else []
    result = droste("exec", "--setup-code", setup, "--isolation", isolation, *limits,
                    "-c", "print('ran')")
    assert result.out == "" and words in result.complaint and result.status == status


def test_setup_code_runs_before_each_cell_where_that_is_asked_for(droste, isolation):
    """What a cell did to its names is undone, its output belongs to the cell, and a cell of its own
    is not counted; without setup-each it runs once."""
    setup = "runs = globals().get('runs', 0) + 1\nx = 1"
    cells = "print(runs, x); x = 5\nprint(runs, x)\n"
    flags = ["--setup-code", setup, "--isolation", isolation]
    assert droste("repl", "--setup-each", "yes", *flags,
                  input=cells).out.split() == ["1", "1", "2", "1"]
    assert droste("repl", *flags, input=cells).out.split() == ["1", "1", "1", "5"]
    result = droste("repl", "--setup-each", "yes", "--setup-code", "SUBMIT(print('set up'))",
                    input="print(1)\nprint(2)\n")
    assert result.out.split("\n") == ["1", "set up", "2", ""]


def test_setup_code_before_each_cell_that_fails_is_the_cells_error(droste):
    """Its line is named, and the session goes on."""
    setup = "import os\nif 'broken' in globals(): raise KeyError('of the setup code')"
    result = droste("repl", "--setup-each", "yes", "--rules", "yes", "--setup-code", setup,
                    input="broken = 1\nprint('ran')\n")
    assert 'File "<setup>", line 2' in result.err and "ran" not in result.out


def test_setup_code_that_fails_ends_a_run_and_a_repl_with_its_error(droste, ask):
    result = ask([repl("SUBMIT(1)")], "--setup-code", "1 / 0")
    assert result.json[
        "status"] == "error" and "line 1: ZeroDivisionError" in result.err + result.out
    assert droste.record.run["status"] == "error" and droste.record.is_whole
    result = droste("repl", "--setup-code", "1 / 0", input="print('ran')\n")
    assert result.out == "" and "line 1: ZeroDivisionError" in result.complaint


def test_setup_code_comes_again_with_each_session_of_a_run(ask):
    """The sandbox dies; what the setup code made is there again, as the context is."""
    result = ask([repl("import os\nos._exit(1)"), repl("SUBMIT(answer=[made, context])")],
                 "--setup-code", "made = 'by setup'")
    assert result.json["answer"] == ["by setup", ""]


def test_setup_code_and_rules_reach_a_repl(droste, isolation):
    result = droste("repl", "--rules", "yes", "--setup-code", "made = 5", "--isolation", isolation,
                    input="made + 1\neval('made')\nfor i in range(2):\n    print('i', i)\n\n")
    assert "6\n" in result.out and "i 1\n" in result.out and "RuleError" in result.err


# ---- runs ----

def test_the_prompt_of_a_run_has_its_rules(droste, serve):
    server = serve(script=[repl("import os"), {"contains": "ImportError: the rules of this session",
                   "content": repl("import math\nSUBMIT(answer=math.floor(2.5))")}])
    flags = ["--model", "scripted", "--base-url", server.url, "--question", "?", "--json"]
    result = droste("run", "--rules", "yes", *flags, env={"OPENAI_API_KEY": "k"})
    assert result.json["answer"] == 2 and result.json["rules"] is True
    shown = droste("runs", "show", result.json["run"], "--full").out
    assert "This session has rules." in shown
    server = serve(script=["FINAL(2)"])
    flags[3] = server.url
    result = droste("run", *flags, env={"OPENAI_API_KEY": "k"})
    shown = droste("runs", "show", result.json["run"], "--full").out
    assert "This session has rules." not in shown and result.json["rules"] is False


# ---- limits ----

def test_more_time_than_the_cap_is_refused_by_both_names(droste):
    for flags in (["--execute-timeout-cap", "5", "--execute-timeout", "6"],
                  ["--rules", "yes", "--execute-timeout", "301"],
                  ["--rules", "yes", "--execute-timeout", "0"]):
        result = droste("exec", "-c", NUMBERS, *flags)
        assert result.status == 2 and result.out == ""
        assert ("execute-timeout is" in result.complaint
                and "execute-timeout-cap" in result.complaint)
    assert droste("exec", "-c", NUMBERS, "--execute-timeout-cap", "5", "--execute-timeout",
                  "5").status == 0
    assert droste("exec", "-c", NUMBERS, "--rules", "yes", "--execute-timeout", "301",
                  "--execute-timeout-cap", "400").status == 0


def test_the_cap_is_the_limit_of_cells_without_one(droste):
    result = droste("exec", "-c", "while True: pass", "--json", "--execute-timeout-cap", "0.3")
    assert result.json["status"] == "timeout" and "0.3 s" in result.json["error"]["message"]


def test_a_call_of_the_guest_waits_only_so_long(droste, serve):
    """It is cancelled; the cell goes on, and the next call is answered."""
    code = ("try:\n    llm_query('a')\nexcept LLMTimeout as e:\n    first = str(e)\n"
            "SUBMIT(first=first, second=llm_query('b'))")
    for limit in "1", "10":
        server = serve(script=[{"content": "late", "delay_ms": 600000}, "in time"])
        result = droste.cell(code, "--broker-timeout", limit, "--model", "scripted", "--base-url",
                             server.url, env={"OPENAI_API_KEY": "k"})
        if result["status"] == "submitted":
            break       # else the deadline came before one of the requests
    submitted(result, second="in time",
              first="no answer within %s s (broker-timeout); the call was cancelled" % limit)
