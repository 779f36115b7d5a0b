"""E2B's members for the network of a sandbox, within what the operator permits."""
import contextlib
import json
import subprocess

import pytest

from client import Client, error
from destinations import FETCH, METADATA, elsewhere, where  # noqa: F401: fixtures
from server_process import WAIT, Server
from test_keys import create
from test_sdk import command

NAMES = ["api.example.com:443", "both.example:*", "plain.example:80", "*.example.org:443"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory, where, elsewhere):
    """A server whose sandboxes reach `elsewhere`, and its clients: one for which the operator
    permits `where` and some names, one for which all public addresses, and one."""
    home = tmp_path_factory.mktemp("keyed")
    permitted = [word for rule in ("127.0.0.2:*", *NAMES) for word in ("--net", rule)]
    made = {"one": create(home, "one", *permitted), "all": create(home, "all", "--net", "all"),
            "other": create(home, "other")}
    server = Server(home, "--allow-net", elsewhere)
    yield {name: Client(server, key) for name, key in made.items()}
    assert server.stop() == 0


def fetch(client, sandbox, *places):
    """What its code gets from each place, or the status of the refusal."""
    body = {"code": FETCH + "\n[fetch(where) for where in %r]" % (places,)}
    answer = client.data(sandbox, 49999, "POST", "/execute", body)
    messages = [json.loads(line) for line in answer.body.decode().splitlines()]
    found = [one["text"] for one in messages if one["type"] == "result"]
    assert found, messages
    return json.loads(found[0].replace("'", '"'))


@contextlib.contextmanager
def created(client, **body):
    sandbox = client.create(**body)
    try:
        yield sandbox
    finally:
        assert client.control("DELETE", "/sandboxes/" + sandbox["sandboxID"]).status == 204


@pytest.mark.parametrize("name, body, answers", [
    ("one", {}, [403, "hello"]),
    ("one", {"allow_internet_access": True}, [403, "hello"]),
    ("one", {"allow_internet_access": False}, ["no network"] * 2),
    ("one", {"network": {"denyOut": ["0.0.0.0/0"]}}, ["no network"] * 2),
    ("one", {"network": {"denyOut": ["10.0.0.0/8"]}}, ["no network"] * 2),
    ("one", {"network": {"allowOut": ["127.0.0.2"]}}, ["hello", 403]),
    ("one", {"allow_internet_access": False, "network": {"allowOut": ["127.0.0.2"]}},
     ["hello", 403]),
    ("one", {"network": {"allowOut": ["WHERE"], "denyOut": ["0.0.0.0/0"]}}, ["hello", 403]),
    ("one", {"network": {"allowOut": ["api.example.com", "both.example", "plain.example",
                                      "*.example.org", "a.example.org", "both.example:8080"]}},
     [403, 403]),
    ("all", {"allow_internet_access": True}, [403, "hello"]),
    ("all", {"network": {"allowOut": ["0.0.0.0/0"]}}, [403, 403]),
    ("all", {"network": {"allowOut": ["1.1.1.1", "2606:4700::1111", "x.example"]}}, [403, 403]),
    ("other", {"allow_internet_access": True}, [403, "hello"]),
    ("other", {"allow_internet_access": None, "network": None}, [403, "hello"])])
def test_what_a_client_says_is_what_its_sandbox_reaches(keyed, where, elsewhere, name, body,
                                                        answers):
    body = json.loads(json.dumps(body).replace("WHERE", where))
    with created(keyed[name], **body) as sandbox:
        assert fetch(keyed[name], sandbox, where, elsewhere) == answers
        if answers != ["no network"] * 2:
            assert fetch(keyed[name], sandbox, METADATA) == [403]


