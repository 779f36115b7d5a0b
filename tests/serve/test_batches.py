"""Batches over HTTP: tasks, results, limits, and what survives a server."""
import http.client
import json
import signal

import pytest

from server_process import WAIT, until
from harness import repl
from test_keys import Client, create
from test_runs import HANGING, models  # noqa: F401: a fixture

ONE = [repl("SUBMIT(answer=len(context))")]
THREE = [{"id": "a", "question": "?", "context_text": "xx", "expected": 2},
         {"id": "b", "question": "?", "context_text": "xxx", "expected": 4},
         {"id": 7, "question": "?", "context_text": "x", "expected": 1}]


def batch(client, tasks=None, **body):
    """Creates a batch; its path."""
    answer = client.ask("POST", "/v1/batches", {**({"tasks": tasks} if tasks else {}), **body})
    assert answer.status == 201, answer.body
    assert answer.headers["Location"] == "/v1/batches/" + answer.json["batch"]
    return answer.headers["Location"]


def ended(client, path):
    """Waits for the end of a batch; its description then."""
    until(lambda: client.ask("GET", path).json["status"] != "running")
    return client.ask("GET", path).json


def results(client, path, offset=0):
    """The lines of its results."""
    answer = client.ask("GET", path + "/results?offset=%d" % offset)
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


def refused(client, code, **body):
    answer = client.ask("POST", "/v1/batches", body)
    assert (answer.status, answer.code) == (400, code), answer.body
    return answer.json["error"]["message"]


def test_every_task_has_a_result_and_a_grade(models):
    server = models(ONE)
    path = batch(server, THREE, grader="exact", concurrency=2)
    end = ended(server, path)
    assert (end["status"], end["tasks"], end["left"]) == ("ended", 3, 0)
    assert (end["statuses"]["answered"], end["graded"], end["passed"]) == (3, 3, 2)
    assert end["stopped"] is None
    lines = {line["id"]: line for line in results(server, path)}
    assert {key: line["grade"]["passed"] for key, line in lines.items()} == {
        "a": True, "b": False, 7: True}
    assert set(lines["a"]) == {"id", "run", "status", "answer", "error", "grade", "usage",
                               "seconds"}
    run = server.ask("GET", "/v1/runs/" + lines["a"]["run"]).json
    assert (run["status"], run["task"]) == ("answered", "a")
    assert [b["batch"] for b in server.ask("GET", "/v1/batches").json["batches"]] == [end["batch"]]


def test_a_stored_file_of_tasks_may_name_stored_contexts(models):
    server = models(ONE)
    context = server.ask("POST", "/v1/contexts?name=c", b"x" * 70_000).json["id"]
    tasks = "\n".join(json.dumps({"question": "?", "context": context}) for _ in range(3))
    stored = server.ask("POST", "/v1/contexts?name=t", tasks.encode()).json["id"]
    path = batch(server, tasks_file=stored)
    assert server.ask("DELETE", "/v1/contexts/" + stored).status == 204
    assert ended(server, path)["status"] == "ended"
    assert [line["answer"] for line in results(server, path)] == [70_000] * 3


def test_invalid_tasks_are_refused_before_anything_is_paid(models):
    server = models(ONE)
    good = THREE[0]
    assert "line 2" in refused(server, "argument", tasks=[good, {"id": "b"}])
    assert "context" in refused(server, "argument", tasks=[{"question": "?",
                                                            "context": "/etc/passwd"}])
    assert "context" in refused(server, "argument", tasks=[{"question": "?",
                                                            "contexts": {"n": "../x"}}])
    refused(server, "argument", tasks=[{"question": "?", "settings": {"isolation": "none"}}])
    refused(server, "argument", tasks=[{"question": "?", "settings": {"model": "exec:true"}}])
    refused(server, "argument", tasks=[good], options={"artifacts": "x"})
    refused(server, "argument", tasks=[good], grader="program:/bin/true")
    refused(server, "argument", tasks=[{**good, "grader": "program:/bin/true"}])
    refused(server, "schema", tasks=[good], tasks_file="file-0")
    refused(server, "schema", tasks=[])
    answer = server.ask("POST", "/v1/batches", {"tasks_file": "file-" + "0" * 24})
    assert answer.status == 404
    assert server.ask("GET", "/v1/batches").json == {"batches": []}
    assert server.model.stats()["requests"] == 0
    path = batch(server, [{**good, "grader": "exact", "settings": {"max-iterations": 2}}],
                 options={"max-errors": 3})
    assert ended(server, path)["passed"] == 1


