"""Servers that programs of a sandbox run, reached through this one over HTTP and WebSocket."""
import os
import socket
import sys

import pytest

from client import (  # noqa: F401: fixtures
    client, Client, CONNECT, envelope, error, sandbox)
from server_process import ROOT, WAIT

sys.path.append(os.path.join(ROOT, "tests", "serve"))

import websocket  # noqa: E402

# It says "ready"; its answers are what the test has put in the path, or what it has received.
SERVER = r"""
import base64, hashlib, socket, sys, threading, urllib.parse
def serve(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    path = head.split()[1].decode()
    if path == "/echo":
        length = int(fields.get("Content-Length", 0))
        while len(body) < length:
            body += connection.recv(65536)
        if "Transfer-Encoding" in fields:
            while not body.endswith(b"0\r\n\r\n"):
                body += connection.recv(65536)
        text = head + b"\n" + str(len(body)).encode()
        connection.sendall(b"HTTP/1.1 201 Made\r\nX-Own: 1\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(text), text))
    elif path == "/endless":
        connection.sendall(b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
        except OSError:
            print("left", flush=True)
    elif path == "/socket":
        key = (fields["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
        accept = base64.b64encode(hashlib.sha1(key).digest()).decode()
        connection.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n"
                            % accept).encode())
        while data := connection.recv(65536):   # a short frame of a client's, without its mask
            mask, text = data[2:6], data[6:]
            plain = bytes(b ^ mask[i % 4] for i, b in enumerate(text))
            connection.sendall(bytes([data[0], len(plain)]) + plain)
    else:
        connection.sendall(urllib.parse.unquote(path[1:]).encode())
    connection.close()
ports = [socket.create_server(("127.0.0.1", 8001)),
         socket.create_server(("::1", 8002), family=socket.AF_INET6)]
print("ready", flush=True)
def accept(server):
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
threading.Thread(target=accept, args=(ports[1],), daemon=True).start()
accept(ports[0])
"""


@pytest.fixture(scope="module")
def served(client):
    """A sandbox with the server, and the stream of its output."""
    import http.client
    own = client.create(network={"maskRequestHost": "masked.example:${PORT}"})
    stream = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=WAIT)
    stream.request("POST", "/process.Process/Start", envelope(
        {"process": {"cmd": "python3", "args": ["-c", SERVER]}}), {
            **CONNECT, "E2b-Sandbox-Id": own["sandboxID"], "E2b-Sandbox-Port": "49983",
            "X-Access-Token": own["envdAccessToken"]})
    answer = stream.getresponse()
    read_until(answer, b'"cmVhZHkK"')
    yield own, answer
    client.control("DELETE", "/sandboxes/" + own["sandboxID"])
    stream.close()


def read_until(answer, text):
    seen = b""
    while text not in seen:
        piece = answer.read1(65536)
        assert piece, seen
        seen += piece


def quoted(text):
    from urllib.parse import quote
    return "/" + quote(text, safe="")


def test_requests_reach_the_server_of_a_port(client, served):
    """By the two headers, and by Host; without the tokens, and with the Host that was asked for."""
    own = served[0]
    for body, chunks in ((b"", False), (b"x" * 3000000, False), ([b"y" * 70000, b"z"], True)):
        answer = client.data(own, 8001, "POST", "/echo", iter(body) if chunks else body,
                             Authorization="Bearer theirs", **{"X-API-Key": "e2b_0"})
        head, _, size = answer.body.decode().rpartition("\n")
        assert (answer.status, answer.headers["X-Own"]) == (201, "1")
        assert int(size) == len(body) if not chunks else int(size) > 70001
        assert "Host: masked.example:8001\r\n" in head and "Authorization: Bearer theirs" in head
        for name in ("token", "e2b", "api-key", "x-droste"):
            assert name not in head.lower().replace("bearer theirs", "")
    host = "8002-%s.example.com" % own["sandboxID"]     # which listens at ::1 only
    assert client.server.ask("GET", "/echo", None, {"Host": host}).status == 201


@pytest.mark.parametrize("text,status,body", [
    ("HTTP/1.0 200 OK\r\n\r\nto the end", 200, b"to the end"),
    ("HTTP/1.1 203 X\r\nContent-Length: 2\r\n\r\nabcd", 203, b"ab"),
    ("HTTP/1.1 100 Go on\r\nX: y\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\nz", 500, b"z"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: v\r\n\r\n", 200,
     b"ab"), ("HTTP/1.1 204 None\r\n\r\n", 204, b"")])
def test_answers_are_passed_on(client, served, text, status, body):
    answer = client.data(served[0], 8001, "GET", quoted(text))
    assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize("text", [
    "", "HTTP/1.1 200", "nonsense\r\n\r\n", "HTTP/1.1 999 X\r\n\r\n", "HTTP/2 200 OK\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nrest",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"])
def test_answers_that_are_none_are_not_passed_on(client, served, text):
    answer = client.data(served[0], 8001, "GET", quoted(text))
    assert error(answer) == (502, "The sandbox is running but port is not open")


def test_a_client_that_leaves_ends_the_connection(client, served):
    """Of an answer without an end, which the server holds a bounded part of meanwhile."""
    own, output = served
    with client.server.connect() as connection:
        connection.sendall(("GET /endless HTTP/1.1\r\nHost: 8001-%s.example.com\r\n\r\n"
                            % own["sandboxID"]).encode())
        assert connection.recv(12) == b"HTTP/1.1 404"
    read_until(output, b'"bGVmdAo="')


def test_websockets_reach_it(client, served):
    host = "8001-%s.localhost:%d" % (served[0]["sandboxID"], client.server.port)
    with client.server.connect() as connection:
        socket_ = websocket.Client(connection, "/socket", host)
        assert socket_.status == 101
        for text in (b"one", b"two"):
            socket_.send(websocket.TEXT, text)
            assert socket_.bytes(2 + len(text)) == bytes([0x81, len(text)]) + text
    with client.server.connect() as connection:
        page = websocket.Client(connection, "/socket", host, {"Origin": "http://example.com"})
        assert page.status == 403


def test_nothing_else_is_reached(client, sandbox, served):
    """Neither a port without a server, nor one of this machine, nor one of another sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as here:
        for own, port in ((served[0], 9), (sandbox, 8001),
                          (sandbox, here.getsockname()[1])):
            answer = client.data(own, port, "GET", "/v2/sandboxes")
            assert error(answer) == (502, "The sandbox is running but port is not open")
            assert answer.json["port"] == port


def test_a_port_of_a_closed_sandbox_is_gone(client):
    own = client.create()
    client.control("DELETE", "/sandboxes/" + own["sandboxID"])
    assert error(client.data(own, 8001, "GET", "/")) == (502, "The sandbox was not found")


def test_a_host_is_text(client):
    for mask in ("a b", "a\r\nX: y", "é"):
        answer = client.control("POST", "/v2/sandboxes", {
            "templateID": "base", "network": {"maskRequestHost": mask}})
        assert error(answer)[0] == 400
