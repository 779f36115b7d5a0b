"""Requests that RFC 9112 forbids, that two readers could read differently, or that never end."""
import concurrent.futures
import contextlib
import json
import re
import resource

import pytest

from server_process import until

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/sandboxes HTTP/1.1\r\n" + HOST
GET = b"GET /health HTTP/1.1\r\n" + HOST
# What a reader that frames the body differently would take for a second request.
SECOND = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def everything(server, data):
    """What the server answers to these bytes until it closes the connection, or is silent after
    its first answer."""
    with server.connect() as s:
        got = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            s.sendall(data)     # the server may refuse it before it has all
        with contextlib.suppress(ConnectionResetError):
            while piece := s.recv(65536):
                got += piece
        return got


REFUSED = {
    "length and chunks": POST + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "equal lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": POST + b"Content-Length: -2\r\n\r\n{}",
    "a hexadecimal length": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "an unknown encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two encodings": POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an encoding with a control character":
        POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n",
    "a folded line": GET + b"X: a\r\n b\r\n\r\n",
    "a folded encoding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded first field": b"GET /health HTTP/1.1\r\n X: a\r\n" + HOST + b"\r\n",
    "a folded last field": GET + b"X: a\r\n\tb\r\n\r\n",
    "bare line feeds": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "one bare line feed": GET + b"X: a\nY: b\r\n\r\n",
    "a bare line feed at the end": GET + b"X: a\n\r\n",
    "a bare carriage return": GET + b"X: a\rY: b\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "a tab before the colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "an empty name": GET + b": x\r\n\r\n",
    "a name that is not a token": GET + b"X(y): x\r\n\r\n",
    "no colon": GET + b"Xabc\r\n\r\n",
    "a NUL in a value": GET + b"X: a\0b\r\nY: b\r\n\r\n",
    "a NUL in the last value": GET + b"X: a\0b\r\n\r\n",
    "a NUL in a name": GET + b"X\0: a\r\n\r\n",
    "a NUL in the target": b"GET /health\0b HTTP/1.1\r\n" + HOST + b"\r\n",
    "an encoded NUL in the target": b"GET /health%00b HTTP/1.1\r\n" + HOST + b"\r\n",
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": GET + b"Host: localhost\r\n\r\n",
    "an absolute target": b"GET http://localhost/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /health#a HTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces": b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "an unknown version": b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n",
    "a long field": GET + b"X: " + b"a" * 70000 + b"\r\n\r\n",
    "many fields": GET + b"X: a\r\n" * 5000 + b"\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_is_refused(server, name):
    """With an error and the end of the connection, so that nothing behind it is a request; no
    sandbox comes of it."""
    before = server.ask("GET", "/v1/sandboxes").json
    got = everything(server, REFUSED[name] + SECOND)
    assert b"HTTP/1.1 2" not in got and b"openapi" not in got.replace(b"GET /openapi.json", b"")
    assert got == b"" or got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), got
    assert got.count(b"HTTP/1.1 ") <= 2   # libmicrohttpd repeats some of its own
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == before["sandboxes"]


@pytest.mark.parametrize("data", [
    GET + b"\r\n",
    GET + b"X:\r\nY:a\r\n\r\n",
    GET + b"X: \ta \t\r\n\r\n",
    b"\r\n" + GET + b"\r\n",
    GET + b"X-%s: \xc3\xa4\r\n\r\n" % (b"n" * 1000),
])
def test_what_is_unusual_but_allowed_is_answered(server, data):
    """Fields without spaces, empty ones, white space around values, bytes above ASCII."""
    got = everything(server, data.replace(HOST, HOST + b"Connection: close\r\n"))
    assert got.startswith(b"HTTP/1.1 200 ") and b'"ok"' in got


def test_a_connection_carries_several_requests(server):
    """Also when they were sent without waiting for answers."""
    got = everything(server, GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("end", [b"X: a\n:\r\n", b"X: a\r\n:\n", b"X: a\n:\n\0\n", b"\0\n\0\n"])
def test_nothing_behind_a_head_that_the_library_cut_is_a_request(server, end):
    """A proxy reads such lines as fields, and what follows as part of the head; libmicrohttpd ends
    the head there."""
    got = everything(server, GET + end + SECOND)
    assert got.count(b"HTTP/1.1 ") <= 1 and b"openapi" not in got
    assert b" 200 " not in got or b"Connection: close" in got


def test_a_head_in_pieces_is_answered_and_the_last(server):
    """Only a head that came whole could be looked at; one that looked whole before counts not."""
    with server.connect() as s:
        s.sendall(GET + b"X: aa\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 200 ")   # the connection is kept
        s.sendall(GET)
        # The server has read the piece when it has answered another client.
        assert server.ask("GET", "/health").status == 200
        s.sendall(b"X: a\n:\r\n" + SECOND)
        got = b""
        while piece := s.recv(65536):
            got += piece
    assert got.count(b"HTTP/1.1 ") <= 1 and b"openapi" not in got


def test_nothing_behind_a_chunked_body_is_a_request(server):
    """libmicrohttpd accepts line ends there that a proxy may read differently; the body itself
    is used."""
    sent = POST + CHUNKED + b"\r\n2\r\n{]\r\n0\r\n\r\n" + SECOND
    got = everything(server, sent)
    assert got.startswith(b"HTTP/1.1 400 ") and got.count(b"HTTP/1.1 ") == 1 and b"JSON" in got


@pytest.mark.parametrize("chunk", [b"0x2\r\n{}\r\n", b"+2\r\n{}\r\n", b" 2\r\n{}\r\n",
                                   b"1000000000000000002\r\n{}\r\n", b"2\r\n{}XX"])
def test_malformed_chunks_are_refused(server, chunk):
    """No sandbox comes of them."""
    got = everything(server, POST + CHUNKED + b"\r\n" + chunk + b"0\r\n\r\n")
    assert got == b"" or got.startswith(b"HTTP/1.1 4"), got


@pytest.mark.parametrize("headers, status", [
    ({"Host": "evil.example"}, 403),
    ({"Host": "localhost.evil.example"}, 403),
    ({"Host": "127.0.0.1:1@evil.example"}, 403),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "LOCALHOST:99"}, 200),
    ({"Host": "[::1]"}, 200),
    ({"Origin": "http://localhost:3000"}, 403),
    ({"Host": "localhost:3000", "Origin": "http://localhost:3000"}, 200),
])
def test_pages_of_other_sites_are_refused(server, headers, status):
    """By Host (a name that they make point to this machine) and by Origin."""
    answer = server.ask("GET", "/health", headers=headers)
    assert answer.status == status
    assert status == 200 or answer.code == "forbidden"


