"""A client of `droste mcp` that sends what it is told, also what no real client would."""
import json
import subprocess
import threading
import queue

from droste_cli import DROSTE, PATIENCE, environment

STATELESS = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
             "io.modelcontextprotocol/clientCapabilities": {}}


class Client:
    def __init__(self, home, words, **env):
        self.process = subprocess.Popen([DROSTE, "mcp", *map(str, words)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home,
                                        env=environment(home, **env))
        self.messages = queue.Queue()
        self.seen = []      # messages that were not the answer for which a test waited
        self.number = 0
        self.can = {}
        self.asked = []     # questions of the server
        self.answer = {}    # by method: the results, which the test may change
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.messages.put(json.loads(line))
        self.messages.put(None)

    def send_bytes(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def receive(self):
        """The next message; None at the end of the output."""
        return self.messages.get(timeout=PATIENCE)

    def start(self, method, **params):
        """Sends a request; returns its id."""
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def wait(self, number):
        """The answer to a request."""
        for message in self.seen:
            if message.get("id") == number:
                self.seen.remove(message)
                return message
        while True:
            message = self.receive()
            assert message is not None, self.process.stderr.read()
            if "method" in message and "id" in message:
                self.asked.append(message)
                self.send({"jsonrpc": "2.0", "id": message["id"],
                           "result": self.answer[message["method"]]})
                continue
            if message.get("id") == number and "method" not in message:
                return message
            self.seen.append(message)

    def request(self, method, **params):
        message = self.wait(self.start(method, **params))
        result = message.get("result", {})
        if result.get("resultType") != "input_required":
            return message
        self.asked += result["inputRequests"].values()
        return self.request(method, **{**params, "requestState": result["requestState"],
                                       "inputResponses": {
            key: self.answer[one["method"]] for key, one in result["inputRequests"].items()}})

    def result(self, method, **params):
        answer = self.request(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method, **params):
        answer = self.request(method, **params)
        assert "error" in answer, answer
        return answer["error"]

    def notify(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def initialize(self, version="2025-11-25"):
        result = self.result("initialize", protocolVersion=version, capabilities=self.can,
                             clientInfo={"name": "test", "version": "1"})
        self.notify("notifications/initialized")
        return result

    stateless = False

    def meta(self):
        """For requests of 2026-07-28."""
        return {"_meta": {**STATELESS, "io.modelcontextprotocol/clientCapabilities": self.can}} \
            if self.stateless else {}

    def tool(self, tool, **arguments):
        """The structured content of a tool that succeeded."""
        result = self.result("tools/call", name=tool, arguments=arguments, **self.meta())
        assert not result.get("isError"), result
        return result["structuredContent"]

    def failure(self, tool, **arguments):
        """The text of a tool that failed."""
        result = self.result("tools/call", name=tool, arguments=arguments, **self.meta())
        assert result.get("isError"), result
        return result["content"][0]["text"]

    def python(self, code, **more):
        return self.tool("run_python", code=code, **more)["result"]

    def end(self):
        """Closes its input; returns the exit status."""
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            return self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.stderr.close()
