"""The Jupyter kernel: jupyter_client and nbclient drive it, as JupyterLab and papermill do. They
are in an environment of their own (scripts/setup notebook)."""
import json
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PYTHON = os.path.join(BUILD, "notebook", "bin", "python")
pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason="needs build/notebook")

# Runs the cells of a list and prints, for each, its status and what it showed. A kernel aborts what
# it has received when a cell fails, unless stop_on_error is false.
#: A kernel binds the ports that its client has found free, and by then another may have them; files
#: of the current directory are nobody else's.
NO_PORTS = """
import jupyter_client
jupyter_client.KernelManager.transport.default_value = "ipc"
"""
CLIENT = NO_PORTS + r"""
import json, queue, sys
from jupyter_client import KernelManager

manager = KernelManager(kernel_name="droste")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)

def shown_by(number):
    out = []
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != number:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return out
        if kind not in ("status", "execute_input"):
            out.append([kind, content])

def answer(number):
    while True:
        message = client.get_shell_msg(timeout=60)
        if message["parent_header"].get("msg_id") == number:
            return message["content"]

def run(code, **more):
    number = client.execute(code, stop_on_error=False, **more)
    shown = shown_by(number)
    return [answer(number), shown]

def typed(code, text):
    number = client.execute(code, allow_stdin=True)
    prompt = client.get_stdin_msg(timeout=60)["content"]["prompt"]
    client.input(text)
    return [prompt, shown_by(number), answer(number)]

def stopped(code, mode="signal"):
    manager.kernel_spec.interrupt_mode = mode
    number = client.execute(code, stop_on_error=False)
    while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    manager.interrupt_kernel()
    return answer(number)

def restarted():
    manager.restart_kernel()
    client.wait_for_ready(timeout=60)

def ask(function, *words):
    return answer(getattr(client, function)(*words))

try:
    for line in sys.stdin:      # expressions; each answer is a line
        print(json.dumps(eval(json.loads(line)), default=str), flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("jupyter")
    done = python(place, "-m", "droste.jupyter", "install", "--", "--execute-timeout", "60",
                  "--grace", "60")
    assert done.returncode == 0, done.stderr
    return place


def environment(home):
    return {**os.environ, "HOME": str(home), "PYTHONPATH": os.path.join(ROOT, "python"),
           "DROSTE_LIBRARY": os.path.join(BUILD, "libdroste.so"), "DROSTE_DATABASE": "none",
           "JUPYTER_DATA_DIR": str(home / "data"), "JUPYTER_RUNTIME_DIR": str(home / "run")}


def python(home, *words):
    return subprocess.run([PYTHON, *map(str, words)], env=environment(home), text=True,
                          capture_output=True, timeout=120, cwd=home)


@pytest.fixture(scope="module")
def client(home):
    """A kernel, and a program that drives it; all tests of this file use it."""
    process = subprocess.Popen([PYTHON, "-c", CLIENT], env=environment(home), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home)
    yield process
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


def evaluate(client, expression):
    """The value of an expression over the functions of CLIENT."""
    client.stdin.write(json.dumps(expression) + "\n")
    client.stdin.flush()
    return json.loads(client.stdout.readline())


def test_cells_share_variables_and_show_what_they_print(client):
    (first, shown), (second, more) = evaluate(
        client, "[run('x = 20\\nprint(1)\\nx + 1'), run('x * 2')]")
    assert first["status"] == "ok"
    assert shown[0] == ["stream", {"name": "stdout", "text": "1\n"}]
    assert shown[1][0] == "execute_result" and shown[1][1]["data"]["text/plain"] == "21"
    assert more[0][1]["data"]["text/plain"] == "40"
    assert second["execution_count"] == first["execution_count"] + 1


def test_the_code_runs_in_a_sandbox(client, home):
    """Its kernel's process, files and settings are out of reach."""
    (_, shown), = evaluate(client, "[run(%r)]" % (
        "import os\n(os.getpid(), os.path.exists(%r), 'DROSTE_JUPYTER_SETTINGS' in os.environ)"
        % str(home / "data")))
    assert shown[0][1]["data"]["text/plain"] == "(2, False, False)"


