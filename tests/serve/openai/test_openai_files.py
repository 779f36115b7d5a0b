"""Files and uploads: stored, listed, read, deleted, and read by runs as contexts."""
import os
import socket

import pytest

from server_process import WAIT, until
from harness import repl
from openai_fakes import CHAT, KEY, ask, content, error
from openai_fakes import models, server  # noqa: F401: fixtures
from test_keys import create

LIMIT = "the-boundary"


def form(data, name="notes.txt", field="file", **fields):
    """A body of multipart/form-data, and its header."""
    parts = [b'Content-Disposition: form-data; name="%s"\r\n\r\n%s' % (key.encode(), value.encode())
             for key, value in fields.items()]
    if data is not None:
        parts.append(b'Content-Disposition: form-data; name="%s"; filename="%s"\r\n'
                     b"Content-Type: application/octet-stream\r\n\r\n%s"
                     % (field.encode(), name.encode(), data))
    body = b"".join(b"--%s\r\n%s\r\n" % (LIMIT.encode(), part) for part in parts)
    return body + b"--%s--\r\n" % LIMIT.encode()


HEADERS = {"Content-Type": "multipart/form-data; boundary=" + LIMIT}


def store(server, data, purpose="user_data", headers=None, **more):
    answer = server.ask("POST", "/v1/files", form(data, purpose=purpose, **more),
                        {**HEADERS, **(headers or {})})
    assert answer.status == 200, answer.body
    return answer.json


def stored(server):
    """What is on the disk of all accounts."""
    root = os.path.join(str(server.home), "data", "openai")
    return sorted(name for _, _, names in os.walk(root) for name in names)


def test_a_file_is_stored_and_deleted(server):
    """With OpenAI's object; after a restart, too."""
    one = store(server, b"\x00\xff" * 1000, name="a é.bin")
    assert one["object"] == "file" and one["filename"] == "a é.bin" and one["bytes"] == 2000
    path = "/v1/files/" + one["id"]
    assert server.ask("GET", path).json == one
    assert server.ask("GET", path + "/content").body == b"\x00\xff" * 1000
    assert store(server, b"")["bytes"] == 0
    gone = server.ask("DELETE", path).json
    assert gone == {"id": one["id"], "object": "file", "deleted": True}
    for method, more in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert error(server.ask(method, path + more), 404)["code"] == "not_found"
    assert len(stored(server)) == 2


def test_files_are_listed_in_pages(server):
    made = [store(server, b"x", purpose=purpose)["id"]
            for purpose in ("user_data", "vision", "user_data")]
    listed = server.ask("GET", "/v1/files").json
    assert {one["id"] for one in listed["data"]} == set(made) and not listed["has_more"]
    order = [one["id"] for one in listed["data"]]
    page = server.ask("GET", "/v1/files?limit=2").json
    assert [one["id"] for one in page["data"]] == order[:2] and page["has_more"]
    page = server.ask("GET", "/v1/files?after=" + page["last_id"]).json
    assert [one["id"] for one in page["data"]] == order[2:] and not page["has_more"]
    backwards = server.ask("GET", "/v1/files?order=asc").json["data"]
    assert [one["id"] for one in backwards] == order[::-1]
    seen = server.ask("GET", "/v1/files?purpose=vision").json["data"]
    assert [one["id"] for one in seen] == [made[1]]
    for query in ("limit=0", "limit=x", "order=up"):
        assert error(server.ask("GET", "/v1/files?" + query), 400)["code"] == "invalid_page"


def test_a_small_window_reads_a_large_file(models, serve):
    """20 MB by its id, and a model that takes 8,000 tokens."""
    model = serve(turns=[repl("print(type(context).__name__, len(context))"),
                         repl("SUBMIT(str(context.count('needle')))")], key=KEY, window=8000)
    server = models(model=model)
    data = (b"needle " + b"hay " * 2498 + b"\n") * 2000
    one = store(server, data)
    answer = server.ask("POST", CHAT, ask([
        {"type": "text", "text": "How many needles?"},
        {"type": "file", "file": {"file_id": one["id"]}}]))
    assert content(answer) == "2000"
    tokens = model.stats()["tokens"].values()
    assert max(prompted for prompted, _ in tokens) < 8000
    assert answer.json["usage"]["prompt_tokens"] == sum(prompted for prompted, _ in tokens)


def test_several_contexts(models):
    """What came with the request is the first, and each file is one of its own."""
    server = models(turns=[repl("SUBMIT(repr([context_0, context_1, context_2]))")])
    parts = [{"type": "file", "file": {"file_id": store(server, data)["id"]}}
             for data in (b"one", b"\xff")]
    answer = server.ask("POST", CHAT, ask([{"type": "text", "text": "q"}, *parts], context="mine"))
    assert content(answer) == repr(["mine", "one", b"\xff"])
    question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
    assert "`context_0`, 'context' (4 bytes); `context_1`, the file 'notes.txt'" in question


