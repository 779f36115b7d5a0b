"""Templates over the native interface: sandboxes that start with everything in place."""
import pytest

from server_process import Server, until
from test_keys import Client, create


@pytest.fixture(scope="module", params=["1", "3"], ids=["one", "three"])
def server(request, tmp_path_factory):
    """With one worker, and with three: a template is seldom that of the worker which is asked."""
    started = Server(tmp_path_factory.mktemp("serve"), workers=request.param)
    yield started
    assert started.ask("GET", "/v1/sandboxes").json["sandboxes"] == []
    assert started.stop() == 0


def start(server, template, **body):
    answer = server.ask("POST", template + "/sandboxes", body)
    assert answer.status == 201, answer.body
    return "/v1/sandboxes/" + answer.json["id"]


def submitted(server, sandbox, code):
    return server.execute(sandbox, code)["submit"]


def test_a_template_of_cells(server):
    """Its cells have run once; each sandbox has what they left, and none sees another's."""
    made = server.ask("POST", "/v1/templates", {
        "name": "rows", "options": {"memory": "512M"},
        "cells": ["import os\nrows = list(range(1000))", "first = os.urandom(8).hex()"]})
    assert made.status == 201, made.body
    path = "/v1/templates/" + made.json["id"]
    assert (made.json["name"], made.headers["Location"]) == ("rows", path)
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []
    assert server.ask("GET", path).json == made.json
    assert server.ask("GET", "/v1/templates").json["templates"] == [made.json]
    one, other = (start(server, path, metadata={"n": str(i)}) for i in range(2))
    code = "SUBMIT(n=len(rows), first=first)"
    assert submitted(server, one, code) == submitted(server, other, code)
    server.execute(one, "rows.append(0)")
    assert submitted(server, other, "SUBMIT(n=len(rows))") == {"n": 1000}
    assert server.ask("DELETE", path).status == 204
    assert submitted(server, one, "SUBMIT(n=len(rows))") == {"n": 1001}
    for answer in (server.ask("GET", path), server.ask("DELETE", path),
                   server.ask("POST", path + "/sandboxes", {})):
        assert (answer.status, answer.code) == (404, "not_found")
    for sandbox in (one, other):
        assert server.ask("DELETE", sandbox).status == 204


def test_a_template_of_a_live_sandbox(server):
    """Which goes on; the template is its state then, and outlives it."""
    sandbox = server.create()
    server.execute(sandbox, "x = 41")
    made = server.ask("POST", sandbox + "/template", {"name": "live"})
    assert made.status == 201, made.body
    server.execute(sandbox, "x = 0")
    assert server.ask("DELETE", sandbox).status == 204
    path = made.headers["Location"]
    new = start(server, path)
    assert submitted(server, new, "SUBMIT(x=x + 1)") == {"x": 42}
    for one in (new, path):
        assert server.ask("DELETE", one).status == 204


@pytest.mark.parametrize("cell, why", [
    ("1/0", "cell 2 ended with 'error': ZeroDivisionError"),
    ("SUBMIT(a=1)", "cell 2 ended with 'submitted'"),
    ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", "thread")])
def test_what_cannot_be_a_template_is_refused(server, cell, why):
    """And leaves no sandbox behind."""
    refused = server.ask("POST", "/v1/templates", {"cells": ["x = 1", cell]})
    assert refused.status == 400 and why in refused.json["error"]["message"], refused.body
    assert server.ask("GET", "/v1/templates").json["templates"] == []
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []


def test_a_busy_sandbox_becomes_no_template(server):
    sandbox = server.create()
    with server.connect() as client:
        body = b'{"code": "while True: pass"}'
        client.sendall(b"POST %s/execute HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: %d\r\n\r\n%s" % (sandbox.encode(), len(body), body))
        until(lambda: server.ask("GET", sandbox).json["state"] == "executing")
        refused = server.ask("POST", sandbox + "/template", {})
        assert (refused.status, refused.code) == (409, "busy")
    assert server.ask("DELETE", sandbox).status == 204


def test_a_repeated_creation_is_one(server):
    key = {"Idempotency-Key": "template-1"}
    first, second = (server.ask("POST", "/v1/templates", {"cells": ["x = 1"]}, key)
                     for _ in range(2))
    assert first.json == second.json and second.headers["Idempotency-Replayed"] == "true"
    assert server.ask("DELETE", first.headers["Location"]).status == 204


def test_a_template_belongs_to_its_key(tmp_path):
    """Another key neither sees, starts nor removes it; an administrator sees all."""
    keys = {name: create(tmp_path, name, "--scopes", scopes) for name, scopes in (
        ("one", "sandboxes"), ("other", "sandboxes"), ("reader", "read"), ("admin", "admin"))}
    server = Server(tmp_path)
    try:
        one, other, reader, admin = (Client(server, key) for key in keys.values())
        path = one.ask("POST", "/v1/templates", '{"cells": ["x = 1"]}').headers["Location"]
        for method, below in (("GET", ""), ("POST", "/sandboxes"), ("DELETE", "")):
            refused = other.ask(method, path + below)
            absent = other.ask(method, "/v1/templates/" + "0" * 32 + below)
            assert refused.status == absent.status == 404
            assert refused.body.replace(path[-32:].encode(), b"0" * 32) == absent.body
        assert other.ask("GET", "/v1/templates").json["templates"] == []
        assert len(admin.ask("GET", "/v1/templates").json["templates"]) == 1
        assert reader.ask("GET", "/v1/templates").status == 200
        assert reader.ask("POST", "/v1/templates", '{"cells": []}').status == 403
        assert one.ask("GET", path).status == 200
    finally:
        server.stop()