def test_an_exception_is_an_error_and_the_session_goes_on(client):
    (failed, shown), (after, _) = evaluate(client, "[run('y = 1\\n1 / 0'), run('y')]")
    assert (failed["status"], failed["ename"], failed["evalue"]) == (
        "error", "ZeroDivisionError", "division by zero")
    assert shown[0][0] == "error" and "1 / 0" in "\n".join(shown[0][1]["traceback"])
    assert after["status"] == "ok"


def test_nothing_that_a_cell_shows_runs_in_the_page(client):
    """HTML is in a frame without scripts, JavaScript is not shown, images are."""
    (_, page), (_, script), (_, image) = evaluate(client, """[run('''
class Page:
    def _repr_html_(self): return '<script>alert(1)</script><b>bold</b>'
Page()'''), run('''
class Script:
    def _repr_javascript_(self): return 'alert(1)'
display(Script())'''), run('''
class Image:
    def _repr_png_(self): return b'\\\\x89PNG\\\\r\\\\n\\\\x1a\\\\n'
display(Image())''')]""")
    shown = page[0][1]["data"]["text/html"]
    assert shown.startswith("<iframe sandbox=''") and "<script>" not in shown
    assert script[0][0] == "display_data" and list(script[0][1]["data"]) == ["text/plain"]
    assert image[0][1]["data"]["image/png"].startswith("iVBOR")


def test_what_is_shown_stands_among_what_is_printed(client):
    (_, shown), = evaluate(client, "[run(%r)]" % (
        "for i in range(9):\n"
        "    print(i)\n"
        "    display(i)\n"
        "    clear_output()\n"
        "clear_output(wait=True)\n"
        "print('behind')"))
    each = ["stream", "display_data", "clear_output"]
    assert [kind for kind, _ in shown] == each * 9 + ["clear_output", "stream"], shown
    assert shown[-1][1] == {"name": "stdout", "text": "behind\n"}


@pytest.mark.parametrize("mode", ["signal", "message"])
def test_a_cell_can_be_interrupted(client, mode):
    stopped, (after, shown) = evaluate(
        client, "[stopped('x = 1\\nprint(1)\\nwhile True: pass', %r), run('x')]" % mode)
    assert (stopped["status"], stopped["ename"]) == ("error", "KeyboardInterrupt")
    assert shown[0][1]["data"]["text/plain"] == "1"


def test_input_asks_the_notebook(client):
    prompt, shown, reply = evaluate(client, "typed('name = input(\"Name? \")\\nname * 2', 'bo')")
    assert prompt == "Name? " and reply["status"] == "ok"
    assert shown[-1][1]["data"]["text/plain"] == "'bobo'"


def test_input_without_a_client_that_answers_is_an_error(client):
    (reply, _), (after, _) = evaluate(client, "[run('input()', allow_stdin=False), run('1')]")
    assert reply["ename"] == "StdinNotImplementedError" and after["status"] == "ok"


def test_names_are_completed_and_described(client):
    _, names, found, none = evaluate(client, """[run('number = 3'), ask('complete', 'numb', 4),
        ask('inspect', 'len(', 4), ask('inspect', 'no_such_name', 3)]""")
    assert names["matches"] == ["number"] and names["cursor_start"] == 0
    assert found["found"] and "number of items" in found["data"]["text/plain"]
    assert not none["found"]


def test_a_cell_is_complete_or_not(client):
    states = evaluate(client, "[ask('is_complete', c)['status'] for c in "
                            "('x = 1', 'for i in x:', 'x = (', 'x = )', 'await f()',"
                            " 'if x:\\n  y', 'if x:\\n  y\\n')]")
    assert states == ["complete", "incomplete", "incomplete", "invalid", "complete",
                      "incomplete", "complete"]


def test_a_restart_forgets_the_variables(client):
    _, _, (_, shown) = evaluate(client, "[run('x = 1'), restarted(), run('\"x\" in globals()')]")
    assert shown[0][1]["data"]["text/plain"] == "False"