def test_each_key_has_its_own(models):
    """Another key's file is not found: described, read, deleted or as a context."""
    one, other = ({"Authorization": "Bearer " + create(models.home, name, "--scopes", "models")}
                  for name in ("one", "other"))
    server = models("--keys", str(models.home / "data" / "keys.json"))
    path = "/v1/files/" + store(server, b"secret", headers=one)["id"]
    for method, more in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert error(server.ask(method, path + more, headers=other), 404)
    assert server.ask("GET", "/v1/files", headers=other).json["data"] == []
    body = ask([{"type": "text", "text": "q"},
                {"type": "file", "file": {"file_id": path.rpartition("/")[2]}}])
    assert error(server.ask("POST", CHAT, body, other), 400)["code"] == "file_not_found"
    assert server.ask("POST", CHAT, body, one).status == 200


def test_a_quota_limits_all_files(models):
    """What does not fit leaves nothing, and deleting makes room."""
    server = models("--files-quota", "1")
    one = store(server, b"x" * 700_000)
    answer = server.ask("POST", "/v1/files", form(b"x" * 700_000, purpose="user_data"), HEADERS)
    assert error(answer, 413)["code"] == "quota"
    until(lambda: stored(server) == [one["id"], one["id"] + ".json"])
    server.ask("DELETE", "/v1/files/" + one["id"])
    store(server, b"x" * 700_000)


@pytest.mark.parametrize("body,headers,code", [pytest.param(*row, id=str(index)) for index, row
                                               in enumerate([
    (form(b"x"), HEADERS, "invalid_purpose"),
    (form(b"x", purpose="fun"), HEADERS, "invalid_purpose"),
    (form(None, purpose="user_data"), HEADERS, "no_file"),
    (form(b"x", field="data", purpose="user_data"), HEADERS, "no_file"),
    (form(b"x", purpose="user_data")[:-30], HEADERS, "form"),
    (b"nothing", HEADERS, "no_file"),
    (b"{}", {"Content-Type": "application/json"}, "form"),
    (form(b"x", purpose="user_data"), {"Content-Type": "multipart/form-data"}, "form"),
    (form(b"x", purpose="user_data", **{"expires_after[seconds]": "1"}), HEADERS, "invalid_expiry"),
    (form(b"x", purpose="user_data", long="x" * 5000), HEADERS, "form"),
])])
def test_bad_files(server, body, headers, code):
    """Nothing is left behind."""
    found = error(server.ask("POST", "/v1/files", body, headers), 400)
    assert found["code"] == code and found["type"] == "invalid_request_error"
    until(lambda: stored(server) == [])


def test_a_client_that_leaves_leaves_nothing(server):
    """Many times, since the library overlooked one in some thirty."""
    body = form(b"x" * 500_000, purpose="user_data")
    head = ("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            "Content-Type: %s\r\n\r\n" % (len(body), HEADERS["Content-Type"])).encode()
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as client:
            client.sendall(head + body[:300_000])
            until(lambda: any(name.startswith(".new-") for name in stored(server)))
    until(lambda: stored(server) == [])


def test_an_upload_is_joined(server):
    """In the order of the request; it becomes a file, once."""
    made = server.ask("POST", "/v1/uploads", {"filename": "big.txt", "purpose": "user_data",
                                              "bytes": 11, "mime_type": "text/plain"}).json
    assert (made["object"], made["status"]) == ("upload", "pending")
    path = "/v1/uploads/" + made["id"]
    parts = [server.ask("POST", path + "/parts", form(data, field="data"), HEADERS).json["id"]
             for data in (b" world", b"hello")]
    for ids in (parts[:1], [*parts, parts[0]], ["part_" + "0" * 24], ["../x"]):
        assert server.ask("POST", path + "/complete", {"part_ids": ids}).status == 400
    done = server.ask("POST", path + "/complete", {"part_ids": parts[::-1]})
    assert done.status == 200 and done.json["status"] == "completed"
    one = done.json["file"]
    assert (one["filename"], one["bytes"]) == ("big.txt", 11)
    assert server.ask("GET", "/v1/files/%s/content" % one["id"]).body == b"hello world"
    assert not [name for name in stored(server) if ".part_" in name]
    again = server.ask("POST", path + "/complete", {"part_ids": parts[::-1]})
    assert error(again, 400)["code"] == "not_pending"


def test_an_upload_is_cancelled(server):
    made = server.ask("POST", "/v1/uploads",
                      {"filename": "x", "purpose": "user_data", "bytes": 1}).json
    path = "/v1/uploads/" + made["id"]
    server.ask("POST", path + "/parts", form(b"x", field="data"), HEADERS)
    assert server.ask("POST", path + "/cancel").json["status"] == "cancelled"
    assert not [name for name in stored(server) if ".part_" in name]
    part = server.ask("POST", path + "/parts", form(b"x", field="data"), HEADERS)
    assert error(part, 400)["code"] == "not_pending"
    assert error(server.ask("POST", "/v1/uploads/upload_x/cancel"), 404)
    for body in ({}, {"filename": "x", "purpose": "y", "bytes": 1},
                 {"filename": "x", "purpose": "vision", "bytes": 1 << 40}):
        assert error(server.ask("POST", "/v1/uploads", body), 400)
