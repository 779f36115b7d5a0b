"""A client of `/mcp` that sends what it is told, and a server for it."""
import http.client
import json
import signal
import subprocess

from droste_cli import DROSTE, PATIENCE, environment
from mcp_client import STATELESS

BOTH = "application/json, text/event-stream"


class Server:
    def __init__(self, home, *words, program=None, **env):
        self.process = subprocess.Popen(
            program or [DROSTE, "serve", "--listen", "127.0.0.1:0", *map(str, words)],
            stdout=subprocess.PIPE, text=True, env=environment(home, **env), cwd=home)
        self.address = self.process.stdout.readline().strip()
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of one request."""
        connection = self.connection()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def sandboxes(self, **headers):
        return json.loads(self.ask("GET", "/v1/sandboxes", headers=headers)[2])["sandboxes"]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.status, self.headers = response.status, response.headers
        self.last = None
        self.is_sse = response.headers.get("Content-Type") == "text/event-stream"

    def messages(self):
        if not self.is_sse:
            body = self.response.read()
            if body:
                yield json.loads(body)
            return
        data = ""
        for line in self.response:
            line = line.decode().rstrip("\n")
            if line.startswith("id: "):
                self.last = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and data:
                yield json.loads(data)
                data = ""

    def prime(self):
        """Reads the first event's id."""
        while self.last is None:
            line = self.response.readline().decode()
            assert line
            if line.startswith("id: "):
                self.last = line[4:].strip()
        while self.response.readline() != b"\n":
            pass

    def cut(self):
        self.response.close()   # which has the socket
        self.connection.close()


class HttpClient:
    """Of a server: a session, or with `stateless` requests of 2026-07-28."""

    def __init__(self, server, stateless=False, key=None, can=None, version="2025-11-25"):
        self.server, self.stateless, self.can = server, stateless, can or {}
        self.headers = {"Content-Type": "application/json", "Accept": BOTH}
        if key:
            self.headers["Authorization"] = "Bearer " + key
        self.number, self.session, self.asked, self.notes = 0, None, [], []
        self.answer = {}    # by method: what the client says to questions
        if not stateless:
            stream = self.open("initialize", protocolVersion=version, capabilities=self.can,
                               clientInfo={"name": "test", "version": "1"})
            self.handshake = next(stream.messages())
            stream.connection.close()
            self.session = stream.headers["Mcp-Session-Id"]
            self.headers.update({"Mcp-Session-Id": self.session, "MCP-Protocol-Version": version})
            assert self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})[0] == 202

    def send(self, message, **headers):
        """Status, headers and body of a message as it is."""
        body = message if isinstance(message, bytes) else json.dumps(message)
        return self.server.ask("POST", "/mcp", body, {**self.headers, **headers})

    def open(self, method, **params):
        """Sends a request; its answer as a stream."""
        headers = dict(self.headers)
        self.number += 1
        if self.stateless:
            params["_meta"] = {**STATELESS, **params.get("_meta", {}),
                               "io.modelcontextprotocol/clientCapabilities": self.can}
            headers.update({"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method})
            name = params.get("name", params.get("uri"))
            if name:
                headers["Mcp-Name"] = name
        connection = self.server.connection()
        connection.request("POST", "/mcp", json.dumps(
            {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}), headers)
        return Stream(connection, connection.getresponse())

    def listen(self, last=None):
        connection = self.server.connection()
        headers = {**self.headers, "Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        connection.request("GET", "/mcp", None, headers)
        return Stream(connection, connection.getresponse())

    def request(self, method, **params):
        """The answer to a request; questions are answered with self.answer."""
        stream = self.open(method, **params)
        try:
            for message in stream.messages():
                if "method" in message and "id" in message:
                    self.asked.append(message)
                    reply = {"jsonrpc": "2.0", "id": message["id"],
                             "result": self.answer[message["method"]]}
                    assert self.send(reply)[0] == 202
                elif "method" in message:
                    self.notes.append(message)
                else:
                    break
        finally:
            stream.connection.close()
        result = message.get("result", {})
        if result.get("resultType") != "input_required":
            return message
        self.asked += result["inputRequests"].values()
        params["inputResponses"] = {key: self.answer[one["method"]]
                                    for key, one in result["inputRequests"].items()}
        params["requestState"] = result["requestState"]
        return self.request(method, **params)

    def tool(self, tool, **arguments):
        message = self.request("tools/call", name=tool, arguments=arguments)
        assert not message["result"].get("isError"), message
        return message["result"]["structuredContent"]

    def failure(self, tool, **arguments):
        message = self.request("tools/call", name=tool, arguments=arguments)
        assert message["result"].get("isError"), message
        return message["result"]["content"][0]["text"]

    def python(self, code, **more):
        return self.tool("run_python", code=code, **more)["result"]

    def end(self):
        return self.server.ask("DELETE", "/mcp", headers=self.headers)[0]
