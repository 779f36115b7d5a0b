"""What a key has, no other key reaches: objects of each kind, on each operation that names one.

The operations are those of the server's own document and of E2B's and Jupyter's clients. An
operation on objects of a kind that is not made here fails the test, so that new interfaces are
added.
"""
import json
import re

import pytest

from server_process import until
from test_keys import Client, create, example
from test_runs import HANGING, models  # noqa: F401: a fixture

SCOPES = "read,sandboxes,runs,models,approvals"
JUPYTER = [(method, "/api/%s/{name}%s" % (kind, below)) for kind, method, below in (
    ("kernels", "GET", ""), ("kernels", "POST", "/interrupt"), ("kernels", "POST", "/restart"),
    ("kernels", "GET", "/channels"), ("kernels", "DELETE", ""), ("sessions", "GET", ""),
    ("sessions", "PATCH", ""), ("sessions", "DELETE", ""))]
E2B = [(method, "/sandboxes/{id}" + below, body) for method, below, body in (
    ("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 5}),
    ("POST", "/refreshes", {}), ("POST", "/connect", {"timeout": 5}), ("POST", "/resume", {}),
    ("POST", "/pause", {}), ("GET", "/logs", None), ("PUT", "/network", {}),
    ("GET", "/metrics", None), ("POST", "/fork", {}), ("POST", "/snapshots", {}))] + [
    ("GET", "/v2/sandboxes/{id}/logs", None), ("POST", "/v2/sandboxes/{id}/connect", {}),
    ("DELETE", "/templates/{name}", None), ("GET", "/templates/aliases/{name}", None)]
# No objects of a key; and what test_approvals.py and tests/cluster ask for.
ELSEWHERE = ("/v1/models/", "/v1/approvals/", "/v1/queue/")
FORM = "".join(line + "\r\n" for line in (
    "--limit", 'Content-Disposition: form-data; name="purpose"', "", "user_data",
    "--limit", 'Content-Disposition: form-data; name="file"; filename="f"', "", "mine",
    "--limit--"))
FORM_TYPE = {"Content-Type": "multipart/form-data; boundary=limit"}


def make(one):
    """An object of each kind: its id, by the beginning of its paths."""
    def post(path, body, headers=None):
        answer = one.ask("POST", path, body, headers)
        assert answer.status in (200, 201), (path, answer.body)
        return answer.json
    made = {
        "/v1/sandboxes/": post("/v1/sandboxes", {})["id"],
        "/v1/templates/": post("/v1/templates", {"cells": []})["id"],
        "/v1/contexts/": post("/v1/contexts", '{"question": "mine"}')["id"],
        "/v1/volumes/": post("/v1/volumes", {"name": "mine"})["name"],
        "/v1/files/": post("/v1/files", FORM, FORM_TYPE)["id"],
        "/v1/uploads/": post("/v1/uploads", {"filename": "f", "purpose": "user_data", "bytes": 4,
                                             "mime_type": "text/plain"})["id"],
        "/v1/containers/": post("/v1/containers", {"name": "mine"})["id"],
        "/v1/responses/": post("/v1/responses", {"model": "droste/turns", "input": "q",
                                                 "background": True})["id"],
        "/v1/runs/": post("/v1/runs", {"question": "q"})["run"],
        "/v1/batches/": post("/v1/batches", {"tasks": [{"question": "q"}]})["batch"],
        "/api/kernels/": post("/api/kernels", {})["id"],
        "/api/sessions/": post("/api/sessions", {"path": "p", "type": "console",
                                                 "name": "n"})["id"],
        "/sandboxes/": post("/v2/sandboxes", {"templateID": "base", "timeout": 300})["sandboxID"],
    }
    snapshot = post("/sandboxes/%s/snapshots" % made["/sandboxes/"], {"name": "private"})
    made["/templates/"] = snapshot["snapshotID"].partition(":")[0]
    return made


def kind_of(path):
    """The beginning of the paths of such objects. Two versions of E2B's have the same."""
    path = path.replace("/v2/sandboxes", "/sandboxes").replace("/aliases", "")
    return re.match("[^{]*", path)[0]


def operations(server):
    """(method, path, body) of each operation that names an object."""
    for path, methods in server.ask("GET", "/openapi.json").json["paths"].items():
        for method, operation in methods.items():
            kinds = operation.get("requestBody", {}).get("content", {})
            schema = kinds.get("application/json", {}).get("schema", {})
            if "{" in path:
                yield method.upper(), path, json.dumps(example(schema)) if kinds else None
    for method, path in JUPYTER:
        yield method, path, "{}" if method in ("POST", "PATCH") else None
    for method, path, body in E2B:
        yield method, path, None if body is None else json.dumps(body)


@pytest.fixture
def owned(models, tmp_path):  # noqa: F811
    keys = [create(tmp_path, name, "--scopes", SCOPES) for name in ("one", "other")]
    server = models(HANGING, "--max-sandboxes", "20")
    one, other = (Client(server, key) for key in keys)
    return server, one, other, make(one)


def test_what_another_key_has_is_not_found(owned):
    """Each refusal is that for an object which does not exist, lists have nothing of it, and the
    owner still has everything afterwards."""
    server, one, other, made = owned
    asked = set()
    for method, path, body in operations(server):
        kind = kind_of(path)
        if path.startswith(ELSEWHERE):
            continue
        assert kind in made, "no object for " + path
        absent = "00000000-0000-0000-0000-000000000000" if path.startswith("/api/") else "0" * 32
        query = "?path=x&to=y&limit=1&snapshot=s" if path.startswith("/v1/") else ""
        answers = []
        for name in (made[kind], absent):
            target = re.sub(r"\{\w+\}", name, path, count=1)
            target = re.sub(r"\{\w+\}", "x" if "variables" in path else "1", target) + query
            answers.append(other.ask(method, target, body, {"Content-Type": "application/json"}))
        assert [one.status for one in answers] == [404, 404], (method, path, answers[0].body)
        assert answers[0].body.replace(made[kind].encode(), absent.encode()) == \
            answers[1].body, (method, path)
        asked.add(kind)
    assert asked == set(made)
    for path, methods in server.ask("GET", "/openapi.json").json["paths"].items():
        if "{" not in path and "get" in methods and path.startswith("/v1/"):
            text = other.ask("GET", path).body.decode()
            assert not [name for name in made.values() if name in text], path
    for path in ("/v2/sandboxes", "/snapshots", "/api/kernels", "/api/sessions"):
        assert other.ask("GET", path).json == [] != one.ask("GET", path).json
    for kind, name in made.items():
        if kind not in ("/v1/uploads/", "/templates/"):      # which cannot be described
            assert one.ask("GET", kind + name).status == 200, kind
    until(lambda: server.model.stats()["requests"])


def ask_later(**more):
    return {"model": "droste/turns", "background": True, "input": "q", **more}


# Requests that name an object of a kind elsewhere than in their path.
REFERENCES = [
    ("/v1/contexts/", "/v1/runs", lambda name: {"question": "q", "context_file": name}),
    ("/v1/contexts/", "/v1/batches", lambda name: {"tasks_file": name}),
    ("/v1/contexts/", "/v1/batches", lambda name: {"tasks": [{"question": "q", "context": name}]}),
    ("/v1/files/", "/v1/responses", lambda name: ask_later(input=[{"role": "user", "content": [
        {"type": "input_text", "text": "q"}, {"type": "input_file", "file_id": name}]}])),
    ("/v1/files/", "/v1/containers", lambda name: {"name": "c", "file_ids": [name]}),
    ("/v1/responses/", "/v1/responses", lambda name: ask_later(previous_response_id=name)),
    ("/v1/containers/", "/v1/responses", lambda name: ask_later(
        tools=[{"type": "code_interpreter", "container": name}])),
    ("/v1/volumes/", "/v1/sandboxes", lambda name: {"options": {"volume-name": name}}),
    ("/v1/templates/", "/v2/sandboxes", lambda name: {"templateID": name}),
    ("/templates/", "/v2/sandboxes", lambda name: {"templateID": name}),
    ("/templates/", "/v2/sandboxes", lambda name: {"templateID": name + ":default"}),
    ("/api/kernels/", "/api/sessions", lambda name: {
        "path": "p2", "type": "console", "name": "n", "kernel": {"id": name}})]


def test_what_another_key_has_cannot_be_named(owned):
    """In a body it is refused as what does not exist is, and taken from its owner."""
    server, one, other, made = owned
    for kind, path, body in REFERENCES:
        absent = re.sub("[0-9a-f]", "0", made[kind])    # what has a name has another one
        assert absent != made[kind]
        answers = [other.ask("POST", path, body(name)) for name in (made[kind], absent)]
        assert [answer.status for answer in answers] in ([404, 404], [400, 400]), (
            kind, path, answers[0].body)
        same = answers[0].body.replace(made[kind].encode(), absent.encode()) == answers[1].body
        assert same, (kind, path, answers[0].body, answers[1].body)
        taken = one.ask("POST", path, body(made[kind]))
        is_unanswered = kind == "/v1/responses/" and b"has no answer" in taken.body
        assert taken.status < 300 or is_unanswered, (kind, path, taken.body)
