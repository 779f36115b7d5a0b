"""Terminals over a WebSocket: what a program at one sees, and what the server does to clients that
break RFC 6455."""
import hashlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess

import pytest
from server_process import DROSTE, WAIT, Server, until
from test_operations import SecureServer, certificate, create
from websocket import BINARY, CLOSE, KEY, PING, PONG, TEXT, Client, frame


def open_terminal(server, sandbox, fields=None, connection=None):
    connection = connection or server.connect()
    return Client(connection, sandbox + "/terminal", "127.0.0.1:%d" % server.port, fields)


@pytest.fixture
def terminal(server, sandbox):
    client = open_terminal(server, sandbox)
    assert client.status == 101, client.head
    yield client
    client.close()


def begin(client, **more):
    client.say(columns=80, rows=24, **more)
    return client.message()["pid"]


# ---- what it is for ----

def test_a_shell_is_typed_to_and_resized(terminal):
    """A shell is the default; it sees the size and its change, and its end has a status."""
    begin(terminal)
    terminal.send(BINARY, b"stty size; echo fo''rty\r")
    assert b"24 80" in terminal.until(b"\nforty")
    terminal.say(columns=132, rows=50)
    terminal.send(BINARY, b"stty size; echo aga''in\r")
    assert b"50 132" in terminal.until(b"\nagain")
    terminal.send(BINARY, b"exit 3\r")
    assert terminal.message() == {"exit_code": 3}
    assert terminal.closing() == 1000


def test_the_handshake_is_that_of_the_standard(server, sandbox):
    client = open_terminal(server, sandbox, {"Sec-WebSocket-Protocol": "other, droste.terminal"})
    assert client.status == 101
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in client.head
    assert "Sec-WebSocket-Protocol: droste.terminal" in client.head
    client.close()
    client = open_terminal(server, sandbox)
    assert client.status == 101 and "Sec-WebSocket-Protocol" not in client.head
    client.close()


def test_a_command_goes_on_without_its_client_and_is_found_again(server, sandbox):
    """By its tag, with the new client's size; the first client left without a word."""
    first = open_terminal(server, sandbox)
    begin(first, command="cat", tag="mine")
    first.close()
    second = open_terminal(server, sandbox)
    second.say(columns=100, rows=30, attach="mine")
    assert second.message()["pid"] > 0
    second.send(BINARY, b"still here\r")
    second.until(b"still here\r\nstill here")
    second.send(BINARY, b"\x04")
    assert second.message() == {"exit_code": 0} and second.closing() == 1000
    second.close()


def test_much_output_waits_for_its_client_and_is_whole(terminal):
    """More than any buffer in between; nothing is lost, and nothing is out of order."""
    begin(terminal, command=["python3", "-c", "print('\\n'.join(map(str, range(300000))))"])
    message = terminal.message()
    assert message == {"exit_code": 0}
    assert terminal.output.split() == [b"%d" % i for i in range(300000)]


def test_much_input_arrives(terminal):
    """In messages of the largest size, in fragments, with a ping between them."""
    begin(terminal, command="stty raw -echo; echo ready; head -c 400000 | md5sum")
    terminal.until(b"ready")
    data = bytes(33 + i % 90 for i in range(400000))
    for at in range(0, 320000, 64000):
        terminal.send(BINARY, data[at:at + 64000])
    terminal.send(BINARY, data[320000:350000], end=False)
    terminal.send(PING, b"between")
    terminal.send(0, data[350000:370000], end=False)
    terminal.send(0, data[370000:380000])
    terminal.send(BINARY, data[380000:])
    while True:
        opcode, answer = terminal.receive()
        if opcode == PONG:
            break
        terminal.output += answer
    assert answer == b"between"
    terminal.until(hashlib.md5(data).hexdigest().encode())


def test_a_closing_client_is_answered(terminal):
    begin(terminal)
    terminal.send(CLOSE, b"\x03\xe8")
    assert terminal.closing() == 1000
    with pytest.raises(EOFError):
        terminal.bytes(1)


