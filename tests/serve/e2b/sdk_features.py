"""What docs/e2b.md says of E2B's Python SDK, row by row. Runs in an environment that has the SDK:

    sdk_features.py ADDRESS

prints a JSON object: by name of a row, null, or the traceback. test_sdk.py reads it.
"""
import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback

ADDRESS = sys.argv[1]
os.environ.update(E2B_API_KEY="e2b_" + "0" * 40, E2B_API_URL=ADDRESS, E2B_SANDBOX_URL=ADDRESS)

from e2b_code_interpreter import Sandbox  # noqa: E402

ROWS = {}
LIVE = []


def row(function):
    """One row: it gets a sandbox that the rows share."""
    ROWS[function.__name__] = function
    return function


def create(**more):
    """A sandbox of a row's own."""
    LIVE.append(Sandbox.create(**more))
    return LIVE[-1]


def raised(function, *args, **more):
    """The name and the text of what is raised."""
    try:
        function(*args, **more)
    except Exception as e:  # noqa: BLE001: any class of any version
        return type(e).__name__, str(e)
    raise AssertionError("nothing was raised")


# ---- the control plane ----

@row
def create_with_variables_and_metadata(sandbox):
    own = create(envs={"A": "1"}, metadata={"who": "a b&c=d"}, timeout=90)
    assert own.run_code("import os; os.environ['A']").text == "1"
    info = own.get_info()
    assert info.metadata == {"who": "a b&c=d"} and info.template_id == "code-interpreter-v1"
    assert 80 < (info.end_at - info.started_at).total_seconds() < 100
    assert info.cpu_count > 0 and info.memory_mb > 0


@row
def list_with_filters_and_pages(sandbox):
    from e2b import SandboxQuery
    marks = [create(metadata={"batch": "x%20y", "n": str(i)}) for i in range(3)]
    query = SandboxQuery(metadata={"batch": "x%20y"})
    pages, found = Sandbox.list(query=query, limit=2), []
    while pages.has_next:
        page = pages.next_items()
        assert len(page) <= 2
        found += [one.sandbox_id for one in page]
    assert found == [one.sandbox_id for one in reversed(marks)]
    assert Sandbox.list(query=SandboxQuery(metadata={"batch": "z"})).next_items() == []
    assert all(one.kill() for one in marks)


@row
def kill(sandbox):
    own = create()
    assert own.kill() is True and own.kill() is False
    assert Sandbox.kill(own.sandbox_id) is False
    name, text = raised(own.run_code, "1")
    assert "Exception" in name and "not found" in text, (name, text)


@row
def timeout_replaces_the_deadline(sandbox):
    own = create(timeout=300)
    own.set_timeout(3)
    deadline = time.monotonic() + 60
    while own.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert own.kill() is False
    name, text = raised(create, timeout=10 ** 7)
    assert "Timeout" in text, (name, text)


@row
def is_running(sandbox):
    assert sandbox.is_running() is True


@row
def connect_extends_only(sandbox):
    own = create(timeout=300)
    end = own.get_info().end_at
    again = Sandbox.connect(own.sandbox_id, timeout=20)
    assert again.get_info().end_at == end
    assert Sandbox.connect(own.sandbox_id, timeout=900).get_info().end_at > end
    own.run_code("x = 5")
    assert again.run_code("x").text == "5"


@row
def pause_and_resume(sandbox):
    own = create()
    own.run_code("x = 'kept'")
    pause = getattr(own, "pause", None) or own.beta_pause
    pause()
    assert own.is_running() is False
    assert own.get_info().state.value == "paused"
    again = Sandbox.connect(own.sandbox_id)
    assert again.is_running() and again.run_code("x").text == "kept"


@row
def unknown_templates_are_refused(sandbox):
    name, text = raised(Sandbox.create, "no-such-template")
    assert "Exception" in name and "no-such-template" in text


@row
def templates_of_the_server(sandbox):
    import urllib.request
    body = json.dumps({"name": "tables", "cells": ["import json\ntable = {'a': 1}"]})
    made = json.loads(urllib.request.urlopen(urllib.request.Request(
        ADDRESS + "/v1/templates", body.encode(), {"Content-Type": "application/json"})).read())
    for name in ("tables", made["id"], "tables"):      # wherever the sandbox is placed
        own = create(template=name)
        assert own.run_code("table['a'] += 1; table").text == "{'a': 2}"
        again = own.create_code_context()
        assert own.run_code("table", context=again).text == "{'a': 1}"
        assert own.commands.run("pwd").stdout == "/tmp\n"
        assert own.get_info().template_id == name
        own.kill()


