"""Destinations that clients open for their sandboxes, within what the operator permits.

The destinations are servers of this machine, which rules list by address.
"""
import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from destinations import FETCH, METADATA, elsewhere, where  # noqa: F401: fixtures
from server_process import ROOT, WAIT, Server
from test_keys import Client, create, keys

sys.path.insert(0, os.path.join(ROOT, "python"))
import droste                       # noqa: E402

NAMED = ["api.example.com:443", "*.example.org:443", "GET https://a.example/x/**"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory, where, elsewhere):
    """A server without keys: all sandboxes reach `elsewhere`, with a secret; clients may ask for
    `where`."""
    home = tmp_path_factory.mktemp("opened")
    (home / "secret").write_text("sk-0123456789")
    permitted = [word for rule in (where, *NAMED) for word in ("--client-net", rule)]
    server = Server(home, "--allow-net", elsewhere, "--secret",
                    "TOKEN=@%s for http://%s" % (home / "secret", elsewhere), *permitted)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def keyed(tmp_path_factory, where):
    """A server with keys: one that may ask for `where`, one for any public address, one for
    nothing, and an administrator."""
    home = tmp_path_factory.mktemp("keyed")
    made = {"one": create(home, "one", "--net", where, "--net", NAMED[0]),
            "all": create(home, "all", "--net", "all"), "other": create(home, "other"),
            "admin": create(home, "admin", "--scopes", "admin")}
    server = Server(home)
    yield {name: Client(server, key) for name, key in made.items()}
    assert server.stop() == 0


def fetch(client, sandbox, *places):
    """What a sandbox gets from each place, or the status of the refusal."""
    code = FETCH + "\n[fetch(where) for where in %r]" % (places,)
    answer = client.ask("POST", sandbox + "/execute", {"code": code})
    assert answer.json["status"] == "ok", answer.body
    return json.loads(answer.json["echo"].replace("'", '"'))


@contextlib.contextmanager
def sandbox(client, path="/v1/sandboxes", **body):
    answer = client.ask("POST", path, body)
    assert answer.status == 201, answer.body
    made = "/v1/sandboxes/" + answer.json["id"]
    try:
        yield made
    finally:
        assert client.ask("DELETE", made).status == 204


def refusal(client, path="/v1/sandboxes", **body):
    """The status, code and message of a sandbox that is not made."""
    answer = client.ask("POST", path, body)
    assert answer.status >= 400, answer.body
    assert client.ask("GET", "/v1/sandboxes").json["sandboxes"] == []
    return answer.status, answer.code, answer.json["error"]["message"]


def test_a_sandbox_has_what_its_client_opened_besides_the_servers_own(opened, where, elsewhere):
    with sandbox(opened) as path:
        assert fetch(opened, path, where, elsewhere, METADATA) == [403, "hello", 403]
    with sandbox(opened, allow_net=[where]) as path:
        assert fetch(opened, path, where, elsewhere, METADATA) == ["hello", "hello", 403]
        fork = "/v1/sandboxes/" + opened.ask("POST", path + "/fork").json["id"]
        assert fetch(opened, fork, where, METADATA) == ["hello", 403]
        assert opened.ask("DELETE", fork).status == 204
    with sandbox(opened, options={"allow-net": where}) as path:
        assert fetch(opened, path, where, METADATA) == ["hello", 403]


def test_none_leaves_out_the_servers_own_destinations_and_secrets(opened, where, elsewhere):
    code = "import os, urllib.request\nurllib.request.urlopen(urllib.request.Request('http://%s/'" \
           ", headers={'Authorization': 'Bearer ' + os.environ.get('TOKEN', '')})).read()" % (
               elsewhere)
    with sandbox(opened) as path:       # the answer repeats the secret, which is overwritten
        assert opened.execute(path, code)["echo"] == repr(b"Bearer " + b"*" * 13)
    with sandbox(opened, allow_net=["none"]) as path:
        assert fetch(opened, path, where, elsewhere) == ["no network"] * 2
        assert opened.execute(path, "import os; 'TOKEN' in os.environ")["echo"] == "False"
    with sandbox(opened, allow_net=["none", where]) as path:
        assert fetch(opened, path, where, elsewhere) == ["hello", 403]


