"""Jupyter's own clients over the gateway: nbclient, papermill, jupyter_client, and JupyterLab in a
browser. They are in an environment of their own (scripts/setup notebook)."""
import json
import os
import re
import subprocess
import time

import pytest

from browser import Browser, needs_browser
from server_process import ROOT, WAIT, Server, until
from test_keys import create

NOTEBOOK = os.path.join(ROOT, os.environ.get("BUILD", "build"), "notebook")
PYTHON = os.path.join(NOTEBOOK, "bin", "python")
LAB = os.path.join(NOTEBOOK, "bin", "jupyter-lab")
pytestmark = pytest.mark.skipif(
    not os.path.exists(LAB), reason="needs build/notebook with JupyterLab: scripts/setup notebook")


def serve(home, *flags, key=""):
    """A server, and the environment of its clients; at the end no sandbox is left."""
    server = Server(home, "--python", PYTHON, *flags)
    yield server, {
        **os.environ, "HOME": str(home), "JUPYTER_DATA_DIR": str(home / "share"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"), "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_GATEWAY_URL": "http://127.0.0.1:%d" % server.port,
        "JUPYTER_GATEWAY_AUTH_TOKEN": key}
    left = server.ask("GET", "/v1/sandboxes", None, {"X-API-Key": key}).json["sandboxes"]
    assert server.stop() == 0
    assert left == []


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """Without keys: of jupyter_server's clients, the one that needs no server sends none with its
    WebSocket."""
    home = tmp_path_factory.mktemp("gateway")
    (home / "notebooks").mkdir()
    yield from serve(home, "--keys", "none", "--notebooks", str(home / "notebooks"))


@pytest.fixture
def keyed(tmp_path):
    key = create(tmp_path, "notebooks", "--scopes", "read,sandboxes")
    (tmp_path / "notebooks").mkdir()
    yield from serve(tmp_path, "--notebooks", str(tmp_path / "notebooks"), key=key)


def run(gateway, code, *words):
    """What a program of the clients' environment prints, as JSON."""
    done = subprocess.run([PYTHON, "-c", code, *words], env=gateway[1], text=True,
                          capture_output=True, timeout=WAIT * 2)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nbclient(gateway):
    """A notebook's outputs, and the failing cell that stops it."""
    outputs, error = run(gateway, """
import json, nbclient, nbformat
from jupyter_server.gateway.managers import GatewayKernelManager
book = nbformat.v4.new_notebook()
book.cells = [nbformat.v4.new_code_cell(c) for c in (
    "x = 6", "print('a')\\nx * 7", "h = display('old', display_id='d')", "h.update('new')",
    "1 / 0", "x")]
try:
    nbclient.NotebookClient(book, kernel_name="python3", timeout=60,
                            kernel_manager_class=GatewayKernelManager).execute()
except nbclient.exceptions.CellExecutionError as failed:
    print(json.dumps([[cell.outputs for cell in book.cells], str(failed)]))
""")
    assert outputs[1][0]["text"] == "a\n" and outputs[1][1]["data"]["text/plain"] == "42"
    assert outputs[2][0]["data"]["text/plain"] == "'new'"
    assert outputs[4][0]["ename"] == "ZeroDivisionError" and "ZeroDivisionError" in error
    assert outputs[5] == []


def test_papermill(gateway, tmp_path):
    """Parameters, and a figure in the notebook that it writes."""
    cells = [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "outputs": [],
              "execution_count": None, "id": "a", "source": "n = 1"},
             {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
              "id": "b", "source": "import matplotlib.pyplot as plt\nplt.plot([1, n])\nprint(n)"}]
    (tmp_path / "in.ipynb").write_text(json.dumps(
        {"cells": cells, "nbformat": 4, "nbformat_minor": 5,
         "metadata": {"kernelspec": {"name": "python3", "language": "python",
                                     "display_name": "Python"}}}))
    book = run(gateway, """
import json, sys, papermill
from jupyter_server.gateway.managers import GatewayKernelManager
book = papermill.execute_notebook(sys.argv[1], sys.argv[2], {"n": 5}, progress_bar=False,
                                  kernel_manager_class=GatewayKernelManager)
print(json.dumps(book))
""", str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb"))
    outputs = book["cells"][-1]["outputs"]
    assert [o["text"] for o in outputs if o["output_type"] == "stream"] == ["5\n"]
    assert any("image/png" in o.get("data", {}) for o in outputs)


def test_jupyter_client(gateway):
    """Its client: an interrupt and a restart between cells, and what an editor asks."""
    shown, names = run(gateway, """
import asyncio, json
from jupyter_server.gateway.managers import GatewayKernelManager

async def main():
    manager = GatewayKernelManager()
    await manager.start_kernel()
    client = manager.client()
    await client.start_channels()
    await client.wait_for_ready(timeout=60)
    shown = []

    async def cell(code, until=None, then=None):
        number = client.execute(code)
        state = None
        while state != "idle":
            message = await client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != number:
                continue
            content = message["content"]
            if message["msg_type"] == until:
                await then()
            state = content.get("execution_state")
            shown.append(content.get("ename") or content.get("data", {}).get("text/plain"))
    await cell("number = 41")
    await cell("print(1)\\nwhile True: pass", "stream", manager.interrupt_kernel)
    await cell("number + 1")
    asked = client.complete("numb")
    while True:
        message = await client.get_shell_msg(timeout=60)
        if message["parent_header"]["msg_id"] == asked:
            break
    await manager.restart_kernel()
    await cell("'number' in globals()")
    client.stop_channels()
    await manager.shutdown_kernel()
    print(json.dumps([[text for text in shown if text], message["content"]["matches"]]))
asyncio.run(main())
""")
    assert shown == ["KeyboardInterrupt", "42", "False"] and names == ["number"]


def test_files_are_those_of_jupyters_own_server(gateway):
    """The same models for the same files, and the same bytes of a notebook that is saved."""
    server = gateway[0]
    top = server.home / "notebooks"
    (top / "d").mkdir()
    for name, data in (("a.py", b"x = 1\n"), ("b.none", b"\0\xff"), ("c", "é".encode()),
                       ("d/e.md", b""), ("image.svg", b"<svg/>")):
        (top / name).write_bytes(data)
    book = {"metadata": {"kernelspec": {"name": "python3", "display_name": "P", "language": ""}},
            "nbformat": 4, "nbformat_minor": 5, "cells": [
                {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# é\n\n",
                 "attachments": {"i.png": {"image/png": "aGVq"}}},
                {"cell_type": "code", "id": "b", "metadata": {}, "source": "1 / 3", "outputs": [
                    {"output_type": "stream", "name": "stdout", "text": "a\nb"},
                    {"output_type": "execute_result", "execution_count": 1, "metadata": {},
                     "data": {"text/plain": "0.3333", "application/json": {"z": [1.0e-07, 1, None],
                                                                            "a": "x\ny"}}}],
                 "execution_count": 1}]}
    (top / "n.ipynb").write_text(json.dumps(book))
    paths = ["", "a.py", "b.none", "c", "d", "d/e.md", "image.svg", "n.ipynb"]
    theirs = run(gateway, """
import json, sys
from jupyter_server.services.contents.largefilemanager import LargeFileManager
manager = LargeFileManager(root_dir=sys.argv[1])
models = [manager.get(path, content=c) for path in json.loads(sys.argv[2]) for c in (True, False)]
manager.save({"type": "notebook", "content": manager.get("n.ipynb")["content"]}, "theirs.ipynb")
print(json.dumps(models, default=str))
""", str(top), json.dumps(paths))

    def plain(model):
        """Without times, marks of trust that a notebook's database gives, and orders."""
        kept = {key: value for key, value in model.items()
                if key not in ("created", "last_modified")}
        if model["type"] == "directory" and model["content"]:
            kept["content"] = sorted(map(plain, model["content"]), key=lambda entry: entry["name"])
        if model["type"] == "notebook" and model["content"]:
            for cell in model["content"]["cells"]:
                cell["metadata"].pop("trusted", None)
        if model["format"] == "base64":
            kept["content"] = model["content"].strip()
        return {**kept, "keys": sorted(model)}
    (top / "theirs.ipynb").rename(server.home / "theirs.ipynb")
    ours = [server.ask("GET", "/api/contents/%s?content=%d" % (path, content)).json
            for path in paths for content in (1, 0)]
    for mine, model in zip(ours, theirs):
        assert plain(mine) == plain(model)
    saved = server.ask("PUT", "/api/contents/ours.ipynb", {"type": "notebook", "content": book})
    assert saved.status == 201
    assert (top / "ours.ipynb").read_text() == (server.home / "theirs.ipynb").read_text()


# ---- JupyterLab ----

# A server extension that lets JupyterLab have its files from the gateway too.
CONTENTS = """
import os
from tornado import httpclient, web

class Contents(web.RequestHandler):
    async def forward(self):
        asked = self.request
        answer = await httpclient.AsyncHTTPClient().fetch(
            os.environ["JUPYTER_GATEWAY_URL"] + asked.uri, method=asked.method,
            headers={"Authorization": "token " + os.environ["JUPYTER_GATEWAY_AUTH_TOKEN"]},
            body=asked.body if asked.method in ("POST", "PUT", "PATCH") else None,
            raise_error=False)
        self.set_status(answer.code)
        self.set_header("Content-Type", "application/json")
        self.finish(answer.body)
    get = post = put = patch = delete = forward

def _load_jupyter_server_extension(app):
    app.web_app.add_handlers(".*", [("/api/contents.*", Contents)])
"""

CELLS = ["import matplotlib.pyplot as plt\nplt.plot([1, 4, 2])\nplt.title('a plot');",
         "import pandas\npandas.DataFrame({'column': ['value']})",
         "import time\nprint('begun')\nwhile True: time.sleep(1)", "'plt' in globals()"]

IDLE = """[...(window.jupyterapp?.shell.widgets('main') || [])].some(
    (widget) => widget.sessionContext?.session?.kernel?.status === 'idle')"""

# As the command to save does for the widget that has the focus.
SAVE = """(async () => {
    const book = [...window.jupyterapp.shell.widgets('main')].find((widget) => widget.context);
    await book.context.save();
    return (await book.context.createCheckpoint()).id;
})()"""


@pytest.fixture
def lab(keyed, tmp_path):
    """The address of a JupyterLab whose kernels and files are the gateway's."""
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
                   "id": "cell%d" % i, "source": source} for i, source in enumerate(CELLS)]}
    (tmp_path / "notebooks" / "book.ipynb").write_text(json.dumps(book))
    (tmp_path / "gateway_contents.py").write_text(CONTENTS)
    enabled = tmp_path / "config" / "jupyter_server_config.d" / "contents.json"
    enabled.parent.mkdir(parents=True)
    enabled.write_text('{"ServerApp": {"jpserver_extensions": {"gateway_contents": true}}}')
    (tmp_path / "empty").mkdir()
    log = tmp_path / "lab.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [LAB, "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0",
             "--expose-app-in-browser", "--IdentityProvider.token=",
             "--ServerApp.root_dir=" + str(tmp_path / "empty"), "--LabApp.news_url=None",
             "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"],
            env={**keyed[1], "PYTHONPATH": str(tmp_path)}, stderr=stderr,
            stdout=subprocess.DEVNULL)
    try:
        while not (address := re.search(r"http://127.0.0.1:\d+/", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield address[0]
    finally:
        process.terminate()
        process.wait(WAIT)


@needs_browser
def test_jupyterlab(keyed, lab, tmp_path):
    """A plot, a DataFrame, an interrupt, a restart and a saved file, in a real browser."""
    browser = Browser(tmp_path)
    try:
        browser.call("Page.navigate", url=lab + "lab/tree/book.ipynb?reset")
        browser.wait("document.querySelectorAll('.jp-CodeCell').length === 4")
        browser.wait(IDLE)

        def command(name, **arguments):
            browser.js("void window.jupyterapp.commands.execute(%s, %s)"
                       % (json.dumps(name), json.dumps(arguments)))

        def next_cell():
            command("notebook:run-cell-and-select-next")
        output = "document.querySelectorAll('.jp-CodeCell')[%d].querySelector('.jp-OutputArea %s')"
        next_cell()
        browser.wait("(%s || {}).naturalWidth > 100" % (output % (0, "img")))
        next_cell()
        browser.wait(output % (1, "iframe"))
        frame = browser.js("(%s).srcdoc" % (output % (1, "iframe")))
        assert "column" in frame and "value" in frame
        next_cell()
        browser.wait("(%s || {}).textContent" % (output % (2, "pre")))
        command("notebook:interrupt-kernel")
        browser.wait("document.querySelectorAll('.jp-CodeCell')[2].textContent"
                     ".includes('KeyboardInterrupt')")
        command("notebook:restart-kernel")
        browser.wait("document.querySelector('.jp-Dialog .jp-mod-warn')")
        browser.js("document.querySelector('.jp-Dialog .jp-mod-warn').click()")
        browser.wait("!document.querySelector('.jp-Dialog') && " + IDLE)
        next_cell()
        browser.wait("(%s || {}).textContent" % (output % (3, "pre")))
        assert browser.js("(%s).textContent.trim()" % (output % (3, "pre"))) == "False"
        assert browser.js(SAVE) == "checkpoint"
        files = tmp_path / "notebooks"
        for saved in ("book.ipynb", ".ipynb_checkpoints/book-checkpoint.ipynb"):
            assert "KeyboardInterrupt" in (files / saved).read_text()
        assert os.listdir(tmp_path / "empty") == []
        command("notebook:shutdown-kernel")
        key = "?token=" + keyed[1]["JUPYTER_GATEWAY_AUTH_TOKEN"]
        until(lambda: not keyed[0].ask("GET", "/api/kernels" + key).json)
    finally:
        browser.picture(os.path.join(str(tmp_path), "lab.png"))
        browser.close()