@row
def mcp_is_refused(sandbox):
    name, text = raised(Sandbox.create, mcp={"github": {}})
    assert "Exception" in name and ("MCP" in text or "mcp" in text), (name, text)


@row
def allow_lists_of_the_network_are_refused(sandbox):
    name, text = raised(Sandbox.create, network={"allow_out": ["1.1.1.1"]})
    assert "Exception" in name and "allowOut" in text, (name, text)
    create(network={"deny_out": ["0.0.0.0/0"]}).kill()


@row
def metrics(sandbox):
    import datetime
    own = create()
    while not (before := own.get_metrics()):
        time.sleep(0.05)
    before = before[-1]
    own.run_code("kept = b'x' * 100_000_000\nopen('/tmp/f', 'wb').write(b'y' * 10_000_000)\n"
                 "import time\nuntil = time.process_time() + 0.5\n"
                 "while time.process_time() < until: pass")
    deadline = time.monotonic() + 60
    while len(points := own.get_metrics()) < 2:     # one a second at most
        assert time.monotonic() < deadline
        time.sleep(0.05)
    now = points[-1]
    assert now.cpu_count > 0
    seconds = sum(two.cpu_count * two.cpu_used_pct / 100
                  * (two.timestamp - one.timestamp).total_seconds()
                  for one, two in zip(points, points[1:]))
    assert seconds > 0.4, (seconds, points)
    # Pages that sandboxes share are divided between them, so `before` depends on their number.
    assert now.mem_used - before.mem_used >= 80_000_000, (before, now)
    assert now.mem_used < now.mem_total
    assert now.disk_used - before.disk_used >= 10_000_000 and now.disk_used < now.disk_total
    hour = datetime.timedelta(hours=1)
    assert own.get_metrics(end=now.timestamp - hour) == []
    assert own.get_metrics(start=now.timestamp - hour)[-1] == now
    own.kill()
    assert "Exception" in raised(own.get_metrics)[0]


@row
def forks_are_independent(sandbox):
    if not hasattr(Sandbox, "fork"):
        return      # an older SDK
    own = create(envs={"A": "1"}, metadata={"m": "n"})
    own.run_code("x = [1]\nimport os\nos.environ['B'] = '2'")
    own.files.write("a/b.txt", "of the first", metadata={"k": "v"})
    own.commands.run("ln -s a link; ln a/b.txt a/c.txt; mkdir -m 700 /new; rm /etc/hostname")
    forks = own.fork(count=2, timeout=60)
    LIVE.extend(forks)
    for one in forks:
        assert one.run_code("x.append(2)\nx, os.environ['A'], os.environ['B']").text == (
            "([1, 2], '1', '2')")
        assert one.commands.run("cat link/c.txt; echo $A; stat -c '%A %h' /new a/b.txt; "
                                "test -e /etc/hostname || echo removed").stdout == (
            "of the first1\ndrwx------ 2\n-rw-r--r-- 2\nremoved\n")
        assert one.files.get_info("a/b.txt").metadata == {"k": "v"}
        assert one.get_info().metadata == {"m": "n"}
        one.files.write("a/b.txt", "of a fork")
    assert own.files.read("a/b.txt") == "of the first" and own.run_code("x").text == "[1]"
    own.kill()
    name, text = raised(own.fork)
    assert name == "SandboxNotFoundException", (name, text)


def takes_mode():
    return "mode" in inspect.signature(Sandbox._cls_create_snapshot).parameters