@pytest.mark.parametrize("rule", [
    *NAMED, "a.example.org:443", "*.b.example.org:443", "ask api.example.com:443",
    "https://api.example.com/**", "GET https://a.example/x/**"])
def test_a_rule_within_what_is_permitted_opens(opened, rule):
    with sandbox(opened, allow_net=[rule]) as path:
        assert opened.execute(path, "1")["echo"] == "1"


@pytest.mark.parametrize("rule", [
    "all", "api.example.com:80", "api.example.com:*", "*.api.example.com:443", "example.org:443",
    "*.example.org:*", "*.org:443", "https://a.example/x/**", "GET https://a.example/y/**",
    "127.0.0.1:22", "169.254.169.254:80", "evil.example:443"])
def test_a_rule_beyond_what_is_permitted_is_refused_by_name(opened, where, rule):
    status, code, text = refusal(opened, allow_net=[where, rule])
    assert (status, code) == (403, "permission") and "'%s'" % rule in text
    assert refusal(opened, options={"allow-net": [rule]})[:2] == (403, "permission")


@pytest.mark.parametrize("rules, status", [
    (["api.example.com"], 400), (["localhost:80"], 400), ([""], 400), ([1], 400), ("all", 400),
    (["a.example:1\0"], 400), ([None], 400), (["api.example.com:443", "none"], 201), ([], 201)])
def test_what_is_no_list_of_rules_is_refused(opened, rules, status):
    answer = opened.ask("POST", "/v1/sandboxes", {"allow_net": rules})
    assert answer.status == status, answer.body
    if status == 201:
        assert opened.ask("DELETE", "/v1/sandboxes/" + answer.json["id"]).status == 204


def test_each_key_has_its_own_destinations(keyed, where):
    """Others are refused to it, also an administrator's; `all` is public addresses only."""
    with sandbox(keyed["one"], allow_net=[where]) as path:
        assert fetch(keyed["one"], path, where, METADATA) == ["hello", 403]
    with sandbox(keyed["one"]) as path:
        assert fetch(keyed["one"], path, where) == ["no network"]
    for name in ("other", "admin", "all"):
        assert refusal(keyed[name], allow_net=[where])[:2] == (403, "permission")
        with sandbox(keyed[name]) as path:
            assert fetch(keyed[name], path, where) == ["no network"]
    for rule in ("all", "1.1.1.1:53", "*.example:*"):
        with sandbox(keyed["all"], allow_net=[rule]) as path:
            assert fetch(keyed["all"], path, where, METADATA) == [403, 403]
        assert refusal(keyed["one"], allow_net=[rule])[0] == 403
    for rule in ("169.254.169.254:80", "127.0.0.1:80", "[::1]:80", "[64:ff9b::a9fe:a9fe]:80"):
        assert refusal(keyed["all"], allow_net=[rule])[0] == 403


def test_a_template_and_what_starts_from_it_have_the_same_bound(keyed, where):
    """Both have a network, or neither has."""
    one = keyed["one"]
    body = {"cells": ["x = 1"], "options": {"allow-net": where}}
    assert keyed["other"].ask("POST", "/v1/templates", body).status == 403
    made = one.ask("POST", "/v1/templates", body)
    assert made.status == 201, made.body
    path = "/v1/templates/%s/sandboxes" % made.json["id"]
    assert refusal(one, path, allow_net=["b.example:443"])[:2] == (403, "permission")
    assert "allow-net" in refusal(one, path)[2]
    with sandbox(one, path, allow_net=[where]) as started:
        assert fetch(one, started, where, METADATA) == ["hello", 403]
    with sandbox(one, path, allow_net=[NAMED[0]]) as started:
        assert fetch(one, started, where) == [403]
    assert one.ask("DELETE", "/v1/templates/" + made.json["id"]).status == 204


def test_runs_cannot_open_destinations(opened, where):
    answer = opened.ask("POST", "/v1/runs", {"question": "q", "options": {"allow-net": where}})
    assert answer.status == 400 and "'allow-net' is not an option" in answer.body.decode()


