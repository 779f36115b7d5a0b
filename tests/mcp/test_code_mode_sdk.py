"""Servers of the official SDKs as modules of the sandbox (code mode), over both transports and in
both revisions. They have environments of their own (scripts/setup mcp)."""
import json
import os
import shutil
import subprocess
import textwrap

import pytest

from droste_cli import DROSTE, droste, environment

BUILD = os.path.dirname(DROSTE)
PYTHON = os.path.join(BUILD, "mcp", "bin", "python")
NODE = os.path.join(BUILD, "mcp-javascript")

PYTHON_SERVER = '''
import base64, json, socket, sys
from typing import Literal
from pydantic import BaseModel
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("demo")

class Hit(BaseModel):
    id: int
    tags: list[str] = []

@server.tool()
def search(query: str, order: Literal["new", "old"] = "new", limit: int | None = None) -> list[Hit]:
    """Finds things."""
    return [Hit(id=i, tags=[query, order]) for i in range(limit or 1)]

@server.tool()
def add(a: int, b: int = 1) -> int:
    return a + b

@server.tool()
def picture() -> Image:
    return Image(data=b"\\x89PNG", format="png")

@server.tool()
def fails() -> str:
    raise ToolError("no such row")

@server.tool()
async def slow(context: Context) -> str:
    import anyio
    await context.report_progress(1, 2, "half")
    await anyio.sleep_forever()

if sys.argv[1] == "stdio":
    server.run(transport="stdio")
else:
    import uvicorn
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = server.streamable_http_app(**json.loads(sys.argv[1]))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
'''
CELL = """
import inspect, json
def attempt(function):
    try: return function()
    except Exception as e: return "%s: %s" % (type(e).__name__, e)
print(json.dumps({
    "signature": str(inspect.signature(demo.search)), "doc": demo.search.__doc__,
    "search": demo.search("x", limit=2), "sum": sum(demo.add(i) for i in range(100)),
    "picture": [demo.picture().decode("latin-1"), demo.picture().type],
    "fails": attempt(demo.fails)}))
"""
SLOW = """
try: print(demo.slow())
except TimeoutError as e: print(e)
while True:
    try: print(demo.add(a=1, b=2)); break
    except TimeoutError: pass    # the limit holds here, too
"""
EXPECTED = {
    "signature": "(query: str, order: Literal['new', 'old'] = 'new', limit: int | None = None) -> "
                 "list[{'id': int, 'tags': list[str]}]",
    "doc": "Finds things.", "sum": 5050,
    "search": [{"id": 0, "tags": ["x", "new"]}, {"id": 1, "tags": ["x", "new"]}],
    "picture": ["\x89PNG", "image/png"]}


def check(home, target):
    server = ["--mcp-server", "demo=" + target]
    done = droste(home, "exec", *server, "-c", CELL)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    failure = result.pop("fails")
    assert failure.startswith("ToolError: ") and "no such row" in failure
    assert result == EXPECTED
    done = droste(home, "exec", "--tool-timeout", "0.5", *server, "-c", SLOW)
    assert done.stdout.startswith("no answer within 0.5 s"), done.stderr
    assert done.stdout.endswith("\n3\n")


@pytest.mark.skipif(not os.path.exists(PYTHON), reason="needs build/mcp")
class TestPython:
    def test_over_standard_streams(self, tmp_path):
        (tmp_path / "server.py").write_text(PYTHON_SERVER)
        check(tmp_path, "%s %s stdio" % (PYTHON, tmp_path / "server.py"))

    @pytest.mark.parametrize("options", [{}, {"json_response": True}, {"stateless_http": True}])
    def test_over_http(self, tmp_path, options):
        """Answers as event streams and as JSON, with sessions and without."""
        (tmp_path / "server.py").write_text(PYTHON_SERVER)
        with subprocess.Popen([PYTHON, tmp_path / "server.py", json.dumps(options)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=environment(tmp_path)) as server:
            try:
                check(tmp_path, "http://127.0.0.1:%d/mcp" % int(server.stdout.readline()))
            finally:
                server.kill()


NODE_SERVER = '''
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";
const server = new McpServer({ name: "demo", version: "1" });
server.registerTool("add-numbers", { description: "Adds.", inputSchema: { a: z.number().int(),
  kind: z.enum(["x", "y"]).optional() }, outputSchema: { sum: z.number() } },
  async ({ a, kind }) => ({ content: [{ type: "text", text: kind ?? "" }],
                            structuredContent: { sum: a + 1 } }));
await server.connect(new StdioServerTransport());
'''


@pytest.mark.skipif(not os.path.isdir(NODE) or not shutil.which("node"),
                    reason="needs build/mcp-javascript")
def test_the_server_of_the_javascript_sdk(tmp_path):
    (tmp_path / "server.mjs").write_text(NODE_SERVER)
    (tmp_path / "node_modules").symlink_to(os.path.join(NODE, "node_modules"))
    done = droste(tmp_path, "exec", "--mcp-server", "js=node %s" % (tmp_path / "server.mjs"), "-c",
                  textwrap.dedent("""
        import inspect
        print(inspect.signature(js.add_numbers), js.add_numbers(4, kind="y"))"""))
    assert done.stdout == ("(a: int, kind: Literal['x', 'y'] = ...) -> {'sum': float} {'sum': 5}\n"
                           ), done.stderr