@row
def snapshots(sandbox):
    if not hasattr(Sandbox, "create_snapshot"):
        return      # an older SDK
    own = create(envs={"A": "1"})
    own.run_code("x = 'kept'")
    own.files.write("kept.txt", "also")
    named, plain = own.create_snapshot(name="mine"), own.create_snapshot()
    own.kill()
    pages, found = Sandbox.list_snapshots(sandbox_id=own.sandbox_id, limit=1), []
    while pages.has_next:
        found += pages.next_items()
    assert [one.snapshot_id for one in found] == [plain.snapshot_id, named.snapshot_id]
    if takes_mode():        # an older SDK has no name here
        assert [one.names for one in Sandbox.list_snapshots(name="mine").next_items()] == [
            ["mine:default"]]
    again = create(template="mine", envs={"B": "2"})
    assert again.run_code("import os\nx, os.environ['A'], os.environ['B']").text == (
        "('kept', '1', '2')")
    assert again.commands.run("echo $A $B").stdout == "1 2\n"
    assert again.files.read("kept.txt") == "also"
    assert again.get_info().template_id == "mine"
    for one in (named, plain):
        assert Sandbox.delete_snapshot(one.snapshot_id) is True
        assert Sandbox.delete_snapshot(one.snapshot_id) is False
    assert "mine" in raised(create, template="mine")[1]
    assert again.files.read("kept.txt") == "also"


@row
def snapshots_of_files_alone(sandbox):
    if not takes_mode():
        return      # an older SDK
    own = create()
    own.run_code("x = 1\nopened = open('kept.txt', 'w')\nopened.write('a')\nopened.flush()")
    name, text = raised(own.create_snapshot)
    assert "kept.txt" in text and "close" in text, text
    snapshot = own.create_snapshot(mode="filesystem")
    again = create(template=snapshot.snapshot_id)
    assert again.files.read("kept.txt") == "a"
    assert again.run_code("x").error.name == "NameError"


@row
def what_a_snapshot_cannot_keep_is_named(sandbox):
    if not hasattr(Sandbox, "create_snapshot"):
        return      # an older SDK
    own = create()
    sleep = own.commands.run("sleep 100", background=True)
    assert "command" in raised(own.create_snapshot)[1]
    sleep.kill()
    context = own.create_code_context()
    own.run_code("x = 1", context=context)
    text = raised(own.create_snapshot)[1]
    assert "context" in text, text
    own.remove_code_context(context)
    own.run_code("import subprocess\nsleep = subprocess.Popen(['sleep', '100'])")
    assert "subprocess" in raised(own.create_snapshot)[1]
    own.run_code("sleep.kill(); sleep.wait()")
    Sandbox.delete_snapshot(own.create_snapshot().snapshot_id)


# ---- the code interpreter ----

@row
def run_code_keeps_variables(sandbox):
    sandbox.run_code("kept = 41")
    done = sandbox.run_code("print('out')\nimport sys\nprint('err', file=sys.stderr)\nkept + 1")
    assert done.text == "42" and done.error is None
    assert (done.logs.stdout, done.logs.stderr) == (["out\n"], ["err\n"])
    assert done.execution_count == sandbox.run_code("0").execution_count - 1


@row
def run_code_streams(sandbox):
    seen = []
    done = sandbox.run_code(
        "import time\nprint(1)\nopen('/tmp/go', 'w').close()\ndisplay({'a': 1})\n'last'",
        on_stdout=lambda m: seen.append(("out", m.line)), on_stderr=seen.append,
        on_result=lambda r: seen.append(("result", r.text)), on_error=seen.append)
    # Output and results come on different ways, each in its order.
    assert sorted(seen, key=lambda one: one[0]) == [
        ("out", "1\n"), ("result", "{'a': 1}"), ("result", "last")], seen
    assert len(done.results) == 2 and done.results[1].is_main_result


@row
def errors_are_results(sandbox):
    done = sandbox.run_code("def f():\n    raise ValueError('why\\nnot')\nf()")
    assert (done.error.name, done.error.value) == ("ValueError", "why\nnot")
    assert "in f" in done.error.traceback and done.results == []
    long = sandbox.run_code("raise RuntimeError('x' * 3_000_000 + '\u20ac')").error
    assert long.value == "x" * 3_000_000 + "\u20ac"
    assert long.traceback.endswith("RuntimeError: " + long.value + "\n")


