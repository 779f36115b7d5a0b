"""Runs in a notebook, which nbclient executes as the services that publish notebooks do."""
import json
import os
import subprocess

import pytest

from test_jupyter import NO_PORTS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PYTHON = os.path.join(BUILD, "notebook", "bin", "python")

EXECUTE = NO_PORTS + """
import json, sys
import nbclient, nbformat
notebook = nbformat.v4.new_notebook()
notebook.cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
nbclient.NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""
BEGIN = """
import asyncio, sys
sys.path.insert(0, %r)
import droste
go_on = asyncio.Event()
async def model(messages):
    begun.set()
    await go_on.wait()
    return "```repl\\nSUBMIT(answer=1)\\n```"
begun = asyncio.Event()
""" % os.path.join(ROOT, "python")


@pytest.fixture
def execute(tmp_path):
    """execute(cells…): each cell's outputs, as nbformat has them."""
    if not os.path.exists(PYTHON):
        pytest.skip("there is no %s: run `scripts/setup notebook`" % PYTHON)

    def run(*cells):
        done = subprocess.run([PYTHON, "-c", EXECUTE], input=json.dumps([BEGIN, *cells]), text=True,
                              capture_output=True, cwd=tmp_path,
                              timeout=120, env={**os.environ, "BUILD": BUILD, "HOME": str(tmp_path),
                                                "DROSTE_DATABASE": "none"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])[1:]
    return run


def progress(outputs):
    return [o["data"]["text/html"] for o in outputs
            if "<progress" in o.get("data", {}).get("text/html", "")]


def test_progress_of_a_cell_is_reported_to_its_end(execute):
    """One output, which ends with the state of the whole run."""
    shown, = progress(execute("go_on.set(); await droste.RLM(model, progress=True).arun('q', 'c')")[
        0])
    assert "turn 1 of 30, answered, 1 call, " in shown


def test_progress_goes_on_when_its_cell_has_ended(execute):
    """A run that one cell begins and a later one waits for: the first cell's output shows its end
    as well."""
    first, later = execute(
        "run = asyncio.ensure_future(droste.RLM(model, progress=True).arun('q', 'c')); await "
        "begun.wait()",
        "go_on.set(); answer = (await run).answer; print(answer)")
    shown, = progress(first)
    assert "turn 1 of 30, answered, 1 call, " in shown and later[0]["text"] == "1\n"


SHOWN = """
session = droste.Interpreter(on_result=droste.show)
async with session:
    await session.execute(%r)
None""" % """
display("gone")
clear_output()
display({"text/html": "<b>old</b>"}, raw=True, display_id="x")
display({"image/png": b"png"}, raw=True)
update_display({"text/html": "<b>new</b>"}, raw=True, display_id="x")"""


def test_rich_results_come_to_a_notebook_as_they_are_shown(execute):
    """on_result=droste.show: updates replace, clear_output() removes, and pages are in a frame."""
    shown, = execute(SHOWN)
    page, image = (output["data"] for output in shown)
    assert "&lt;b&gt;new&lt;/b&gt;" in page["text/html"] and "sandbox=" in page["text/html"]
    assert image["image/png"].strip() == "cG5n" and "text/html" not in image