def test_a_sandbox_that_ends_is_an_error_and_a_new_one_begins(client):
    (lost, _), (after, shown) = evaluate(
        client, "[run('import os; os._exit(3)'), run('6 * 7')]")
    assert lost["status"] == "error" and "exited with status 3" in lost["evalue"]
    assert shown[0][1]["data"]["text/plain"] == "42"


def test_checkpoints_and_forks_are_magics(client):
    out = evaluate(client, """[run(code) for code in ('x = 1', '%checkpoint', 'x = 2', '%rollback', 'x',
        '%fork other', '%session other', 'x = 5', '%session main', 'x', '%sessions', '%session none',
        '%rollback 99')]""")
    values = [shown[0][1] for _, shown in out if shown]
    assert values[0]["text"] == "checkpoint 1\n"
    assert values[2]["data"]["text/plain"] == "1"
    assert values[5]["text"] == "cells use the session 'main'\n"
    assert values[6]["data"]["text/plain"] == "1"
    assert values[7]["text"] == "* main\n  other\n"
    assert [reply["status"] for reply, _ in out[-2:]] == ["error", "error"]


def test_expressions_of_a_client_are_evaluated(client):
    (reply, _), = evaluate(client, "[run('x = 2', user_expressions={'a': 'x + 1', 'b': '1 / 0'})]")
    assert reply["user_expressions"]["a"]["data"]["text/plain"] == "3"
    assert reply["user_expressions"]["b"]["ename"] == "ZeroDivisionError"


def test_nbclient_executes_a_notebook(home):
    """as papermill and services that publish notebooks do; a failing cell stops it."""
    done = python(home, "-c", NO_PORTS + """
import json, nbclient, nbformat
book = nbformat.v4.new_notebook()
book.cells = [nbformat.v4.new_code_cell(c) for c in ("x = 6", "print('a')\\nx * 7", "1 / 0", "x")]
try:
    nbclient.NotebookClient(book, kernel_name="droste", timeout=60).execute()
except nbclient.exceptions.CellExecutionError as error:
    print(json.dumps([[cell.outputs for cell in book.cells], str(error)]))
""")
    assert done.returncode == 0, done.stderr
    outputs, error = json.loads(done.stdout)
    assert outputs[1][0]["text"] == "a\n"
    assert outputs[1][1]["data"]["text/plain"] == "42"
    assert outputs[2][0]["ename"] == "ZeroDivisionError" and "ZeroDivisionError" in error
    assert outputs[3] == []


SUITE = NO_PORTS + r"""
import jupyter_kernel_test as suite, unittest
class Droste(suite.KernelTests):
    kernel_name, language_name, file_extension = "droste", "python", ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('e', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('a')", "def f():\n  x = 1\n\n\n"]
    incomplete_code_samples = ["print('''a", "def f():\n  x = 1"]
    invalid_code_samples = ["import = 7q"]
    code_generate_error = "raise RuntimeError"
    code_execute_result = [{"code": "6 * 7", "result": "42"}]
    code_display_data = [{"code": "display({'image/png': b'a'}, raw=True)", "mime": "image/png"}]
    code_history_pattern, supported_history_operations = "6*", ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "clear_output()"
unittest.main(argv=["-"])
"""


def test_the_suite_of_jupyter_for_kernels(home):
    """jupyter_kernel_test, which also checks messages against the protocol's description."""
    done = python(home, "-c", SUITE)
    if "No module named 'jupyter_kernel_test'" in done.stderr:
        pytest.skip("needs jupyter_kernel_test in build/notebook")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words, says", [
    (["--", "--memory"], "pairs"), (["--", "memory", "1G"], "pairs"),
    (["--", "--memroy", "1G"], "memory"), (["--", "--memory", "much"], "memory")])
def test_settings_are_checked_when_it_is_installed(home, words, says):
    done = python(home, "-m", "droste.jupyter", "install", *words)
    assert done.returncode == 2 and says in done.stderr