@row
def rich_results(sandbox):
    done = sandbox.run_code(
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>'\n"
        "    def _repr_markdown_(self): return '*m*'\n"
        "    def _repr_latex_(self): return '$x$'\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_jpeg_(self): return b'\\xff\\xd8'\n"
        "    def _repr_javascript_(self): return 'alert()'\n"
        "Shown()")
    one = done.results[0]
    assert (one.html, one.markdown, one.latex, one.svg) == ("<b>", "*m*", "$x$", "<svg/>")
    assert (one.png, one.javascript) == ("iVBORw==", "alert()") and one.jpeg == "/9g="
    assert sandbox.run_code("[1, {'a': None}]").results[0].json == [1, {"a": None}]
    extra = sandbox.run_code("display({'x/y': 'z'}, raw=True)").results[0]
    assert extra.extra == {"x/y": "z"} and list(extra.formats()) == ["x/y"]


@row
def variables_of_one_execution(sandbox):
    code = "import os; print(os.environ.get('ONCE'))"
    assert sandbox.run_code(code, envs={"ONCE": "é'\""}).logs.stdout == ["é'\"\n"]
    assert sandbox.run_code(code).logs.stdout == ["None\n"]


@row
def contexts(sandbox):
    own = sandbox.create_code_context(cwd="/usr")
    sandbox.run_code("secret = 1")
    assert own.cwd == "/usr" and own.language == "python"
    assert sandbox.run_code("import os; os.getcwd()", context=own).text == "/usr"
    assert sandbox.run_code("secret", context=own).error.name == "NameError"
    assert own.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.run_code("x = 1", context=own)
    sandbox.restart_code_context(own)
    assert sandbox.run_code("x", context=own).error.name == "NameError"
    sandbox.remove_code_context(own)
    assert "not found" in raised(sandbox.run_code, "1", context=own)[1]


@row
def a_kernel_that_ends_is_replaced(sandbox):
    own = create()
    assert own.run_code("import os; os._exit(3)").error.name == "KernelDied"
    assert own.run_code("6 * 7").text == "42"


@row
def shell_lines(sandbox):
    done = sandbox.run_code("x = (1,\n!x)")
    assert done.error.name == "SyntaxError", done   # in brackets it is none
    done = sandbox.run_code(
        "x = '''\n!echo no\n'''\n"
        "if x:   # \"\n"
        "    !echo \"a b\" | tr a-z A-Z; exit 3\n"
        "assert _exit_code == 3 and '!echo no' in x and 1 != 2\n"
        "!echo é >&2")
    assert (done.error, done.logs.stdout, done.logs.stderr) == (None, ["A B\n"], ["é\n"]), done


@row
def indented_code(sandbox):
    done = sandbox.run_code("\n    \n    x = [\n  1]\n    if x:\n        x += [2]\n    x")
    assert (done.error, done.text) == (None, "[1, 2]"), done
    assert sandbox.run_code("   ").error is None and sandbox.run_code("").error is None
    assert sandbox.run_code("  !echo a").logs.stdout == ["a\n"]


@row
def bash_in_the_code_interpreter(sandbox):
    first = sandbox.run_code("x=5; cd /tmp; echo out; echo err >&2", language="bash")
    assert (first.logs.stdout, first.logs.stderr) == (["out\n"], ["err\n"]), first
    second = sandbox.run_code("echo $x $ONCE; pwd", language="bash", envs={"ONCE": "a 'b'"})
    assert "".join(second.logs.stdout) == "5 a 'b'\n/tmp\n"
    assert sandbox.run_code("echo [$ONCE]", language="bash").logs.stdout == ["[]\n"]
    assert sandbox.run_code("(exit 3)", language="bash").error.value == "3"
    assert sandbox.run_code("exit 4", language="bash").error.name == "KernelDied"
    own = sandbox.create_code_context(language="bash", cwd="/usr")
    assert sandbox.run_code("pwd", context=own).logs.stdout == ["/usr\n"]
    assert sandbox.run_code("1 + 1").text == "2"


def needs_node(function):
    """A row that needs Node and a server of root; elsewhere JavaScript must be refused."""
    @functools.wraps(function)
    def run(sandbox):
        if os.geteuid() == 0 and shutil.which("node"):
            return function(sandbox)
        name, text = raised(sandbox.run_code, "1", language="js")
        assert "Exception" in name and "apt install nodejs" in text, (name, text)
    return run


def javascript(sandbox, code, **more):
    return sandbox.run_code(code, **more or {"language": "js"})