def test_a_limit_of_all_tasks_stops_the_batch_and_a_larger_one_resumes_it(models):
    server = models(ONE)
    path = batch(server, THREE, concurrency=1, max_calls=2)
    end = ended(server, path)
    assert (end["status"], end["stopped"], end["statuses"]["answered"]) == ("stopped", "budget", 2)
    answer = server.ask("POST", path + "/resume", {"max_calls": 3})
    assert answer.status == 200, answer.body
    end = ended(server, path)
    assert (end["status"], end["earlier"], end["calls"]) == ("ended", 2, 3)
    assert len(results(server, path)) == 3
    assert server.model.stats()["requests"] == 3


def test_a_client_follows_and_goes_on_at_an_offset(models):
    server = models(ONE)
    path = batch(server, THREE)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("GET", path + "/results?follow=yes")
    body = connection.getresponse().read()
    assert body.count(b"\n") == 3 and ended(server, path)["status"] == "ended"
    first = body.index(b"\n") + 1
    assert results(server, path, first) == [json.loads(line) for line in
                                            body[first:].splitlines()]
    assert results(server, path, len(body)) == []
    for offset in (first - 1, len(body) + 1, "x", -1):
        assert server.ask("GET", path + "/results?offset=%s" % offset).status == 400
    connection.close()


def test_a_batch_of_a_killed_server_is_resumed_without_a_second_payment(models, tmp_path):
    server = models(HANGING)
    path = batch(server, [{"id": str(i), "question": "?"} for i in range(3)], concurrency=3)
    until(lambda: server.model.stats()["requests"] == 6)
    assert server.ask("DELETE", path).status == 409
    assert server.ask("POST", path + "/resume").status == 409
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(WAIT)
    model = server.model
    server = models(HANGING, model=model)
    assert server.ask("GET", path).json["status"] == "interrupted"
    assert server.ask("POST", path + "/resume").status == 200
    end = ended(server, path)
    assert (end["status"], end["resumed"], end["statuses"]["answered"]) == ("ended", 3, 3)
    # Only the calls without an answer came twice, each with its own key.
    repeated = [count for count in model.stats()["idempotency"].values() if count > 1]
    assert repeated == [2, 2, 2]
    assert server.ask("DELETE", path).status == 204
    assert server.ask("GET", path).status == 404


def test_cancel_suspends_and_resume_goes_on(models):
    server = models(HANGING)
    path = batch(server, [{"question": "?"}, {"question": "?"}], concurrency=1)
    until(lambda: server.model.stats()["requests"] == 2)
    assert server.ask("POST", path + "/cancel").status == 204
    end = ended(server, path)
    assert (end["status"], end["stopped"], end["left"]) == ("stopped", "interrupt", 2)
    assert server.ask("POST", path + "/cancel").status == 409
    assert server.ask("POST", path + "/resume").status == 200
    until(lambda: server.model.stats()["requests"] > 2)
    server.ask("POST", path + "/cancel")
    ended(server, path)


def test_runs_of_a_batch_wait_for_the_limits_of_their_key(models, tmp_path):
    key = create(tmp_path, "ci", "--scopes", "read,runs", "--limit", "sandboxes=1")
    client = Client(models(ONE), key)
    path = batch(client, THREE, concurrency=3)
    end = ended(client, path)
    assert (end["status"], end["statuses"]["answered"]) == ("ended", 3)


@pytest.mark.parametrize("again", [False, True])
def test_a_repeated_request_creates_one_batch(models, again):
    server = models(ONE)
    headers = {"Idempotency-Key": "k"} if again else {}
    paths = {server.ask("POST", "/v1/batches", {"tasks": THREE[:1]}, headers).json["batch"]
             for _ in range(2)}
    assert len(paths) == (1 if again else 2)
    assert len(server.ask("GET", "/v1/batches").json["batches"]) == len(paths)
