"""Containers: files that clients put there, and that the code of responses reads and leaves."""
import json
import os
import time

import pytest

from server_process import until
from harness import repl
from openai_fakes import Stream, error
from openai_fakes import models, server  # noqa: F401: fixtures
from test_keys import create
from test_openai_files import HEADERS, form, store
from test_openai_responses import RESPONSES, ask, text

CONTAINERS = "/v1/containers"
ABSENT = "cntr_" + 24 * "0"


def make(server, headers=None, **more):
    answer = server.ask("POST", CONTAINERS, {"name": "work", **more}, headers)
    assert answer.status == 200, answer.body
    return answer.json


def put(server, container, data, name="notes.txt"):
    answer = server.ask("POST", "%s/%s/files" % (CONTAINERS, container), form(data, name), HEADERS)
    assert answer.status == 200, answer.body
    return answer.json


def files(server, container):
    listed = server.ask("GET", "%s/%s/files" % (CONTAINERS, container)).json
    return {one["path"]: one for one in listed["data"]}


def code(container="auto", **more):
    named = {"type": "auto", **more} if container == "auto" else container
    return {"tools": [{"type": "code_interpreter", "container": named}]}


def container_of(response):
    found = {item["container_id"] for item in response["output"]
             if item["type"] == "code_interpreter_call"}
    assert len(found) == 1
    return found.pop()


def test_a_container_is_made_listed_and_deleted(server):
    one = make(server, expires_after={"anchor": "last_active_at", "minutes": 5})
    assert one["object"] == "container" and one["status"] == "running" and one["name"] == "work"
    assert one["expires_after"] == {"anchor": "last_active_at", "minutes": 5}
    path = CONTAINERS + "/" + one["id"]
    assert server.ask("GET", path).json == one
    other = make(server)
    assert other["expires_after"]["minutes"] == 20
    assert {o["id"] for o in server.ask("GET", CONTAINERS).json["data"]} == {one["id"], other["id"]}
    page = server.ask("GET", CONTAINERS + "?limit=1").json
    assert len(page["data"]) == 1 and page["has_more"]
    assert server.ask("DELETE", path).json == {"id": one["id"], "object": "container.deleted",
                                               "deleted": True}
    for method, more in (("GET", ""), ("DELETE", ""), ("GET", "/files")):
        assert error(server.ask(method, path + more), 404)["code"] == "not_found"


def test_files_are_put_read_and_deleted(server):
    """A form, or the id of a stored file; nothing of a name but its last part counts."""
    one = make(server)["id"]
    made = put(server, one, b"\x00\xff" * 1000, "../../a é.bin")
    assert made["object"] == "container.file" and made["container_id"] == one
    assert (made["path"], made["bytes"], made["source"]) == ("/data/a é.bin", 2000, "user")
    path = "%s/%s/files" % (CONTAINERS, one)
    assert server.ask("GET", "%s/%s" % (path, made["id"])).json == made
    assert server.ask("GET", "%s/%s/content" % (path, made["id"])).body == b"\x00\xff" * 1000
    stored = store(server, b"stored")
    copied = server.ask("POST", path, {"file_id": stored["id"]}).json
    assert copied["path"] == "/data/notes.txt" and copied["bytes"] == 6
    assert put(server, one, b"again")["id"] == copied["id"]
    assert sorted(files(server, one)) == ["/data/a é.bin", "/data/notes.txt"]
    assert server.ask("DELETE", "%s/%s" % (path, made["id"])).json["deleted"]
    assert sorted(files(server, one)) == ["/data/notes.txt"]
    for method, more in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert error(server.ask(method, "%s/%s%s" % (path, made["id"], more)), 404)