@row
@needs_node
def javascript_keeps_what_cells_declare(sandbox):
    first = javascript(sandbox,
                       "const a = 1; let s; class A {}; console.log(a); console.error('é')")
    assert (first.error, first.results) == (None, []), first
    assert (first.logs.stdout, first.logs.stderr) == (["1\n"], ["é\n"]), first
    assert javascript(sandbox, "const a = 2; let s = `${a}`; class A {}; s").text == "2"
    assert javascript(sandbox, "[a, {s}]").text == "[ 2, { s: '2' } ]"
    assert javascript(sandbox, "undefined").results == []


@row
@needs_node
def javascript_awaits_and_imports(sandbox):
    assert javascript(sandbox, "await new Promise((r) => setTimeout(r, 1, 'x'))").text == "x"
    sandbox.files.write("m.mjs", "export const seven = 7\nexport default 'd'")
    done = javascript(sandbox, "import * as path from 'path'\nimport fs, { readFileSync as read }\n"
                      "  from 'node:fs'\nimport d, { seven } from './m.mjs'\n"
                      "console.log(typeof read, fs.readFileSync === read, path.sep, d, seven);\n"
                      "(await import('os')).EOL + require('os').EOL")
    assert (done.error, done.logs.stdout) == (None, ["function true / d 7\n"]), done
    assert done.text == r"\n\n", done


@row
@needs_node
def javascript_errors_are_results(sandbox):
    done = javascript(sandbox,
                      "function f() {\n  throw new RangeError('why', { cause: 7 })\n}\nf()")
    assert (done.error.name, done.error.value) == ("RangeError", "why"), done
    trace = done.error.traceback
    assert re.search(r"at f \(cell-\d+\.js:2:9\)\n +at cell-\d+\.js:4:1", trace), trace
    assert "[cause]: 7" in trace and "node:inspector" not in trace and "eval" not in trace, trace
    done = javascript(sandbox, "1\nlet x = (")
    assert done.error.name == "SyntaxError", done
    done = javascript(sandbox, "1\nlet 2x")
    assert "let 2x\n    ^" in done.error.traceback, done.error.traceback
    assert javascript(sandbox, "throw 5").error.value == "5"
    done = javascript(sandbox, "setTimeout(() => { throw new Error('late') }); Promise.reject(6)\n"
                      "await new Promise((r) => setTimeout(r, 20)); 'alive'")
    assert done.text == "alive" and "Error: late" in "".join(done.logs.stderr), done


@row
@needs_node
def javascript_shows_rich_values(sandbox):
    one = javascript(sandbox, "({ _toHtml: () => '<b>',\n"
                     "_toMime: () => ({ 'image/png': 'iVBORw==' }) })")
    assert (one.results[0].html, one.results[0].png) == ("<b>", "iVBORw=="), one


@row
@needs_node
def javascript_contexts(sandbox):
    assert "javascript" in [one.language for one in sandbox.list_code_contexts()]
    own = sandbox.create_code_context(language="javascript", cwd="/usr")
    assert javascript(sandbox, "globalThis.x = 1; process.cwd()", context=own).text == "/usr"
    assert javascript(sandbox, "typeof x").text == "undefined"
    sandbox.restart_code_context(own)
    assert javascript(sandbox, "typeof x", context=own).text == "undefined"
    sandbox.remove_code_context(own)
    assert "not found" in raised(javascript, sandbox, "1", context=own)[1]


@row
@needs_node
def javascript_has_variables_of_one_execution(sandbox):
    code = "process.env.ONCE ?? 'none'"
    assert javascript(sandbox, code, language="js", envs={"ONCE": "é'"}).text == "é'"
    assert javascript(sandbox, code).text == "none"


@row
@needs_node
def javascript_that_is_interrupted_keeps_its_variables(sandbox):
    javascript(sandbox, "const kept = 3")
    for code in ("for (;;);", "await new Promise(() => {})",
                 "require('child_process').execSync('sleep 100')"):
        name, text = raised(javascript, sandbox, code, language="js", timeout=0.5)
        assert name == "TimeoutException", (name, text)
        assert javascript(sandbox, "kept").text == "3", code
    assert javascript(sandbox, "process.exit(4)").error.name == "KernelDied"
    assert javascript(sandbox, "typeof kept").text == "undefined"