@pytest.mark.parametrize("name, network, status, why", [
    ("one", {"allowOut": ["0.0.0.0/0"]}, 403, "network.allowOut 'all'"),
    ("one", {"allowOut": ["127.0.0.3"]}, 403, "network.allowOut '127.0.0.3:*'"),
    ("one", {"allowOut": ["api.example.com", "evil.example"]}, 403, "'evil.example:443'"),
    ("one", {"allowOut": ["api.example.com:80"]}, 403, "'api.example.com:80'"),
    ("one", {"allowOut": ["*.example.com"]}, 403, "'*.example.com:443'"),
    ("other", {"allowOut": ["127.0.0.2"]}, 403, "'127.0.0.2:*'"),
    ("all", {"allowOut": ["127.0.0.2"]}, 403, "'127.0.0.2:*'"),
    ("all", {"allowOut": ["169.254.169.254"]}, 403, "'169.254.169.254:*'"),
    ("all", {"allowOut": ["::1"]}, 403, "'[::1]:*'"),
    ("all", {"allowOut": ["8.8.8.0/24"]}, 400, "network.allowOut: '8.8.8.0/24'"),
    ("all", {"allowOut": ["https://a.example/"]}, 400, "network.allowOut: 'https://a.example/'"),
    ("all", {"allowOut": ["localhost"]}, 400, "localhost"),
    ("all", {"allowOut": [""]}, 400, "use HOST:PORT"),
    ("all", {"allowOut": [None]}, 400, "allowOut"),
    ("all", {"allowOut": "1.1.1.1"}, 400, "allowOut"),
    ("all", {"denyOut": ["8.8.8.8"]}, 400, "network.denyOut: '8.8.8.8'"),
    ("one", {"egressProxy": {"address": "a:1"}}, 400, "egressProxy"),
    ("one", {"rules": {"a.example": []}}, 400, "network.rules")])
def test_what_is_not_permitted_or_not_possible_is_refused_by_name(keyed, name, network, status,
                                                                  why):
    client = keyed[name]
    answer = client.control("POST", "/v2/sandboxes", {
        "templateID": "base", "allow_internet_access": True, "network": network})
    assert error(answer)[0] == status and why in error(answer)[1], answer.body
    assert client.control("GET", "/v2/sandboxes").json == []


def test_an_update_says_again_what_holds_or_is_refused(keyed, where, elsewhere):
    one = keyed["one"]
    allowed, denied = {"allowOut": ["127.0.0.2"]}, {"denyOut": ["0.0.0.0/0"]}

    def statuses(body):
        with created(one, **body) as sandbox:
            path = "/sandboxes/%s/network" % sandbox["sandboxID"]
            yield [one.control("PUT", path, update).status for update in (
                {}, allowed, denied, {"allow_internet_access": False},
                {"allowOut": ["evil.example"]})]
            yield fetch(one, sandbox, where, elsewhere)
    assert list(statuses({"network": allowed})) == [[400, 204, 400, 400, 403], ["hello", 403]]
    assert list(statuses({"network": denied})) == [[204, 400, 204, 204, 403], ["no network"] * 2]
    assert list(statuses({})) == [[204, 400, 400, 400, 403], [403, "hello"]]


def test_contexts_of_a_sandbox_share_its_destinations(keyed, where):
    one = keyed["one"]
    with created(one, network={"allowOut": ["127.0.0.2"]}) as sandbox:
        made = one.data(sandbox, 49999, "POST", "/contexts", {}).json
        body = {"code": FETCH + "fetch(%r)" % where, "context_id": made["id"]}
        assert b'"hello"' in one.data(sandbox, 49999, "POST", "/execute", body).body


SDK = """
import os, sys
from e2b_code_interpreter import Sandbox
fetch = sys.argv[1]
with Sandbox.create(network={"allow_out": ["127.0.0.2"], "deny_out": ["0.0.0.0/0"]}) as sandbox:
    print(sandbox.run_code(fetch).text)
    print(sandbox.commands.run("curl -s http://" + sys.argv[2]).stdout)
with Sandbox.create(allow_internet_access=False) as sandbox:
    print(sandbox.run_code(fetch).text)
try:
    Sandbox.create(network={"allow_out": ["127.0.0.3"]})
except Exception as e:
    print(type(e).__name__, "127.0.0.3:*" in str(e))
"""


def test_the_sdk_opens_what_is_permitted(keyed, where):
    words = command("e2b-newest", "sdk_features.py")[:1]
    one = keyed["one"]
    address = one.server.address
    done = subprocess.run([*words, "-c", SDK, FETCH + "fetch(%r)" % where, where],
                          capture_output=True, text=True, timeout=WAIT, env={
                              "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "E2B_API_URL": address,
                              "E2B_SANDBOX_URL": address, "E2B_API_KEY": one.key["X-API-Key"]})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "hello", "hello", "no network", "SandboxException True"], done.stdout + done.stderr
