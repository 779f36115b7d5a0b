"""What clients of E2B must not reach, and the errors that they understand, over plain HTTP."""
import json
import subprocess

import pytest

from conftest import DROSTE, Server

KEY = {"X-API-Key": "e2b_" + "1" * 40}


class Client:
    """E2B's requests to a server."""

    def __init__(self, server, key=None):
        self.server = server
        self.key = {"X-API-Key": key} if key else KEY

    def create(self, version="/v2", **body):
        answer = self.server.ask("POST", version + "/sandboxes",
                                 {"templateID": "base", "timeout": 300, **body}, self.key)
        assert answer.status == 201, answer.body
        return answer.json

    def control(self, method, path, body=None):
        return self.server.ask(method, path, body, self.key)

    def data(self, sandbox, port, method, path, body=None, **headers):
        """A request for a port of a sandbox, with its token unless another is given."""
        all_headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": str(port),
                       "X-Access-Token": sandbox["envdAccessToken"], **headers}
        return self.server.ask(method, path, body,
                               {k: v for k, v in all_headers.items() if v is not None})


@pytest.fixture(scope="module")
def client(server):
    return Client(server)


@pytest.fixture(scope="module")
def sandbox(client):
    return client.create()


def error(answer):
    """The status twice, and the message."""
    assert answer.json["code"] == answer.status
    return answer.status, answer.json["message"]


def test_requests_without_a_key_are_refused(server, client):
    """With the body that the SDKs read."""
    answer = server.ask("GET", "/v2/sandboxes")
    assert error(answer)[0] == 401
    assert client.control("GET", "/v2/sandboxes").status == 200


@pytest.mark.parametrize("version,seconds", [("", 15), ("/v2", 300)])
def test_the_default_timeout_is_that_of_the_version(client, version, seconds):
    answer = client.server.ask("POST", version + "/sandboxes", {"templateID": "base"}, client.key)
    assert answer.status == 201
    info = client.control("GET", "/sandboxes/" + answer.json["sandboxID"]).json
    ends = [int(info[key][17:19]) + 60 * int(info[key][14:16]) for key in ("startedAt", "endAt")]
    assert (ends[1] - ends[0]) % 3600 in (seconds, seconds + 1)