def test_the_python_client_opens_destinations(opened, where):
    """As a local session; what is not permitted raises."""
    with droste.Interpreter(server=opened.address, allow_net=[where]) as interp:
        assert interp.execute(FETCH + "fetch(%r)" % where).echo == "'hello'"
    with pytest.raises(droste.PermissionDenied, match="'evil.example:443'"):
        with droste.Interpreter(server=opened.address, allow_net=[where, "evil.example:443"]):
            pass


def test_destinations_of_a_key_are_listed(tmp_path):
    create(tmp_path, "k", "--net", NAMED[0], "--net", NAMED[2])
    assert json.loads(keys(tmp_path, "ls", "--json").stdout)[0]["net"] == [NAMED[0], NAMED[2]]
    assert "net: %s, %s" % (NAMED[0], NAMED[2]) in keys(tmp_path, "ls").stdout
    for rule in ("none", "localhost:80", ""):
        done = keys(tmp_path, "create", "no", "--net", rule)
        assert done.returncode == 2 and "--net" in done.stderr
    assert keys(tmp_path, "ls", "--net", "all").returncode == 2


def test_a_server_does_not_start_with_what_is_no_rule(tmp_path):
    done = subprocess.run([os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste"), "serve",
                           "--client-net", "none", "--check"], capture_output=True, text=True,
                          timeout=WAIT, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert done.returncode == 2 and "--client-net: allow-net 'none'" in done.stderr


# ---- destinations that ask ----

@contextlib.contextmanager
def hook(decide):
    """The URL of a webhook that decides as `decide` says of the question's arguments."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["approval"]
            body = json.dumps(decide(question["tool"], question["arguments"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield "http://127.0.0.1:%d/" % server.server_port
        server.shutdown()
        thread.join()


def test_a_destination_that_a_client_opens_with_ask_is_asked_about(tmp_path, where, elsewhere):
    """The operator's webhook decides, once for each sandbox; what is not asked about goes on."""
    asked = []

    def decide(tool, arguments):
        asked.append((tool, "%s:%d" % (arguments["host"], arguments["port"])))
        return {"decision": "approve" if asked[-1][1] == where else "deny"}

    with hook(decide) as url:
        server = Server(tmp_path, "--client-net", where, "--client-net", "ask " + elsewhere,
                        "--ask-webhook", url,
                        env={"DROSTE_ASK_WEBHOOK_SECRET": "a secret of the webhook"})
        try:
            with sandbox(server, allow_net=["ask " + where, "ask " + elsewhere]) as path:
                assert fetch(server, path, where, elsewhere, where, elsewhere, METADATA) == [
                    "hello", 403, "hello", 403, 403]
            assert asked == [("allow-net", where), ("allow-net", elsewhere)]
            with sandbox(server, allow_net=[where]) as path:
                assert fetch(server, path, where) == ["hello"]
            assert len(asked) == 2
            # What the operator permits with `ask` only, a client cannot open without.
            assert refusal(server, allow_net=[elsewhere])[:2] == (403, "permission")
        finally:
            assert server.stop() == 0


def test_without_anything_that_answers_such_a_destination_stays_closed(opened, where):
    with sandbox(opened, allow_net=["ask " + where]) as path:
        assert fetch(opened, path, where) == [403]


def test_a_guest_does_not_reach_its_server(tmp_path, where):
    """Neither directly nor through the proxy, by none of its names, though all public addresses are
    open to it; what it may reach, and a server of its own, it does."""
    key = create(tmp_path, "all", "--net", "all", "--net", where)
    server = Server(tmp_path, "--loopback", "yes")
    try:
        client, port = Client(server, key), server.port
        with sandbox(client, allow_net=["all", where]) as path:
            names = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "127.1",
                     "[::ffff:127.0.0.1]", "localhost.", "127.0.0.1.nip.io"]
            seen = fetch(client, path, where, *("%s:%d" % (name, port) for name in names))
            assert seen[0] == "hello"
            assert all(one in (400, 403, 502, 504, "no network") for one in seen[1:]), seen
            code = """
import http.server, os, socket, threading, urllib.request
def direct(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        return False
own = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
[direct(%d), direct(own.server_address[1])]""" % port
            answer = client.ask("POST", path + "/execute", {"code": code})
            assert answer.json["echo"] == "[False, True]", answer.body
    finally:
        server.stop()