def test_the_end_of_the_sandbox_is_told(server):
    path = server.create()
    client = open_terminal(server, path)
    begin(client)
    assert server.ask("DELETE", path).status == 204
    assert client.closing() == 1011
    assert "error" in json.loads([data for opcode, data in client.heard if opcode == TEXT][-1])
    client.close()


def test_a_stopping_server_says_goodbye(start):
    """It does not wait for terminals: the client is told to look for another server."""
    server = start()
    client = open_terminal(server, server.create())
    begin(client)
    server.process.send_signal(signal.SIGTERM)
    assert client.closing() == 1001
    client.send(CLOSE, b"\x03\xe9")
    assert server.process.wait(WAIT) == 0
    client.close()


def test_it_goes_through_another_worker(tmp_path):
    """Four clients, two workers: whichever accepts the connection, the terminal works, and the end
    of the worker that has it ends the connection."""
    server = Server(tmp_path, workers="2")
    try:
        sandbox = server.create()
        clients = [open_terminal(server, sandbox) for _ in range(6)]
        for client in clients:
            assert client.status == 101, client.head
            begin(client, command="read line; echo got $line; seq 20000; read line")
            client.send(BINARY, b"words\r")
            client.until(b"\n20000")
            assert b"got words" in client.output
        figures = server.ask("GET", "/metrics").body.decode()
        assert "relayed" in figures
        server.ask("DELETE", sandbox)
        for client in clients:
            assert client.closing() == 1011
            client.close()
    finally:
        assert server.stop() == 0


# ---- what is refused ----

@pytest.mark.parametrize("fields, status", [
    ({}, 101),
    ({"Upgrade": None}, 426),
    ({"Upgrade": "h2c"}, 426),
    ({"Connection": "keep-alive"}, 426),
    ({"Sec-WebSocket-Version": "8"}, 426),
    ({"Sec-WebSocket-Version": None}, 426),
    ({"Sec-WebSocket-Key": None}, 400),
    ({"Sec-WebSocket-Key": KEY[:-1]}, 400),
    ({"Sec-WebSocket-Key": "!" + KEY[1:]}, 400),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://localhost:1"}, 403),
])
def test_a_wrong_handshake_is_refused(server, sandbox, fields, status):
    """Browsers let every page open WebSockets: the Origin must be the server's own."""
    client = open_terminal(server, sandbox, fields)
    assert client.status == status, client.head
    client.close()


def test_a_page_of_the_server_may(server, sandbox):
    client = open_terminal(server, sandbox, {"Origin": "http://127.0.0.1:%d" % server.port})
    assert client.status == 101
    client.close()


def test_an_unknown_sandbox_has_no_terminal(server):
    client = open_terminal(server, "/v1/sandboxes/" + "0" * 32)
    assert client.status == 404
    client.close()


@pytest.mark.parametrize("bytes_, status", [
    (frame(BINARY, b"x", mask=False), 1002),            # not masked
    (frame(BINARY, b"x", first=0xc2), 1002),            # a reserved bit
    (frame(BINARY, b"x", first=0x83), 1002),            # no kind of frame
    (frame(0, b"x"), 1002),                             # goes on with nothing
    (frame(PING, b"x", end=False), 1002),               # a part of a ping
    (frame(PING, b"x" * 126), 1002),                    # a large one
    (frame(BINARY, b"x" * 65537), 1009),
    (frame(BINARY, b"x" * 40000, end=False) + frame(0, b"x" * 40000), 1009),
    (frame(TEXT, b'{"columns": 80, "rows": 24, "tag": "\xff"}'), 1007),
    (frame(TEXT, b"{"), 1008),
    (frame(TEXT, b'{"columns": 0, "rows": 24}'), 1008),
    (frame(TEXT, b'{"columns": 80, "rows": 24, "more": 1}'), 1008),
    (frame(BINARY, b"typed before there is a terminal"), 1008),
    (frame(CLOSE, b"\x03"), 1002),
    (frame(CLOSE, b"\x03\xed"), 1002),                  # a status that is never sent
    (frame(CLOSE, b"\x03\xe8\xff"), 1002),              # no text
])
def test_what_is_forbidden_ends_it(server, terminal, bytes_, status):
    terminal.socket.sendall(bytes_)
    assert terminal.closing() == status
    assert server.ask("GET", "/health").status == 200


