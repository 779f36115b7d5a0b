"""Calls that wait for an approval, over HTTP: listed, decided, once, by the keys that may."""
import http.server
import json
import threading

import pytest

from server_process import until
from harness import repl
from test_keys import Client, create
from test_runs import Events, ask, ended, models  # noqa: F401

TRIED = repl("try: out = write(n=4)\nexcept Exception as e: out = repr(e)\nSUBMIT(out)")


@pytest.fixture
def tool(tmp_path):
    """The settings of a tool that asks; `done` has a line for each execution."""
    program = tmp_path / "write"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho >> %s/done\necho 40\n" % tmp_path)
    program.chmod(0o755)

    class Tool:
        flags = ["--tool", "write=%s" % program, "--ask", "write"]

        @property
        def done(self):
            log = tmp_path / "done"
            return len(log.read_text()) if log.exists() else 0
    return Tool()


def waiting(client, path="/v1/approvals"):
    return until(lambda: client.ask("GET", path).json["approvals"])[0]


def decide(client, approval, decision, **more):
    return client.ask("POST", "/v1/approvals/%s" % approval["id"], {"decision": decision, **more})


def test_a_call_is_approved_and_its_run_goes_on(models, tool):  # noqa: F811
    """Whichever worker has the run; the events of the run tell of the question and the decision."""
    server = models([TRIED], *tool.flags)
    run = ask(server)
    approval = waiting(server, "/v1/approvals?run=" + run.rpartition("/")[2])
    assert (approval["tool"], approval["arguments"], approval["decision"]) == ("write", {"n": 4},
                                                                               None)
    answer = decide(server, approval, "approve", reason="fine")
    assert answer.status == 200 and answer.json["decision"] == "approved"
    assert answer.json["reason"] == "fine"
    assert ended(server, run)["answer"] == 40 and tool.done == 1
    calls = [data for _, kind, data in Events(server, run) if kind == "call"
             and data["kind"] == "tool"]
    assert len(calls) == 4 and calls[-1]["approval"]["decision"] == "approved"
    assert "approval" not in calls[0]
    assert server.ask("GET", "/v1/approvals").json == {"approvals": []}
    assert server.ask("GET", "/v1/approvals/%s" % approval["id"]).json["begun"]


def test_a_call_is_denied(models, tool):  # noqa: F811
    server = models([TRIED], *tool.flags)
    run = ask(server)
    assert decide(server, waiting(server), "deny", reason="no").status == 200
    assert "PermissionError" in ended(server, run)["answer"] and tool.done == 0


def test_mistakes_are_named(models, tool):  # noqa: F811
    server = models([TRIED], *tool.flags)
    run = ask(server)
    approval = waiting(server)
    for path, body, status in [("/v1/approvals/0", {"decision": "deny"}, 404),
                               ("/v1/approvals/x", {"decision": "deny"}, 404),
                               ("/v1/approvals/99999999999999999999", {"decision": "deny"}, 404),
                               ("/v1/approvals/%s" % approval["id"], {"decision": "maybe"}, 400),
                               ("/v1/approvals/%s" % approval["id"], {}, 400)]:
        assert server.ask("POST", path, body).status == status, path
    assert decide(server, approval, "deny").status == 200
    again = decide(server, approval, "approve")
    assert (again.status, again.code) == (409, "decided") and "was denied already" in again.json[
        "error"]["message"]
    ended(server, run)
    assert tool.done == 0


def test_a_key_decides_for_its_own_runs_with_the_scope(models, tool, tmp_path):  # noqa: F811
    """Starting a run is not approving what it does."""
    names = {"one": "runs,read", "decider": "runs,approvals", "admin": "admin"}
    made = {name: create(tmp_path, name, "--scopes", scopes) for name, scopes in names.items()}
    server = models([TRIED, TRIED], *tool.flags)
    one, decider, admin = (Client(server, made[name]) for name in names)
    run = ask(one)
    approval = waiting(one)
    assert decide(one, approval, "approve").status == 403
    assert decider.ask("GET", "/v1/approvals").json == {"approvals": []}
    assert decide(decider, approval, "approve").status == 404
    assert decider.ask("GET", "/v1/approvals/%s" % approval["id"]).status == 404
    assert tool.done == 0
    assert decide(admin, approval, "approve").json["by"] == "admin"
    assert ended(one, run)["answer"] == 40
    mine = ask(decider)
    assert decide(decider, waiting(decider), "approve").status == 200
    assert ended(decider, mine)["answer"] == 40 and tool.done == 2


def test_a_wait_survives_the_server(models, tool):  # noqa: F811
    """Killed while the call waits; decided and resumed at the next server; executed once."""
    model = models.serve(turns=[TRIED])
    server = models(None, *tool.flags, model=model)
    run = ask(server)
    approval = waiting(server)
    server.process.kill()
    server.process.wait()
    again = models(None, *tool.flags, model=model)
    until(lambda: again.ask("GET", run).json["status"] == "interrupted")
    assert waiting(again)["interrupted"] and tool.done == 0
    assert decide(again, approval, "approve").status == 200
    assert again.ask("POST", run + "/resume").status == 200
    assert ended(again, run)["answer"] == 40 and tool.done == 1


def test_a_sandbox_has_nothing_that_answers(models, tool):  # noqa: F811
    """Its cells are not a run, so a call that asks is denied at once."""
    server = models([TRIED], *tool.flags)
    path = "/v1/sandboxes/" + server.ask("POST", "/v1/sandboxes", {}).json["id"]
    result = server.ask("POST", path + "/execute", {"code": "write(n=4)"}).json
    assert result["error"]["type"] == "PermissionError" and tool.done == 0
    assert json.dumps(result).count("nothing is left that could decide") >= 1


def test_a_webhook_answers_later_over_http(models, tool):  # noqa: F811
    seen = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as hook:
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        url = "http://127.0.0.1:%d/" % hook.server_port
        server = models([TRIED], *tool.flags, "--ask-webhook", url,
                        env={"DROSTE_ASK_WEBHOOK_SECRET": "a secret of the webhook"})
        run = ask(server)
        until(lambda: seen)
        assert decide(server, seen[0]["approval"], "approve").status == 200
        assert ended(server, run)["answer"] == 40 and tool.done == 1 and len(seen) == 1
        hook.shutdown()
