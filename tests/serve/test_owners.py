"""What a key has, no other key reaches: objects of each kind, on each operation that names one.

The operations are those of the server's own document and of Jupyter's clients. An operation on
objects of a kind that is not made here fails the test, so that new interfaces are added.
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
        "/v1/contexts/": post("/v1/contexts", "mine")["id"],
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
    }
    return made


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
        kinds = [kind for kind in made if path.startswith(kind)]
        if path.startswith(ELSEWHERE):
            continue
        assert kinds, "no object for " + path
        absent = "00000000-0000-0000-0000-000000000000" if path.startswith("/api/") else "0" * 32
        query = "?path=x&to=y&limit=1&snapshot=s" if "/api/" not in path else ""
        answers = []
        for name in (made[kinds[0]], absent):
            target = re.sub(r"\{\w+\}", name, path, count=1)
            target = re.sub(r"\{\w+\}", "x" if "variables" in path else "1", target) + query
            answers.append(other.ask(method, target, body, {"Content-Type": "application/json"}))
        assert [one.status for one in answers] == [404, 404], (method, path, answers[0].body)
        assert answers[0].body.replace(made[kinds[0]].encode(), absent.encode()) == \
            answers[1].body, (method, path)
        asked.add(kinds[0])
    assert asked == set(made)
    for path, methods in server.ask("GET", "/openapi.json").json["paths"].items():
        if "{" not in path and "get" in methods and path.startswith("/v1/"):
            text = other.ask("GET", path).body.decode()
            assert not [name for name in made.values() if name in text], path
    for kind, name in made.items():
        if kind != "/v1/uploads/":      # which cannot be described
            assert one.ask("GET", kind + name).status == 200, kind
    until(lambda: server.model.stats()["requests"])