def test_a_command_that_is_not_there_is_told(terminal):
    terminal.say(columns=80, rows=24, attach="nothing")
    assert "error" in terminal.message() and terminal.closing() == 1011


def test_a_key_is_needed_and_goes_in_the_subprotocols(tmp_path):
    """Pages cannot set other fields. Another key finds no sandbox; one that reads may not."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_HOME": str(tmp_path / "data")}

    def new_key(name, *flags):
        return subprocess.run([DROSTE, "keys", "create", name, *flags], env=env, check=True,
                              capture_output=True, text=True).stdout.split()[0]
    mine, other, reader = new_key("mine"), new_key("other"), new_key("reader", "--scopes", "read")
    server = Server(tmp_path)
    try:
        answer = server.ask("POST", "/v1/sandboxes", {}, {"X-API-Key": mine})
        path = "/v1/sandboxes/" + answer.json["id"]

        def status(offered):
            fields = {"Sec-WebSocket-Protocol": offered,
                      "Origin": "http://127.0.0.1:%d" % server.port}
            client = open_terminal(server, path, fields)
            client.close()
            assert "e2b_" not in client.head
            return client.status
        assert status(None) == 401
        assert status("droste.terminal") == 401
        assert status("droste.terminal, droste.key." + "e2b_" + "0" * 40) == 401
        assert status("droste.terminal, droste.key." + other) == 404
        assert status("droste.terminal, droste.key." + reader) == 403
        assert status("droste.terminal, droste.key." + mine) == 101
        assert status("droste.key." + mine + ",droste.terminal") == 101
    finally:
        assert server.stop() == 0


def test_clients_that_vanish_leave_nothing(server, sandbox):
    """Twenty that begin and are cut off: the server has no more connections and descriptors than
    after the first, for which the sandbox prepared itself."""
    if os.environ.get("SERVE_WORKERS", "1") != "1":
        pytest.skip("the descriptors are those of the workers")

    def left(count, how):
        for _ in range(count):
            client = open_terminal(server, sandbox)
            begin(client, command="true" if how == "end" else "sleep 0.1")
            if how == "end":
                client.closing()
            if how == "reset":
                now = struct.pack("ii", 1, 0)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            client.close()
        until(lambda: "droste_connections 1\n" in server.ask("GET", "/metrics").body.decode())
        return len(os.listdir("/proc/%d/fd" % server.process.pid))
    before = left(1, "end")
    for how in ("end", "close", "reset"):
        until(lambda how=how: left(10, how) <= before + 1)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_over_the_servers_own_tls(tmp_path, workers):
    """Much output, much input and a polite end; afterwards no connection is left, also of clients
    that leave before or in their handshake."""
    paths, key = certificate(tmp_path, "one"), create(tmp_path, "k", "--scopes", "admin")
    server = SecureServer(tmp_path, "--tls-cert", paths[0], "--tls-key", paths[1], workers=workers)
    context, headers = ssl.create_default_context(cafile=paths[0]), {"X-API-Key": key}

    def figures():
        return server.ask_over_tls("/metrics", paths[0], headers)[1].decode()

    try:
        for use in (test_much_output_waits_for_its_client_and_is_whole, test_much_input_arrives,
                    test_a_closing_client_is_answered):
            _, body = server.ask_over_tls("/v1/sandboxes", paths[0], headers, "POST", "{}")
            connection = context.wrap_socket(server.connect(), server_hostname="127.0.0.1")
            client = open_terminal(server, "/v1/sandboxes/" + json.loads(body)["id"], headers,
                                   connection)
            assert client.status == 101
            use(client)
            client.close()
        for words in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            connection = server.connect()
            connection.sendall(words)
            connection.close()
        if workers == "1":      # others have connections between them
            until(lambda: "droste_connections 1\n" in figures())
    finally:
        assert server.stop() == 0
