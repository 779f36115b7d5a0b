"""What a server keeps of runs and for them: exports, and contexts that are uploaded before."""
import json

import pytest

from server_process import Server
from harness import repl
from test_keys import Client, create
from test_runs import ask, ended, models  # noqa: F401: a fixture

LENGTH = [repl("SUBMIT([type(context).__name__, len(context)])")]


def test_a_run_is_exported_in_each_form(models):  # noqa: F811
    """As `droste runs export` writes it; a page is not shown as one of the server's."""
    server = models([repl("SUBMIT('<b>done</b>')")])
    run = ask(server, context="text")
    assert ended(server, run)["status"] == "answered"
    number = run.rpartition("/")[2]
    for query, kind in (("", "jsonl"), ("?format=jsonl", "jsonl"), ("?format=html", "html"),
                        ("?format=otlp", "otlp")):
        answer = server.ask("GET", run + "/export" + query)
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Disposition"] == \
            'attachment; filename="run-%s.%s"' % (number, kind)
        if kind == "html":
            assert answer.body.lower().startswith(b"<!doctype html>")
        else:
            lines = [json.loads(line) for line in answer.body.splitlines()]
            assert number in json.dumps(lines) or kind == "otlp" and "resourceSpans" in lines[0]
    assert server.ask("GET", run + "/export?format=pdf").status == 400
    assert server.ask("GET", "/v1/runs/" + "0" * 32 + "/export").status == 404


def test_a_stored_context_is_that_of_runs(models):  # noqa: F811
    """It comes in as it is, is listed, and goes; OpenAI's interface has the same file."""
    server = models(LENGTH)
    data = b"0123456789" * 500_000
    stored = server.ask("POST", "/v1/contexts?name=big.txt", data)
    assert stored.status == 201, stored.body
    one = stored.json
    path = "/v1/contexts/" + one["id"]
    assert (one["name"], one["size"], stored.headers["Location"]) == ("big.txt", len(data), path)
    assert server.ask("GET", path).json == one
    assert server.ask("GET", "/v1/contexts").json["contexts"] == [one]
    assert server.ask("GET", "/v1/files/%s/content" % one["id"]).body == data
    run = ask(server, context_file=one["id"])
    assert ended(server, run)["answer"] == ["str", len(data)]
    both = server.ask("POST", "/v1/runs", {"question": "q", "context": "x",
                                           "context_file": one["id"]})
    assert (both.status, both.code) == (400, "schema")
    assert server.ask("DELETE", path).status == 204
    for answer in (server.ask("GET", path), server.ask("DELETE", path),
                   server.ask("POST", "/v1/runs", {"question": "q", "context_file": one["id"]})):
        assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("name", ["../../etc/passwd", "file-", "file-" + "0" * 24, "/etc/passwd",
                                  "file-../../../../../../etc"])
def test_no_context_is_a_path(server, name):
    answer = server.ask("POST", "/v1/runs", {"question": "q", "context_file": name})
    assert (answer.status, answer.code) == (404, "not_found")


def test_a_repeated_upload_is_stored_once(server):
    """With an Idempotency-Key, also with a body that the server does not read again."""
    key = {"Idempotency-Key": "upload-1"}
    first, second = (server.ask("POST", "/v1/contexts?name=a", b"abc", key) for _ in range(2))
    assert first.json == second.json and second.headers["Idempotency-Replayed"] == "true"
    assert len(server.ask("GET", "/v1/contexts").json["contexts"]) == 1
    assert server.ask("DELETE", first.headers["Location"]).status == 204


def test_the_quota_ends_an_upload(tmp_path):
    """While it comes in; what it has left behind does not count."""
    server = Server(tmp_path, "--files-quota", "1")
    try:
        for _ in range(2):
            large = server.ask("POST", "/v1/contexts", b"x" * (2 << 20))
            assert (large.status, large.code) == (413, "quota")
        assert server.ask("POST", "/v1/contexts", b"x" * (1 << 19)).status == 201
    finally:
        server.stop()


def test_a_context_belongs_to_its_key(tmp_path):
    """Another key's is not found, nor is it that of a run; `read` lists, and stores nothing."""
    keys = {name: create(tmp_path, name, "--scopes", "runs") for name in ("one", "other")}
    keys["reader"] = create(tmp_path, "reader", "--scopes", "read")
    server = Server(tmp_path)
    try:
        one, other, reader = (Client(server, key) for key in keys.values())
        path = one.ask("POST", "/v1/contexts", b"mine").headers["Location"]
        assert one.ask("GET", path).status == 200
        for method in ("GET", "DELETE"):
            assert other.ask(method, path).status == 404
        assert other.ask("GET", "/v1/contexts").json["contexts"] == []
        assert other.ask("POST", "/v1/runs", json.dumps(
            {"question": "q", "context_file": path.rpartition("/")[2]})).status == 404
        assert reader.ask("GET", "/v1/contexts").status == 200
        assert reader.ask("POST", "/v1/contexts", b"x").status == 403
    finally:
        server.stop()
