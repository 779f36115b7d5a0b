"""The official Python SDK against `droste mcp`, in both revisions. It has an environment of its
own (scripts/setup mcp)."""
import json
import os
import subprocess

import pytest

from droste_cli import DROSTE, environment
from http_client import Server

PYTHON = os.path.join(os.path.dirname(DROSTE), "mcp", "bin", "python")
pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason="needs build/mcp")

CODE = """
import asyncio, json, sys
from mcp import Client, StdioServerParameters

async def main(droste, mode, data):
    server = droste if droste.startswith("http") else StdioServerParameters(
        command=droste, args=["mcp", data], env=ENV)
    async with Client(server, mode=mode) as client:
        out = {"version": client.session.protocol_version}
        out["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        notes = []
        async def progress(done, total, message):
            notes.append(message)
        cell = await client.call_tool("run_python", {"code": "print('hi')\\n6 * 7"},
                                      progress_callback=progress)
        out["cell"] = [cell.is_error, cell.structured_content["result"], cell.content[0].text]
        out["notes"] = "".join(notes)
        failed = await client.call_tool("run_python", {"code": "1 / 0"})
        out["failed"] = [failed.is_error, failed.content[0].text.splitlines()[-1]]
        loaded = await client.call_tool("load_context", {"path": data, "name": "doc"})
        out["loaded"] = loaded.structured_content["length"]
        out["prompts"] = [prompt.name for prompt in (await client.list_prompts()).prompts]
        print(json.dumps(out))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode, version", [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_the_official_sdk_uses_every_part(tmp_path, mode, version, transport):
    (tmp_path / "doc.txt").write_text("x" * 5000)
    server = Server(tmp_path, "--mcp-path", tmp_path) if transport == "http" else None
    env = environment(tmp_path)
    script = tmp_path / "client.py"
    script.write_text("ENV = %r\n%s" % (env, CODE))
    target = server.address + "/mcp" if server else DROSTE
    done = subprocess.run([PYTHON, script, target, mode, tmp_path / "doc.txt"], env=env, text=True,
                          capture_output=True, timeout=60)
    assert not server or server.stop() == 0
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["version"] == version
    assert "run_python" in out["tools"] and len(out["tools"]) == 10
    assert out["cell"] == [False, "42", "hi\n42"]
    assert out["notes"] == "hi\n"
    assert out["failed"] == [True, "ZeroDivisionError: division by zero"]
    assert out["loaded"] == 5000
    assert out["prompts"] == ["explore", "answer"]