@row
@needs_node
def javascript_without_a_program_says_what_to_install(sandbox):
    own = create(envs={"PATH": "/nowhere"})
    error = javascript(own, "1").error
    assert error.name == "KernelDied" and "install Node.js" in error.value, error


@row
@needs_node
def typescript(sandbox):
    version = tuple(map(int, subprocess.check_output(["node", "-v"], text=True)[1:].split(".")))
    done = javascript(sandbox, "const n: number = 4; n", language="ts")
    if version >= (22, 13):
        assert done.text == "4", done
    else:
        assert "Node 22.13" in done.error.value, done


@row
@needs_node
def node_as_a_command(sandbox):
    assert sandbox.commands.run("node -e 'console.log(6 * 7)'").stdout == "42\n"


@row
def unknown_languages_are_refused(sandbox):
    for language in ("r", "java"):
        name, text = raised(sandbox.run_code, "1", language=language)
        assert language in text and "python and bash" in text, (name, text)


# ---- commands ----

@row
def commands_run(sandbox):
    own = create(envs={"A": "1", "B": "2"})
    done = own.commands.run("echo $A $B $C; echo err >&2; pwd", envs={"B": "3", "C": "4"},
                            cwd="/usr")
    assert (done.stdout, done.stderr, done.exit_code) == ("1 3 4\n/usr\n", "err\n", 0)
    seen = []
    own.commands.run("echo out; echo err >&2", on_stdout=lambda t: seen.append(t),
                     on_stderr=lambda t: seen.append(t))
    assert sorted(seen) == ["err\n", "out\n"]
    assert len(own.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3000000


@row
def commands_that_fail(sandbox):
    from e2b import CommandExitException
    for code, status in [("echo no >&2; exit 3", 3), ("kill -9 $$", -1)]:
        try:
            sandbox.commands.run(code)
            raise AssertionError("nothing was raised")
        except CommandExitException as e:
            assert e.exit_code == status, e
    assert raised(sandbox.commands.run, "sleep 60", timeout=1)[0] == "TimeoutException"
    assert raised(sandbox.commands.run, "pwd", cwd="/none")[0] == "InvalidArgumentException"
    assert raised(sandbox.commands.run, "id", user="stranger")[0] == "AuthenticationException"


@row
def commands_in_the_background(sandbox):
    handle = sandbox.commands.run("cat; echo over", background=True, stdin=True)
    assert handle.pid in [one.pid for one in sandbox.commands.list()]
    sandbox.commands.send_stdin(handle.pid, "é\n")
    second = sandbox.commands.connect(handle.pid)
    handle.disconnect()
    streams = hasattr(sandbox.commands, "stream_input")
    if streams:
        sandbox.commands.stream_input(handle.pid, ["streamed ", b"input\n"])
    if hasattr(sandbox.commands, "close_stdin"):
        sandbox.commands.close_stdin(handle.pid)
        output = second.wait().stdout
        assert output.endswith("streamed input\nover\n" if streams else "over\n"), output
    else:
        assert second.kill() is True
    killed = sandbox.commands.run("sleep 100", background=True)
    assert killed.kill() is True and sandbox.commands.kill(999999) is False
    assert raised(killed.wait)[0] == "CommandExitException"
    assert killed.pid not in [one.pid for one in sandbox.commands.list()]


@row
def terminals(sandbox):
    from e2b import PtySize
    pty = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.resize(pty.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(pty.pid, b"stty size; echo $TERM A$((1+1))B; exit\n")
    seen = []
    pty.wait(on_pty=seen.append)
    text = b"".join(seen)
    assert b"30 100" in text and b"xterm" in text and b"A2B" in text, text
    assert sandbox.pty.kill(sandbox.pty.create(PtySize(rows=2, cols=20)).pid) is True
    if hasattr(sandbox.pty, "connect"):
        pty, seen = sandbox.pty.create(PtySize(rows=24, cols=80)), []
        pty.disconnect()
        again = sandbox.pty.connect(pty.pid)
        sandbox.pty.send_stdin(pty.pid, b"echo C$((1+1))D; exit\n")
        again.wait(on_pty=seen.append)
        assert b"C2D" in b"".join(seen), seen


@row
def a_kill_during_a_command(sandbox):
    own = create()
    handle = own.commands.run("sleep 100", background=True)
    own.kill()
    name, text = raised(handle.wait)
    assert "Exception" in name and "was killed or reached its end of life" in text, (name, text)


@row
def the_root_directory_is_writable(sandbox):
    done = sandbox.commands.run("pwd; echo $HOME; whoami")
    assert done.stdout == "/home/user\n/home/user\nuser\n"
    assert sandbox.commands.run("pwd; echo $HOME", user="root").stdout == "/root\n/root\n"
    sandbox.commands.run("mkdir -p /workspace /code /opt/x && sudo touch /workspace/a && python -V")
    assert sandbox.files.write("in-home", "x").path == "/home/user/in-home"
    assert sandbox.run_code("import os; os.getcwd()").text == "/home/user"


# ---- files ----

@row
def files_write_and_read(sandbox):
    info = sandbox.files.write("new/dir/a.txt", "é")
    assert info.path.endswith("/new/dir/a.txt") and info.name == "a.txt"
    assert sandbox.files.read("new/dir/a.txt") == "é"
    assert bytes(sandbox.files.read(info.path, format="bytes")) == "é".encode()
    data = os.urandom(3_000_000)
    sandbox.files.write("/tmp/large", data)
    assert b"".join(sandbox.files.read("/tmp/large", format="stream")) == data
    sandbox.files.write("/tmp/empty", "")
    assert sandbox.files.read("/tmp/empty") == ""
    assert raised(sandbox.files.read, "none")[0] in ("FileNotFoundException", "NotFoundException")
    assert raised(sandbox.files.read, "/tmp")[0] == "InvalidArgumentException"


@row
def files_write_several(sandbox):
    found = sandbox.files.write_files([
        {"path": 'two "x".txt', "data": "2"}, {"path": "/tmp/é/3.txt", "data": b"\x00" * 100000},
        {"path": "empty", "data": ""}])
    assert [one.name for one in found] == ['two "x".txt', "3.txt", "empty"]
    assert sandbox.files.read('two "x".txt') == "2"
    assert len(sandbox.files.read("/tmp/é/3.txt")) == 100000


@row
def files_compressed(sandbox):
    import inspect
    if "gzip" in inspect.signature(sandbox.files.write).parameters:
        sandbox.files.write("gz", b"y" * 20_000_000, gzip=True, use_octet_stream=True)
        assert len(sandbox.files.read("gz")) == 20_000_000


@row
def files_list_and_describe(sandbox):
    sandbox.files.write("/tmp/listed/b/c.txt", "123")
    sandbox.files.write("/tmp/listed/a.txt", "1")
    names = [(one.name, one.type.value) for one in sandbox.files.list("/tmp/listed")]
    assert names == [("a.txt", "file"), ("b", "dir")]
    deep = [one.path for one in sandbox.files.list("/tmp/listed", depth=2)]
    assert deep == ["/tmp/listed/a.txt", "/tmp/listed/b", "/tmp/listed/b/c.txt"]
    info = sandbox.files.get_info("/tmp/listed/b/c.txt")
    assert (info.size, info.permissions, info.mode) == (3, "-rw-r--r--", 0o644)
    assert (info.owner, info.group) == ("user", "user")
    sandbox.commands.run("ln -sfn /tmp/listed/b /tmp/listed/link")
    link = sandbox.files.get_info("/tmp/listed/link")
    assert (link.type.value, link.symlink_target) == ("dir", "/tmp/listed/b")
    assert link.permissions == "Lrwxrwxrwx"
    assert sandbox.files.exists("/tmp/listed") and not sandbox.files.exists("/tmp/listed/z")


@row
def files_make_move_and_remove(sandbox):
    assert sandbox.files.make_dir("made/deep") is True
    assert sandbox.files.make_dir("made/deep") is False
    sandbox.files.write("made/old.txt", "x")
    moved = sandbox.files.rename("made/old.txt", "elsewhere/new.txt")
    assert moved.path.endswith("/elsewhere/new.txt") and not sandbox.files.exists("made/old.txt")
    assert "Exception" in raised(sandbox.files.rename, "none", "x")[0]
    sandbox.files.remove("made")
    assert not sandbox.files.exists("made/deep")


@row
def files_have_metadata(sandbox):
    import inspect
    if "metadata" not in inspect.signature(sandbox.files.write).parameters:
        return      # an older SDK has none
    words = {"author": "somebody", "purpose": "a = b"}
    assert sandbox.files.write("marked/a", "1", metadata=words).metadata == words
    assert sandbox.files.get_info("marked/a").metadata == words
    assert sandbox.files.rename("marked/a", "marked/b").metadata == words
    assert [one.metadata for one in sandbox.files.list("marked")] == [words]
    assert sandbox.files.write("marked/b", "2", metadata={"x": "y"}).metadata == {"x": "y"}
    code = "import os\nfor name, value in %r: os.setxattr('marked/b', name, value)" % (
        [("user.e2b.own", b"1"), ("user.other", b"1"), ("user.e2b.strange", b"\n")],)
    sandbox.files.write("mark.py", code)
    sandbox.commands.run("python3 mark.py")
    assert sandbox.files.get_info("marked/b").metadata == {"x": "y", "own": "1"}
    sandbox.files.write("marked/b", "3")
    assert sandbox.files.get_info("marked/b").metadata is None
    sandbox.files.write("marks.py", "import os; print(os.listxattr('marked/b'))")
    assert "'user.other'" in sandbox.commands.run("python3 marks.py").stdout


@row
def files_watched(sandbox):
    sandbox.files.make_dir("watched")
    handle = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/below/new.txt", "x")
    seen = [(one.type.value, one.name) for one in handle.get_new_events()]
    assert ("create", "below") in seen and ("write", "below/new.txt") in seen
    handle.stop()
    assert "Exception" in raised(sandbox.files.watch_dir, "none")[0]


@row
def signed_urls(sandbox):
    import urllib.error
    import urllib.parse
    import urllib.request
    sandbox.files.write("signed.txt", "secret")
    url = sandbox.download_url("signed.txt", use_signature_expiration=100)
    assert urllib.request.urlopen(url).read() == b"secret"
    for wrong in (url.replace("signed.txt", "other.txt"), url.replace("v1_", "v1_A"),
                  sandbox.download_url("signed.txt", use_signature_expiration=-5)):
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError(wrong)
        except urllib.error.HTTPError as e:
            assert e.code == 401
            e.close()
    body = (b'--limit\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
            b'up\r\n--limit--\r\n')
    upload = urllib.request.Request(sandbox.upload_url("up.txt"), data=body, headers={
        "Content-Type": "multipart/form-data; boundary=limit"})
    assert json.loads(urllib.request.urlopen(upload).read())[0]["name"] == "up.txt"
    assert sandbox.files.read("up.txt") == "up"


@row
def pause_at_once_and_wake_by_a_port(sandbox):
    import urllib.request
    own = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    own.pause()
    assert own.get_info().state.value == "paused"
    own.connect()
    server = own.commands.run("exec python3 -u -m http.server 8001", background=True)
    next(iter(server))
    own.pause()
    request = urllib.request.Request(ADDRESS, headers={"Host": own.get_host(8001)})
    assert urllib.request.urlopen(request).status == 200
    assert own.get_info().state.value == "running"


@row
def ports(sandbox):
    import urllib.error
    import urllib.request
    sandbox.files.write("served/index.html", "from inside")
    server = sandbox.commands.run("cd served && exec python3 -u -m http.server 8001",
                                  background=True)
    next(iter(server))      # it says that it serves
    request = urllib.request.Request(ADDRESS, headers={"Host": sandbox.get_host(8001)})
    assert urllib.request.urlopen(request).read() == b"from inside"
    server.kill()
    closed = urllib.request.Request(ADDRESS, headers={
        "E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8001"})
    try:
        urllib.request.urlopen(closed)
        raise AssertionError("it is still open")
    except urllib.error.HTTPError as e:
        assert e.code == 502 and "port is not open" in e.read().decode()
        e.close()


def main():
    shared, answers = create(timeout=600), {}
    for name, function in ROWS.items():
        try:
            function(shared)
            answers[name] = None
        except Exception:  # noqa: BLE001: the caller shows it
            answers[name] = traceback.format_exc()
    for one in LIVE:
        one.kill()
    print(json.dumps(answers))


main()