@pytest.mark.parametrize("body, status, name", [
    ({"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 0}}, 400,
     "expires_after"),
    ({"name": "x", "network_policy": {"type": "allowlist", "allowed_domains": ["a.example"]}}, 400,
     "network_policy"),
    ({"name": "x", "file_ids": ["file-none"]}, 404, "file_ids"), ({}, 400, None)])
def test_a_container_that_cannot_be_is_refused(server, body, status, name):
    assert error(server.ask("POST", CONTAINERS, body), status)["param"] == name
    assert server.ask("GET", CONTAINERS).json["data"] == []


def test_mistakes_about_files_are_named(server):
    one = make(server)["id"]
    path = "%s/%s/files" % (CONTAINERS, one)
    assert error(server.ask("POST", path, {"file_id": "file-x"}), 404)["param"] == "file_id"
    assert error(server.ask("POST", path, form(None), HEADERS), 400)["code"] == "no_file"
    assert error(server.ask("POST", path, b"x" * 5000, {"Content-Type": "application/json"}), 413)
    assert error(server.ask("GET", path + "/cfile_x"), 404)
    assert error(server.ask("GET", "%s/%s" % (CONTAINERS, ABSENT)), 404)
    assert files(server, one) == {}


def test_the_code_of_responses_has_the_files_of_the_container(models):
    """It reads what the client put there, and leaves what the next response, and the client, read.
    The answer cites the file that it names."""
    server = models(turns=[repl("n = len(open('/data/notes.txt').read())"),
                           repl("with open('/data/out.csv', 'a') as f: f.write('%d\\n' % n)"),
                           repl("SUBMIT('Größe: [it](sandbox:/data/out.csv), not /data/none')")])
    one = make(server)["id"]
    put(server, one, b"12345")
    response = ask(server, **code(one))
    assert container_of(response) == one and response["status"] == "completed"
    found = files(server, one)
    assert found["/data/out.csv"]["source"] == "assistant"
    assert found["/data/notes.txt"]["source"] == "user"
    cited, = response["output"][-1]["content"][0]["annotations"]
    assert cited["type"] == "container_file_citation" and cited["container_id"] == one
    assert (cited["file_id"], cited["filename"]) == (found["/data/out.csv"]["id"], "out.csv")
    assert text(response)[cited["start_index"]:cited["end_index"]] == "sandbox:/data/out.csv"
    path = "%s/%s/files/%s/content" % (CONTAINERS, one, cited["file_id"])
    assert server.ask("GET", path).body == b"5\n"
    stream = Stream(server, {"model": "droste/turns", "input": "again", **code(one)},
                    path=RESPONSES)
    events = list(stream)
    stream.close()
    added, = [event for event in events if event["type"].endswith("annotation.added")]
    assert added["annotation"] == cited and added["annotation_index"] == 0
    assert server.ask("GET", path).body == b"5\n5\n"
    assert server.ask("GET", RESPONSES + "/" + response["id"]).json == response


def test_an_automatic_container_stays_for_the_next_response(models):
    server = models(turns=[repl("import os\nfound = sorted(os.listdir('/data'))"),
                           repl("open('/data/%d' % len(found), 'w').close()"),
                           repl("SUBMIT(found)")])
    first = ask(server, **code())
    one = container_of(first)
    assert json.loads(text(first)) == [] and sorted(files(server, one)) == ["/data/0"]
    second = ask(server, previous_response_id=first["id"], **code())
    assert container_of(second) == one and json.loads(text(second)) == ["0"]
    other = ask(server, **code())
    assert container_of(other) != one and json.loads(text(other)) == []
    for response in first, second, other:
        assert server.ask("GET", RESPONSES + "/" + response["id"]).json == response


def test_files_of_an_automatic_container_are_there_also_at_the_next_try(models):
    server = models(turns=[repl("SUBMIT(open('/data/notes.txt').read())")])
    body = {"model": "droste/turns", "input": "read", **code(file_ids=[store(server, b"it")["id"]])}
    first = server.ask("POST", RESPONSES, body).json
    assert text(first) == "it"
    again = server.ask("POST", RESPONSES, body, {"X-Stainless-Retry-Count": "1"}).json
    assert again["id"] == first["id"] and container_of(again) == container_of(first)
    body["tools"][0]["container"]["file_ids"] = ["file-none"]
    assert error(server.ask("POST", RESPONSES, body), 404)["param"] == "file_ids"


def test_a_container_that_is_not_there_is_refused(server):
    body = {"model": "droste/turns", "input": "read", **code(ABSENT)}
    assert error(server.ask("POST", RESPONSES, body), 404)["param"] == "tools"
    assert server.ask("GET", "/v1/runs").json["runs"] == []


def test_a_container_is_its_keys(models):
    mine, other = ({"Authorization": "Bearer " + create(models.home, name, "--scopes", "models")}
                   for name in ("mine", "other"))
    server = models("--keys", str(models.home / "data" / "keys.json"))
    one = make(server, mine)["id"]
    path = CONTAINERS + "/" + one
    assert server.ask("GET", path, headers=mine).status == 200
    for more in ("", "/files"):
        assert error(server.ask("GET", path + more, headers=other), 404)
    assert server.ask("GET", CONTAINERS, headers=other).json["data"] == []
    body = {"model": "droste/turns", "input": "read", **code(one)}
    assert error(server.ask("POST", RESPONSES, body, other), 404)["param"] == "tools"


def test_a_container_that_was_not_used_expires(server):
    """With its files, when the list is read next; one that is used lives on."""
    one, other = make(server)["id"], make(server)["id"]
    put(server, one, b"x")
    root = os.path.join(str(server.home), "data")
    objects = {name: os.path.join(at, name) for at, _, names in os.walk(root) for name in names}
    path = objects[one + ".json"]
    with open(path) as f:
        o = json.load(f)
    o["last_active_at"] = int(time.time()) - 21 * 60
    with open(path, "w") as f:
        json.dump(o, f)
    assert error(server.ask("GET", CONTAINERS + "/" + one), 404)
    assert [o["id"] for o in server.ask("GET", CONTAINERS).json["data"]] == [other]
    left = [name for name in os.listdir(os.path.dirname(path)) if name != other + ".json"]
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [name for name in os.listdir(os.path.dirname(path)) if name != other + ".json"]
    volumes = [name for at, names, _ in os.walk(root) for name in names if name.startswith("cntr_")]
    assert (left, volumes) == ([], [])


def test_containers_of_keys_that_do_not_come_back_expire(models, tmp_path):
    """Each minute, and when the server starts."""
    key = {"Authorization": "Bearer " + create(tmp_path, "k", "--scopes", "models")}
    server = models()
    one = make(server, key)["id"]
    sent = server.ask("POST", "%s/%s/files" % (CONTAINERS, one), form(b"x", "a.txt"),
                      {**HEADERS, **key})
    assert sent.status == 200, sent.body
    server.stop()
    root = os.path.join(str(server.home), "data")

    def left():
        return [name for _, folders, names in os.walk(root) for name in folders + names
                if name.startswith(("cntr_", "cfile_"))]
    path, = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names
             if name == one + ".json"]
    with open(path) as f:
        o = json.load(f)
    assert len(left()) >= 2
    with open(path, "w") as f:
        json.dump({**o, "last_active_at": int(time.time()) - 21 * 60}, f)
    models(model=server.model)
    until(lambda: left() == [])


def test_the_oldest_automatic_container_gives_way(models):
    """Where a key has the most; without one that is automatic, a further one is refused."""
    server = models()
    made = [make(server, name="auto")["id"]] + [make(server)["id"] for _ in range(99)]
    new = make(server)["id"]
    assert error(server.ask("GET", CONTAINERS + "/" + made[0]), 404)
    listed = [o["id"] for o in server.ask("GET", CONTAINERS + "?limit=200").json["data"]]
    assert sorted(listed) == sorted(made[1:] + [new])
    assert error(server.ask("POST", CONTAINERS, {"name": "x"}), 413)["code"] == "quota"
