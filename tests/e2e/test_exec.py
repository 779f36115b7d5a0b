"""droste exec: one piece of code in a fresh sandbox, as a user meets it."""
import json
import os
import signal
import subprocess
import time

import pytest

from harness import PATIENT, PYTHON, descendants, finish, still_alive, wait_until

STUBBORN = ("import signal\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "while True: pass")


# ---- what a cell gives ----

def test_submit_as_anybody_is_behind_the_full_wall(anybody):
    """The first promise of the README holds for root and for an ordinary user."""
    result = anybody("exec", "-c", "import math; SUBMIT(answer=math.factorial(15))", "--json")
    assert result.status == 0
    assert result.json["status"] == "submitted"
    assert result.json["submit"] == {"answer": 1307674368000}
    assert result.json["isolation"] == "full"


@pytest.mark.parametrize("setting,answer", [("yes", "epoll"), ("no", "Function not implemented")])
def test_programs_have_epoll_only_if_it_is_allowed(droste, setting, answer):
    result = droste("exec", "--epoll", setting, "-c", "import subprocess, sys\nsubprocess.run("
                    "[sys.executable, '-c', 'import select; print(type(select.epoll()).__name__)'],"
                    " stderr=subprocess.STDOUT)")
    assert answer in result.out, result


def test_json_has_the_documented_members(droste):
    """One object with status, submit, stdout, stderr, error, seconds, isolation; nothing beside
    it."""
    result = droste("exec", "-c", "print('o'); import sys; print('e', file=sys.stderr); x = 41",
                    "--json")
    cell = result.json
    assert result.status == 0 and result.err == ""
    assert cell["status"] == "ok" and cell["submit"] is None and cell["error"] is None
    assert cell["stdout"] == "o\n" and cell["stderr"] == "e\n"
    assert cell["isolation"] == "full" and cell["alive"] is True
    assert 0 < cell["seconds"] < 60
    assert {"name": "x", "type": "int", "preview": "41"} in cell["variables"]


def test_a_raised_error_has_the_cells_own_lines(droste):
    """Code that raises ends with exit status 1, and the traceback names the line of the cell."""
    result = droste("exec", "-c", "x = 1\n1 / 0", "--json")
    error = result.json["error"]
    assert result.status == 1 and result.json["status"] == "error"
    assert error["type"] == "ZeroDivisionError" and error["message"] == "division by zero"
    assert "line 2" in error["traceback"] and "guest" not in error["traceback"]


def test_raised_error_goes_to_standard_error_without_json(droste):
    """Without --json a person sees the traceback on standard error and the output on the other."""
    result = droste("exec", "-c", "print('before'); {}['missing']")
    assert result.status == 1
    assert result.out == "before\n"
    assert result.err.startswith("Traceback") and result.err.endswith("KeyError: 'missing'\n")


def test_syntax_error_is_an_error_of_the_code(droste):
    """Code that does not compile is status error too, not a failure of the tool."""
    result = droste("exec", "-c", "def", "--json")
    assert result.status == 1 and result.json["error"]["type"] == "SyntaxError"


def test_soft_deadline_keeps_the_state(droste):
    """After --execute-timeout the cell is over, and the session alive with its variables."""
    result = droste("exec", "-c", "kept = 7\nwhile True: pass", "--execute-timeout", "1", "--json",
                    *PATIENT)
    assert result.status == 3
    assert result.json["status"] == "timeout" and result.json["alive"] is True
    assert result.json["error"]["type"] == "TimeoutError"
    assert "kept" in [v["name"] for v in result.json["variables"]]


def test_code_within_its_deadline_is_not_disturbed(droste):
    """The same limit does nothing to a cell that ends in time."""
    assert droste.cell("SUBMIT(x=1)", "--execute-timeout", "20")["status"] == "submitted"


def test_hard_deadline_kills_what_does_not_listen(droste):
    """A cell that ignores the interrupt is killed after the grace, and the result says so."""
    for limit in "0.2", "5":
        result = droste("exec", "-c", STUBBORN, "--execute-timeout", limit, "--grace", "0.2",
                        "--json")
        if not result.json["alive"]:
            break       # else the interrupt came before the code ignored it
    assert result.status == 3
    assert result.json["status"] == "timeout" and result.json["alive"] is False
    assert result.json["killed"] == "timeout"


def test_session_deadline_ends_the_cell(droste):
    """--timeout bounds the whole session."""
    result = droste("exec", "-c", "import time; time.sleep(60)", "--timeout", "0.3", "--json")
    assert result.status == 3 and result.json["status"] == "timeout"


def test_deadline_is_one_line_to_a_person(droste):
    """Without --json the reason of exit status 3 stands on standard error, in a line."""
    result = droste("exec", "-c", STUBBORN, "--execute-timeout", "0.2", "--grace", "0.2")
    assert result.status == 3 and "0.2 s" in result.complaint


def test_the_limits_in_force_are_in_the_result(droste):
    """Each with its value and what enforces it; one that is not set is not there."""
    resources = droste.cell("x = 1", "--memory", "256M", "--cpu-time", "2.5",
                            "--timeout", "50")["resources"]
    limits = resources["limits"]
    assert limits["memory"]["value"] == 256 << 20 and limits["memory"]["by"] in ("cgroup", "host")
    assert limits["cpu-time"] == {"value": 3, "by": "rlimit"}
    assert limits["timeout"] == {"value": 50, "by": "host"}
    assert limits["output-limit"]["by"] == "host" and limits["tmp-size"]["by"] == "mount"
    assert "cpus" not in limits and "execute-timeout" not in limits


def test_what_was_used_is_in_the_result_of_the_last_cell(droste):
    """With or without a cgroup it is known in the end."""
    used = droste.cell("import os; sum(range(10**6)); x = b'x' * (8 << 20); os._exit(0)")[
        "resources"]
    assert used["memory_peak"] > 8 << 20 and 0 < used["cpu_seconds"] < 60


@pytest.mark.parametrize("code, option, killed", [
    ("while True: pass", "--cpu-time=1", "cpu time"),
    ("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
     "open('/tmp/x', 'wb').write(bytes(2 << 20))", "--file-size=1M", "file size"),
])
def test_a_limit_that_was_hit_is_named_for_anybody(anybody, code, option, killed):
    """And the reason says what it is and what raises it."""
    result = anybody("exec", "-c", code, option, "--json")
    assert result.status == 3 and result.json["killed"] == killed
    name = option.split("=")[0]
    assert name in result.json["error"]["message"] and killed in result.json["error"]["message"]


def test_cpus_are_a_share_of_a_cgroup_or_refused(droste):
    """Never dropped silently."""
    result = droste("exec", "-c", "x = 1", "--cpus", "0.5", "--json")
    if result.status == 0:
        assert result.json["resources"]["limits"]["cpus"] == {"value": 0.5, "by": "cgroup"}
    else:
        assert result.status == 4 and "--cpus needs" in result.complaint


def test_sys_exit_is_an_exception_like_others(droste):
    """sys.exit in a cell raises, and does not end the sandbox."""
    result = droste("exec", "-c", "import sys; sys.exit(5)", "--json")
    assert result.status == 5 and result.json["error"]["type"] == "SystemExit"
    assert result.json["alive"] is True


@pytest.mark.parametrize("code, status, complaint", [
    ("sys.exit()", 0, ""), ("sys.exit(0)", 0, ""), ("sys.exit(False)", 0, ""), ("exit()", 0, ""),
    ("sys.exit(7)", 7, ""),
    ("sys.exit(-1)", 255, ""), ("sys.exit('no such file')", 1, "no such file\n"),
    ("raise SystemExit([1])", 1, "[1]\n")])
def test_a_script_that_exits_has_its_own_status(droste, code, status, complaint):
    """As `python FILE`: the status is the script's, a text goes to standard error, and no traceback
    is printed."""
    result = droste("exec", "-", input="import sys\nprint('on')\n%s\nprint('not reached')\n" % code)
    assert (result.status, result.out, result.err) == (status, "on\n", complaint)


def test_an_exit_status_is_a_number_whatever_the_code_makes_of_it(droste):
    """A SystemExit whose code cannot be read, or is odd, has status 1."""
    code = "class Odd(SystemExit):\n    code = property(lambda self: 1 / 0)\nraise Odd"
    assert droste("exec", "-c", code, "--json").status == 1


@pytest.mark.parametrize("flags", [["-c", "print(1)", "-c", "print(2)"],
                                   ["-c", "print(1)", "-c=print(2)"]])
def test_two_sources_of_code_are_refused(droste, flags):
    """A second -c does not replace the first silently; of a setting that is given again the last
    one counts."""
    result = droste("exec", *flags)
    assert result.status == 2 and result.out == "" and "appears twice" in result.err
    result = droste("exec", "-c", "print(1)", "--memory", "1G", "--memory", "2G", "--json")
    assert result.json["resources"]["limits"]["memory"]["value"] == 2 << 30


def test_a_reader_that_leaves_ends_the_cell(droste):
    """`| head`: the cell that prints for ever ends, with the shell's status for a closed pipe and
    without a word."""
    process = droste.start("exec", "-c", "while True: print('y' * 1000)")
    assert process.stdout.read(10) == b"y" * 10
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=60) == 141