@pytest.mark.parametrize("body", [
    {}, {"templateID": 5}, {"templateID": ""}, {"templateID": "base", "timeout": -1},
    {"templateID": "base", "timeout": "5"}, {"templateID": "base", "envVars": {"A": 1}},
    {"templateID": "base", "metadata": [1]}, {"templateID": "base", "timeout": 10 ** 9},
    {"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]},
    {"templateID": "base", "autoPauseMemory": False}, {"templateID": "base", "iam": {}}])
def test_creations_that_are_wrong_or_unsupported_are_refused(client, body):
    assert error(client.control("POST", "/v2/sandboxes", body))[0] == 400


@pytest.mark.parametrize("method,path", [
    ("POST", "/v3/templates"), ("POST", "/volumes"), ("GET", "/volumes"), ("GET", "/volumes/x"),
    ("DELETE", "/volumes/x")])
def test_what_is_not_supported_says_so(client, method, path):
    status, message = error(client.control(method, path, {} if method == "POST" else None))
    assert status == 400 and "here" in message


@pytest.mark.parametrize("method,end,body", [
    ("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 5}),
    ("POST", "/refreshes", {}), ("POST", "/connect", {"timeout": 5}), ("POST", "/resume", {}),
    ("POST", "/pause", {}), ("GET", "/logs", None), ("PUT", "/network", {})])
def test_sandboxes_of_other_keys_do_not_exist(tmp_path, method, end, body):
    """On every operation; their owner reaches them."""
    path = tmp_path / "keys.json"
    keys = [subprocess.run([DROSTE, "keys", "create", name, "--keys", path], check=True,
                           capture_output=True, text=True, env={"HOME": str(tmp_path)}
                           ).stdout.strip() for name in ("one", "two")]
    server = Server(tmp_path, "--keys", str(path))
    try:
        owner, other = (Client(server, key) for key in keys)
        sandbox = owner.create()
        mine = "/sandboxes/" + sandbox["sandboxID"] + end
        nobody = "/sandboxes/" + "0" * 32 + end
        theirs, none = other.control(method, mine, body), other.control(method, nobody, body)
        assert theirs.status == none.status == 404
        assert theirs.body.replace(sandbox["sandboxID"].encode(), b"0" * 32) == none.body
        assert other.control("GET", "/v2/sandboxes").json == []
        assert owner.control(method, mine, body).status in (200, 201, 204, 409)
    finally:
        server.stop()


def test_the_data_plane_wants_the_token(client, sandbox):
    """Another sandbox's does not do; /health needs none."""
    other = client.create()
    for port, method, path, body in [(49983, "GET", "/files?path=/tmp/x", None),
                                     (49983, "POST", "/files?path=/tmp/x", "x"),
                                     (49999, "POST", "/execute", {"code": "1"})]:
        for token in (None, "", "x", other["envdAccessToken"],
                      sandbox["envdAccessToken"] + "0", sandbox["envdAccessToken"][:-1]):
            answer = client.data(sandbox, port, method, path, body,
                                 **{"X-Access-Token": token})
            assert answer.status == 401, (path, token)
    assert client.data(sandbox, 49983, "GET", "/health",
                       **{"X-Access-Token": None}).status == 204
    assert client.data(sandbox, 49999, "POST", "/execute", {"code": "1"}).status == 200


@pytest.mark.parametrize("identity", [
    {"E2b-Sandbox-Id": "0" * 32}, {"E2b-Sandbox-Id": "../../etc"}, {"E2b-Sandbox-Id": "A" * 32},
    {"E2b-Sandbox-Id": "a" * 100}, {"E2b-Sandbox-Port": "0"}, {"E2b-Sandbox-Port": "99999"},
    {"E2b-Sandbox-Port": "-1"}, {"E2b-Sandbox-Port": None}, {"E2b-Sandbox-Id": None}])
def test_a_sandbox_that_is_none_is_gone(client, sandbox, identity):
    """502 in the form from which the SDKs conclude that it does not run."""
    answer = client.data(sandbox, 49983, "GET", "/health", **identity)
    assert error(answer) == (502, "The sandbox was not found")


def test_ports_of_programs_are_not_open(client, sandbox):
    answer = client.data(sandbox, 8000, "GET", "/v2/sandboxes")
    assert error(answer) == (502, "The sandbox is running but port is not open")


def test_foreign_hosts_need_the_token(client, sandbox):
    """A Host that names a sandbox may have any domain; a page knows no token."""
    host = f"49999-{sandbox['sandboxID']}.example.com"
    headers = {"Host": host, "X-Access-Token": sandbox["envdAccessToken"]}
    ask = client.server.ask
    assert ask("GET", "/contexts", None, headers).status == 200
    assert ask("GET", "/contexts", None, {"Host": host}).status == 401
    assert ask("GET", "/contexts", None, {**headers, "Origin": "http://example.com"}).status == 403
    assert ask("GET", "/v2/sandboxes", None, {**KEY, "Host": "api.example.com"}).status == 403
    # What such a Host reaches is a sandbox, whatever the path.
    assert ask("GET", "/v1/sandboxes", None, headers).status == 404
    assert ask("GET", "/v2/sandboxes", None, {**KEY, "Host": host}).status in (401, 404)


def test_traffic_tokens_protect_other_ports(client):
    sandbox = client.create(network={"allowPublicTraffic": False})
    with_token = {"E2b-Traffic-Access-Token": sandbox["trafficAccessToken"]}
    for port, path, status in [(49999, "/contexts", 200), (8000, "/", 502)]:
        assert client.data(sandbox, port, "GET", path).status == 403
        assert client.data(sandbox, port, "GET", path, **with_token).status == status
    assert client.data(sandbox, 49983, "GET", "/health").status == 204


def test_idempotent_creations(client):
    """The same key gives the same sandbox; another request with it is refused."""
    headers = {**KEY, "Idempotency-Key": "abc-1"}
    body = {"templateID": "base", "timeout": 60}
    first, again = (client.server.ask("POST", "/v2/sandboxes", body, headers) for _ in "12")
    assert first.status == again.status == 201 and first.json == again.json
    other = client.server.ask("POST", "/v2/sandboxes", {**body, "timeout": 61}, headers)
    assert 400 <= other.status < 500 and other.json["code"] == other.status


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "nextToken=x",
                                   "startedAfter=yesterday"])
def test_wrong_queries_of_lists_are_refused(client, query):
    assert error(client.control("GET", "/v2/sandboxes?" + query))[0] == 400


def test_executions_are_lines_of_json(client, sandbox):
    answer = client.data(sandbox, 49999, "POST", "/execute",
                         {"code": "print(1)\n2", "context_id": None, "language": None,
                          "env_vars": None})
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "result",
                                                "end_of_execution"]
    assert set(lines[1]) == {"type", "text", "timestamp"}
    both = client.data(sandbox, 49999, "POST", "/execute",
                       {"code": "1", "context_id": "x", "language": "python"})
    assert (both.status, both.headers["Content-Type"].split(";")[0]) == (400, "text/plain")
    unknown = client.data(sandbox, 49999, "POST", "/execute", {"code": "1", "context_id": "x"})
    assert unknown.status == 404
