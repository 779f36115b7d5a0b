"""A rollout of verifiers whose model writes Python for a sandbox: `python verifiers_task.py`.

Needs no key: a server on this machine answers with recorded replies. With another `base_url` and
`api_key_var`, a model answers. verifiers loads a harness by the name of its module, here this one.
"""
import asyncio
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import verifiers.v1 as vf

from droste.integrations.verifiers import open_runtime, PythonHarness

__all__ = ["PythonHarness"]

CODE = "orders = [int(line) for line in open('orders.txt')]\nprint(sum(orders))"
CALL = {"id": "call_1", "type": "function",
        "function": {"name": "python", "arguments": json.dumps({"code": CODE})}}


class Recorded(BaseHTTPRequestHandler):
    """Calls `python` first, and then repeats what it printed."""

    def said_to(self, messages):
        if messages[-1]["role"] == "tool":
            return {"content": "The total is " + messages[-1]["content"].strip()}
        return {"content": None, "tool_calls": [CALL]}

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = self.said_to(asked["messages"])
        body = json.dumps({
            "id": "recorded", "object": "chat.completion", "created": 0, "model": asked["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", **said},
                         "finish_reason": "tool_calls" if "tool_calls" in said else "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Total(vf.Task):
    """Its file, its program and its reward are in the box of the run."""

    async def setup(self, trace, runtime):
        await runtime.write("orders.txt", b"100\n101\n102\n")

    @vf.reward
    async def correct(self, trace, runtime):
        total = await runtime.run(["awk", "{ sum += $1 } END { print sum }", "orders.txt"], {})
        return float(total.stdout.strip() in trace.last_reply)


def config_of(port, **changes):
    """`runtime` only keeps verifiers from asking for the account of its default."""
    client = {"type": "eval", "base_url": "http://127.0.0.1:%d/v1" % port,
              "api_key_var": "RECORDED_KEY"}
    return vf.AgentConfig(**{"model": "recorded", "harness": {"id": "verifiers_task"},
                             "runtime": {"type": "subprocess"}, "client": client, **changes})


async def main(port):
    async with vf.Agent(config_of(port)) as agent, open_runtime(memory="1G") as box:
        task = Total(vf.TaskData(prompt="What is the total of orders.txt?"))
        trace = await agent.run(task, runtime=box)
    print(trace.last_reply, trace.reward, trace.errors)


if __name__ == "__main__":
    os.environ["RECORDED_KEY"] = "none"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asyncio.run(main(server.server_port))
    server.shutdown()