def test_a_reader_that_leaves_is_no_error_of_other_commands(droste):
    """Help and lists end silently, too; a full disk is told as before (tests of /dev/full)."""
    reader, writer = os.pipe()
    os.close(reader)
    for words in (["exec", "--help"], ["runs", "ls", "--json"], ["env", "ls"],
                  ["exec", "-c", "print(1)"]):
        process = droste.start(*words, stdout=writer)
        assert process.stderr.read() == b"" and process.wait(timeout=60) in (0, 141), words
    os.close(writer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_is_exit_status_130(droste, number):
    """Ctrl-C in the middle of a cell, and what supervisors send, ends it and the sandbox."""
    process = droste.start("exec", "-c", "print('on', flush=True)\nwhile True: pass")
    assert process.stdout.readline() == b"on\n"
    below = descendants(process.pid)
    os.kill(process.pid, number)
    assert finish(process).status == 130
    assert below and wait_until(lambda: not still_alive(below), what="the end of the sandbox")


def test_interrupt_before_the_code_runs(droste, tmp_path):
    """Ctrl-C while a context is still being read ends the program and leaves nothing behind."""
    process = droste.start("exec", "-c", "1", "--context", "-", stdin=subprocess.PIPE)
    below = wait_until(lambda: descendants(process.pid), what="the sandbox")
    os.kill(process.pid, signal.SIGINT)
    result = finish(process)
    assert result.status in (130, -signal.SIGINT)
    assert wait_until(lambda: not still_alive(below), what="the end of the sandbox")


def test_sigkill_of_droste_leaves_no_sandbox(droste):
    """However droste dies, its sandboxes do not outlive it."""
    process = droste.start("exec", "-c",
                           "import subprocess\np = subprocess.Popen(['sleep', '600'])\n"
                                         "print('on', flush=True)\nwhile True: pass")
    assert process.stdout.readline() == b"on\n"
    below = descendants(process.pid)
    process.kill()
    finish(process)
    assert len(below) >= 3
    assert wait_until(lambda: not still_alive(below), what="the end of the sandbox")


# ---- output ----

def test_output_comes_while_the_code_runs(droste):
    """A person sees each line when it is printed, not at the end."""
    process = droste.start("exec", "-", stdin=subprocess.PIPE)
    process.stdin.write(b"import time\nprint('first', flush=True)\nwhile True: time.sleep(0.01)\n")
    process.stdin.close()
    process.stdin = None
    assert process.stdout.readline() == b"first\n"
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    assert finish(process).status == 130


def test_the_two_streams_stay_apart(droste):
    """What goes to the standard error of the code goes to droste's."""
    result = droste("exec", "-c", "import os; os.write(1, b'one\\n'); os.write(2, b'two\\n')")
    assert (result.status, result.out, result.err) == (0, "one\n", "two\n")


def test_submission_follows_the_output(droste):
    """Without --json what was submitted is the last line, as JSON."""
    result = droste("exec", "-c", "print('x'); SUBMIT(a=1, b='zwei')")
    assert result.out.splitlines()[0] == "x"
    assert json.loads(result.out.splitlines()[1]) == {"a": 1, "b": "zwei"}


def test_full_disk_under_the_output_is_an_error(droste):
    """A result that could not be written is never a success."""
    with open("/dev/full", "w") as full:
        result = droste("exec", "-c", "print(1)", "--json", stdout=full)
    assert result.status == 4 and "writing the result" in result.complaint


def test_full_disk_under_streamed_output_is_an_error(droste):
    """The same without --json, where output is written as it comes."""
    with open("/dev/full", "w") as full:
        result = droste("exec", "-c", "print(1)", stdout=full)
    assert result.status == 4 and "writing the result" in result.complaint


def test_closed_output_is_an_error(droste):
    """A standard output that is closed is told apart from one that took the result."""
    result = droste("exec", "-c", "print(1)", "--json", preexec_fn=lambda: os.close(1))
    assert result.status == 4 and "writing the result" in result.complaint


# ---- where the code comes from ----

def test_code_from_a_file(droste, tmp_path):
    """A FILE is run as it stands."""
    file = tmp_path / "code.py"
    file.write_text("def f():\n    return 'ä'\nSUBMIT(f())\n")
    result = droste("exec", file, "--json")
    assert result.json["submit"] == {"output": "ä"}


def test_code_from_standard_input(droste):
    """`-` is standard input."""
    assert droste("exec", "-", "--json", input="SUBMIT(6 * 7)").json["submit"] == {"output": 42}


SCRIPT = """import sys
def check(words):
    if words:
        sys.exit(int(words[-1]))
    raise ValueError("no words")

if __name__ == "__main__":
    print(sys.argv, __file__)
    check(sys.argv[1:])
"""


@pytest.mark.parametrize("words, argv", [
    (["0"], ["0"]), (["a b", "3"], ["a b", "3"]), (["--", "--size", "3"], ["--size", "3"]),
    (["-", "--", "-x", "0"], ["-", "-x", "0"])])
def test_a_file_runs_as_python_runs_it(droste, tmp_path, words, argv):
    """sys.argv, __file__, __name__ and the status of sys.exit() are those of `python FILE`."""
    (tmp_path / "script.py").write_text(SCRIPT)
    result = droste("exec", "script.py", *words, cwd=tmp_path)
    python = subprocess.run(["/usr/bin/python3", "script.py", *argv], cwd=tmp_path,
                            capture_output=True, text=True)
    assert (result.status, result.out, result.err) == (python.returncode, python.stdout,
                                                       python.stderr)
    assert result.status == int(argv[-1])


def test_modules_beside_a_file_are_imported_as_python_does(droste, tmp_path):
    """Its directory, behind links, comes first in sys.path; --read makes the sandbox see it, and a
    note names that flag where an import fails without it."""
    place = tmp_path / "tools"
    place.mkdir()
    (place / "script.py").write_text("import sys\nprint(sys.path[0])\n"
                                     "import colorsys, helper.part\n"
                                     "print(helper.part.x, colorsys.x)\n")
    (place / "helper").mkdir()
    (place / "helper" / "part.py").write_text("x = 5\n")
    (place / "colorsys.py").write_text("x = 'its own'\n")
    (tmp_path / "link.py").symlink_to(place / "script.py")
    seen = droste("exec", "link.py", "--read", place, cwd=tmp_path)
    assert (seen.status, seen.out, seen.err) == (0, "%s\n5 its own\n" % place, "")
    hidden = droste("exec", "link.py", cwd=tmp_path)
    assert hidden.status == 1 and hidden.out == "%s\n" % place
    note = "note: the sandbox does not see %s/helper; add --read %s\n" % (place, place)
    assert note in hidden.err
    (place / "script.py").write_text("import absent\n")
    assert "note:" not in droste("exec", "link.py", cwd=tmp_path).err


def test_a_module_beside_a_file_does_not_hide_one_that_rules_allow(droste, tmp_path):
    """Libraries are not checked: no cell may be able to write one that Python finds first."""
    beside = tmp_path / "tools"
    beside.mkdir()
    script = beside / "script.py"
    script.write_text("import colorsys\nprint(colorsys.__file__, __file__)\n")
    (beside / "colorsys.py").touch()
    for rules, place in (("yes", "/usr/lib"), ("no", str(beside))):
        found, file = droste("exec", script, "--rules", rules, "--read", beside).out.split()
        assert found.startswith(place) and file == str(script)


def test_a_traceback_names_the_file(droste, tmp_path):
    """The file, its line and the text of the line, as python prints them."""
    (tmp_path / "script.py").write_text(SCRIPT)
    result = droste("exec", "script.py", cwd=tmp_path)
    assert result.status == 1
    assert 'File "%s", line 5, in check\n    raise ValueError("no words")' % (
        tmp_path / "script.py") in result.err


def test_code_without_a_file_has_arguments_too(droste):
    """sys.argv[0] is -c or -, as python has it, and there is no __file__."""
    code = "import sys; print(sys.argv, '__file__' in globals())"
    assert droste("exec", "-c", code, "a", "b").out == "['-c', 'a', 'b'] False\n"
    assert droste("exec", "-", "a", input=code).out == "['-', 'a'] False\n"


def test_a_flag_of_the_script_needs_two_dashes(droste, tmp_path):
    """Flags are Droste's, also behind the FILE; the message says how the script gets one."""
    (tmp_path / "script.py").write_text(SCRIPT)
    result = droste("exec", "script.py", "--size", "3", cwd=tmp_path)
    assert result.status == 2 and "unknown flag '--size'" in result.err and "after --" in result.err


def test_no_code_is_a_mistake(droste):
    """Without code there is nothing to do, and the message says how to give some."""
    result = droste("exec")
    assert result.status == 2 and "-c CODE" in result.err


def test_missing_file_is_named(droste):
    """A FILE that is not there is exit status 2 and names it."""
    result = droste("exec", "nowhere.py")
    assert result.status == 2 and "nowhere.py" in result.complaint


def test_code_that_is_not_text_is_refused(droste, tmp_path):
    """Python source is UTF-8 here; the place of the first bad byte is said."""
    file = tmp_path / "latin.py"
    file.write_bytes(b"x = '\xe4'")
    result = droste("exec", file)
    assert result.status == 2 and "UTF-8 at byte 5" in result.complaint


@pytest.mark.parametrize("args, word", [
    (["--frobnicate"], "unknown flag '--frobnicate'"),
    (["-x"], "unknown flag '-x'"),
    (["--memory"], "--memory needs a value"),
    (["--json=1"], "takes no value"),
    (["--memory", "lots"], "'lots' is not a value for memory"),
    (["--processes", "1"], "1 is too small; use 4 to 1,000,000"),
    (["--isolation", "strong"], "strong"),
])
def test_wrong_flag_is_exit_status_2(droste, args, word):
    """A flag that is not understood is refused with its name before anything is done."""
    result = droste("exec", "-c", "print(1)", *args)
    assert result.status == 2 and word in result.err and result.out == ""
    assert result.err.startswith("droste")


def test_key_on_the_command_line_is_refused(droste):
    """Command lines are seen by everybody on a machine; the message gives the better ways."""
    result = droste("exec", "-c", "1", "--api-key", "sk-secret")
    assert result.status == 2
    assert "OPENAI_API_KEY" in result.err and "sk-secret" not in result.err


@pytest.mark.parametrize("command", ["exec", "run"])
def test_help_is_on_standard_output(droste, command):
    """--help all answers on standard output with exit status 0, says the exit statuses and has
    examples."""
    result = droste(command, "--help", "all")
    assert result.status == 0 and result.err == ""
    assert "Exit status:" in result.out and "  droste %s " % command in result.out


def test_overview_names_the_commands(droste):
    """`droste --help` lists the commands."""
    result = droste("--help")
    assert result.status == 0 and "exec" in result.out and "run" in result.out


def test_unknown_command_is_exit_status_2(droste):
    """A command that is not there is named, and those that are there are listed."""
    result = droste("frobnicate")
    assert result.status == 2 and "frobnicate" in result.err and "exec" in result.err


# ---- context ----

def test_context_file_is_text(droste, tmp_path):
    """A file is a str, whatever its size."""
    file = tmp_path / "c.txt"
    file.write_text("grün\n" * 1000)
    cell = droste.cell("SUBMIT(t=type(context).__name__, n=len(context))", "--context", file)
    assert cell["submit"] == {"t": "str", "n": 5000}


def test_context_that_is_not_text_is_bytes(droste, tmp_path):
    """A file that is not UTF-8 is given as bytes, whole."""
    file = tmp_path / "c.bin"
    file.write_bytes(bytes(range(256)))
    cell = droste.cell("SUBMIT(t=type(context).__name__, ok=context == bytes(range(256)))",
                       "--context", file)
    assert cell["submit"] == {"t": "bytes", "ok": True}


def test_context_from_standard_input(droste):
    """`--context -` reads a pipe to its end."""
    result = droste("exec", "-c", "SUBMIT(len(context))", "--context", "-", "--json",
                    input="x" * 300000)
    assert result.json["submit"] == {"output": 300000}


def test_context_json_is_a_value(droste, tmp_path):
    """A .json file is parsed."""
    file = tmp_path / "c.json"
    file.write_text('{"a": [1, 2, {"b": null}]}')
    assert droste.cell("SUBMIT(context['a'][2])", "--context",
                       file)["submit"] == {"output": {"b": None}}


def test_context_jsonl_is_a_list(droste, tmp_path):
    """A .jsonl file is a list, a value a line; empty lines do not count."""
    file = tmp_path / "c.jsonl"
    file.write_text('{"n": 1}\n\n{"n": 2}\n')
    cell = droste.cell("SUBMIT([x['n'] for x in context])", "--context", file)
    assert cell["submit"] == {"output": [1, 2]}


@pytest.mark.parametrize("kind, type_name", [("text", "str"), ("bytes", "bytes"), ("json", "dict"),
                                             ("jsonl", "list"), ("auto", "dict")])
def test_context_type_decides(droste, tmp_path, kind, type_name):
    """--context-type says what the file becomes, over what its name says."""
    file = tmp_path / "c.json"
    file.write_text('{"a": 1}')
    cell = droste.cell("SUBMIT(type(context).__name__)", "--context", file, "--context-type", kind)
    assert cell["submit"] == {"output": type_name}


def test_context_directory_is_a_dict_of_texts(droste, tmp_path):
    """A directory is {path: text}, with paths relative to it; hidden version control is left
    out."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / ".git").mkdir()
    (tree / "a.txt").write_text("A")
    (tree / "sub" / "b.txt").write_text("B")
    (tree / ".git" / "config").write_text("not a document")
    (tree / "bin").write_bytes(b"\xff\xfe")
    cell = droste.cell("SUBMIT(context)", "--context", tree)
    assert cell["submit"] == {"output": {"a.txt": "A", "sub/b.txt": "B"}}


def test_context_directory_with_binary_files_says_so(droste, tmp_path):
    """Files that are not text are left out, and a person is told how many and which first."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("A")
    (tree / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    result = droste("exec", "-c", "SUBMIT(list(context))", "--context", tree)
    assert result.status == 0 and json.loads(result.out) == {"output": ["a.txt"]}
    assert "1 of 2 files" in result.complaint and "photo.jpg" in result.complaint


def test_missing_context_is_named(droste):
    """A context that is not there is exit status 2, before any code runs."""
    result = droste("exec", "-c", "print(1)", "--context", "nowhere.txt")
    assert result.status == 2 and result.out == ""
    assert "nowhere.txt does not exist" in result.complaint


def test_empty_directory_is_refused(droste, tmp_path):
    """A directory without a text in it is a mistake, not an empty context."""
    (tmp_path / "empty").mkdir()
    result = droste("exec", "-c", "1", "--context", tmp_path / "empty")
    assert result.status == 2 and "no text files" in result.complaint


def test_json_that_is_none_is_refused(droste, tmp_path):
    """A .json file that is not JSON is exit status 2, and the way out is said."""
    (tmp_path / "c.json").write_text("{oops")
    result = droste("exec", "-c", "1", "--context", tmp_path / "c.json")
    assert result.status == 2 and "--context-type" in result.complaint


def test_unreadable_context_is_named(ordinary_user):
    """A context that this user may not read is one clear line."""
    result = ordinary_user("exec", "-c", "1", "--context", "/etc/shadow")
    assert result.status == 2 and "/etc/shadow" in result.complaint
    assert "Permission denied" in result.complaint


def test_unreadable_code_is_named(ordinary_user):
    """The same for a FILE with the code."""
    result = ordinary_user("exec", "/etc/shadow")
    assert result.status == 2 and "/etc/shadow: Permission denied" in result.complaint


# ---- limits ----

FORK = """
import os
pids = []
try:
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            import time; time.sleep(60); os._exit(0)
        pids.append(pid)
except BlockingIOError:
    print('refused')
finally:
    for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
print(len(pids))
"""


def test_processes_beyond_the_limit_are_refused(ordinary_user):
    """--processes bounds a fork bomb."""
    cell = ordinary_user.cell(FORK, "--processes", "16")
    assert "refused" in cell["stdout"] and int(cell["stdout"].split()[-1]) < 16


def test_processes_within_the_limit_are_allowed(ordinary_user):
    """The same code runs under a limit that has room for it."""
    assert ordinary_user.cell(FORK, "--processes", "100")["stdout"] == "40\n"


# ---- isolation ----

LOOK = ("import os\n"
        "SUBMIT(pid=os.getpid(), home=os.path.exists('/root'), "
        "passwd=os.path.exists('/etc/shadow'),\n"
        "       root=os.listdir('/'), net=os.listdir('/sys/class/net') if "
        "os.path.exists('/sys/class/net') else [])")


def test_full_isolation_has_its_own_root_and_pids(droste):
    """Behind the full wall the machine's files and processes are not there."""
    cell = droste.cell(LOOK, "--isolation", "full")
    assert cell["isolation"] == "full" and cell["submit"]["pid"] < 10
    assert not cell["submit"]["home"] and not cell["submit"]["passwd"]


def test_process_isolation_is_no_wall_and_says_so(droste, serve):
    """At `process` the code sees the machine (the network too), and the result names it."""
    port = serve().url.split(":")[2].split("/")[0]
    cell = droste.cell("import os, socket; socket.create_connection(('127.0.0.1', %s), 2)\n"
                       "SUBMIT(os.path.exists('/etc/shadow'))" % port, "--isolation", "process")
    assert cell["isolation"] == "process" and cell["submit"] == {"output": True}


def test_process_isolation_works_as_anybody(anybody):
    """`process` needs no privilege."""
    cell = anybody.cell("SUBMIT(1)", "--isolation", "process")
    assert cell["status"] == "submitted" and cell["isolation"] == "process"


NO_NAMESPACES = ["unshare", "--user", "--map-root-user", "sh", "-c",
                 'echo 0 > /proc/sys/user/max_user_namespaces || exit 99; exec "$@"', "sh"]


@pytest.mark.parametrize("level", ["full", "light", "landlock"])
def test_isolation_that_cannot_be_had_is_refused_by_name(droste, level):
    """What was asked for by name and cannot be had is an error, never something weaker."""
    droste.prefix = NO_NAMESPACES
    result = droste("exec", "-c", "print(1)", "--isolation", level)
    assert result.status == 4 and result.out == "" and "'%s'" % level in result.complaint


def test_kernel_without_user_namespaces_is_explained(droste):
    """Where the wall cannot be built the code does not run, and the message says what can be
    done."""
    droste.prefix = NO_NAMESPACES
    result = droste("exec", "-c", "print(1)")
    assert result.status == 4 and result.out == ""
    assert "full" in result.complaint and "--isolation process" in result.complaint


def test_kernel_without_user_namespaces_has_process(droste):
    """There `process` still works, when asked for by name."""
    droste.prefix = NO_NAMESPACES
    result = droste("exec", "-c", "print(1)", "--isolation", "process")
    assert (result.status, result.out) == (0, "1\n")


# ---- interpreters ----

def test_python_of_a_venv_has_its_packages(droste, tmp_path):
    """--python of a venv finds what is installed there, behind the full wall."""
    venv = tmp_path / "venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = (venv / "lib").glob("python3*/site-packages")
    (site / "only_here.py").write_text("value = 'from the venv'\n")
    cell = droste.cell("import only_here; SUBMIT(only_here.value)", "--python",
                       venv / "bin" / "python")
    assert cell["submit"] == {"output": "from the venv"} and cell["isolation"] == "full"
    assert droste.cell("import only_here")["error"]["type"] == "ModuleNotFoundError"


def test_etc_of_this_machine_can_be_shown(droste):
    """--read /etc takes the place of the sandbox's own /etc, in a root of its own too; a file of it
    stands beside the sandbox's own."""
    code = "import os; SUBMIT(names=sorted(os.listdir('/etc')), hosts=open('/etc/hosts').read())"
    with open("/etc/hosts") as file:
        hosts = file.read()
    for isolation in ("full", "light"):
        own = droste.cell(code, "--isolation", isolation)["submit"]
        assert "machine-id" not in own["names"] and own["hosts"] == "127.0.0.1 localhost\n"
        seen = droste.cell(code, "--isolation", isolation, "--read", "/etc")["submit"]
        assert seen == {"names": sorted(os.listdir("/etc")), "hosts": hosts}
        one = droste.cell(code, "--isolation", isolation, "--read", "/etc/hosts")["submit"]
        assert one == {"names": own["names"], "hosts": hosts}


def test_what_a_sandbox_has_of_its_own_is_not_shown(droste, tmp_path):
    """/dev, /proc and /tmp are refused by name, as they would be hidden; what is below /tmp is
    shown."""
    for path in ("/", "/dev", "/dev/null", "/proc", "/proc/self", "/tmp"):
        result = droste("exec", "-c", "1", "--isolation", "full", "--read", path)
        assert (result.status == 2 and "--read '%s' is not possible: the sandbox has its own /"
                % path in result.complaint), result
    place = tmp_path / "place"
    place.mkdir()
    (place / "there").write_text("x")
    assert droste.cell("SUBMIT(x=open(%r).read())" % str(place / "there"), "--isolation", "full",
                       "--read", place)["submit"] == {"x": "x"}


def test_paths_over_links_are_seen(droste, tmp_path):
    """A venv and a --read path that are reached over an absolute link are in the sandbox under the
    names they were given by; the venv's packages were silently missing."""
    real, linked = tmp_path / "real", tmp_path / "linked"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", real / "venv"], check=True)
    (site,) = (real / "venv" / "lib").glob("python3*/site-packages")
    (site / "only_here.py").write_text("value = 'from the venv'\n")
    (real / "data").mkdir()
    (real / "data" / "file").write_text("read")
    linked.symlink_to(real)
    for place in (real, linked):
        code = "import only_here; SUBMIT(only_here.value + ', ' + open(%r).read())" % str(
            place / "data" / "file")
        cell = droste.cell(code, "--python", place / "venv" / "bin" / "python", "--read",
                           place / "data", "--isolation", "full")
        assert cell["submit"] == {"output": "from the venv, read"}, cell



def test_python_of_the_active_venv_is_the_default(droste, tmp_path):
    """VIRTUAL_ENV decides where --python does not."""
    venv = tmp_path / "venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    cell = droste.cell("import sys; SUBMIT(sys.prefix)", env={"VIRTUAL_ENV": str(venv)})
    assert cell["submit"] == {"output": str(venv)}


def test_python_may_be_a_shim(droste, tmp_path):
    """A script that starts the interpreter (as pyenv's do) is asked which one it starts."""
    shim = tmp_path / "python3"
    shim.write_text('#!/bin/sh\nexec %s "$@"\n' % PYTHON)
    shim.chmod(0o755)
    assert droste.cell("SUBMIT(1)", "--python", shim)["status"] == "submitted"


def test_python_relative_to_here(droste, tmp_path):
    """--python takes a path relative to the working directory."""
    (tmp_path / "home" / "py").symlink_to(PYTHON)
    assert droste.cell("SUBMIT(1)", "--python", "./py")["status"] == "submitted"


def test_python_that_is_not_one_is_refused(droste):
    """A program that is not Python is exit status 4, named, with the cure."""
    result = droste("exec", "-c", "1", "--python", "/bin/ls")
    assert result.status == 4
    assert "/bin/ls" in result.complaint and "--python PATH" in result.complaint


def test_python_that_says_nothing_is_refused(droste):
    """A program that ends at once without a word is refused the same way."""
    result = droste("exec", "-c", "1", "--python", "/bin/true")
    assert (result.status == 4 and "/bin/true" in result.complaint
            and "--python PATH" in result.complaint)


def test_python_that_hangs_is_refused(droste, tmp_path):
    """A program that never answers does not hang droste for ever, nor outlive it."""
    program = tmp_path / "waits"
    subprocess.run(["cc", "-o", program, "-x", "c", "-"], check=True,
                   input=b"#include <unistd.h>\nint main(void) { for (;;) pause(); }")
    process = droste.start("exec", "-c", "1", "--python", program)
    below = wait_until(lambda: descendants(process.pid), what="the program")
    result = finish(process)
    assert result.status == 4 and "waits" in result.complaint
    wait_until(lambda: not still_alive(below), what="the end of the program")


def test_missing_python_is_refused(droste):
    """A path where nothing is is exit status 2."""
    result = droste("exec", "-c", "1", "--python", "/nowhere/python")
    assert result.status == 2 and "/nowhere/python" in result.complaint


# ---- calls of the code ----

def test_code_can_ask_a_model(droste, replay):
    """exec answers llm_query where a model is configured."""
    model = replay({"content": "four", "depth": 1})
    assert droste.cell("SUBMIT(llm_query('2+2'))", "--model", model)["submit"] == {"output": "four"}


def test_code_without_a_model_gets_an_error(droste):
    """Without a model llm_query raises LLMError that says what to configure; the code may catch
    it."""
    cell = droste.cell("try: llm_query('x')\nexcept LLMError as e: SUBMIT(str(e))")
    assert "--model" in cell["submit"]["output"]


@pytest.mark.parametrize("level", ["full", "landlock", "process"])
def test_a_host_killed_while_it_starts_leaves_the_users_files(droste, level):
    """What a zygote removes when its host is gone is the directory that its plan named, not the one
    in which the user happened to start it."""
    mark = os.path.join(droste.home, "mark")
    open(mark, "w").close()
    for milliseconds in range(0, 40, 4):
        process = droste.start("exec", "-c", "import time; time.sleep(9)", "--isolation", level)
        time.sleep(milliseconds / 1000)
        process.kill()
        process.wait()
    time.sleep(0.5)
    assert os.path.exists(mark)