def healthy(server):
    """Whether the server answers. It cuts also a client that comes to send its head too late."""
    with contextlib.suppress(ConnectionError):
        return server.ask("GET", "/health").status == 200


def test_a_head_that_never_ends_is_cut(start):
    """Even if a byte comes now and then; a whole one is answered meanwhile."""
    server = start("--request-timeout", "1")
    with server.connect() as slow:
        slow.settimeout(0.2)
        slow.sendall(GET)
        ended = False
        for _ in range(300):
            try:
                slow.sendall(b"X: a\r\n")
                ended = slow.recv(1000) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended
    until(lambda: healthy(server))


def test_connections_are_bounded(start):
    """Those beyond the limit are not served until one of the others ends."""
    server = start("--max-connections", "8", "--request-timeout", "600")
    kept = []
    for _ in range(8):
        kept.append(server.connect())
        kept[-1].sendall(GET + b"\r\n")
        assert kept[-1].recv(1000).startswith(b"HTTP/1.1 200 ")
    with server.connect() as more:
        more.settimeout(1)
        try:
            more.sendall(GET + b"\r\n")
            assert more.recv(1000) == b""
        except OSError:
            pass   # reset, or not accepted
    for one in kept:
        one.close()
    with server.connect() as again:
        again.sendall(GET + b"\r\n")
        assert again.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_large_bodies_are_refused(server):
    """Announced ones before any of it is read. One below the limit is read."""
    head = POST + b"Content-Length: 9000000\r\n\r\n"
    assert everything(server, head).startswith(b"HTTP/1.1 413 ")
    chunk = b"100000\r\n%s\r\n" % (b" " * 0x100000)
    sent = everything(server, POST + CHUNKED + b"\r\n" + chunk * 9)
    assert b"HTTP/1.1 2" not in sent
    assert server.ask("POST", "/v1/sandboxes", b" " * 7000000 + b"[]").code == "schema"


def test_a_flood_of_cells_is_refused_in_bounded_memory(start):
    """A sandbox executes one; of the others' bodies the server holds 128 MiB in all. The cell that
    runs, and the next one, are not disturbed."""
    server = start("--workers", "1")
    path, body = server.create(), json.dumps({"code": "#" + "x" * (7 << 20)})
    waits = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\n'went'"
    with concurrent.futures.ThreadPoolExecutor(49) as pool:
        running = pool.submit(server.execute, path, waits)
        until(lambda: server.ask("GET", path).json["state"] == "executing")
        refused = [pool.submit(server.ask, "POST", path + "/execute", body) for _ in range(48)]
        concurrent.futures.wait(refused)
        assert server.ask("PUT", path + "/files?path=/tmp/go", b"").status == 204
        assert running.result()["echo"] == "'went'"
    assert {one.result().status for one in refused} <= {409, 503}
    assert server.execute(path, "6 * 7")["echo"] == "42"
    with open("/proc/%d/status" % server.process.pid) as status:
        peak = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) >> 10
    assert peak < 450, peak


def test_many_clients_that_send_nothing_do_not_keep_others_out(start):
    """Of connections that never send a head, each ends in time; others are answered meanwhile."""
    server = start("--request-timeout", "1", "--max-connections", "600")
    silent = [server.connect() for _ in range(500)]
    for _ in range(20):
        until(lambda: healthy(server))
    for one in silent:
        assert one.recv(100) == b""
        one.close()
    until(lambda: healthy(server))


def test_four_thousand_connections(start):
    """With heads that are not complete, beside requests that are answered; then each is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 9000:
        pytest.skip("this user may not open 9,000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        server = start("--max-connections", "5000", "--request-timeout", "600")
        waiting = [server.connect() for _ in range(4000)]
        for one in waiting:
            one.sendall(GET)
        for _ in range(20):
            assert server.ask("GET", "/health").status == 200
        for one in waiting:
            one.sendall(b"Connection: close\r\n\r\n")
        for one in waiting:
            assert one.recv(13) == b"HTTP/1.1 200 "
            one.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
