"""Keys: what they open, and that nobody reaches what belongs to another one."""
import json
import os
import re
import signal
import stat
import subprocess

import pytest

from server_process import DROSTE, WAIT, Server, until

PARTS = {"{id}": "ID", "{name}": "NAME"}


def keys(home, *words):
    """Runs `droste keys`."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
           "DROSTE_HOME": os.path.join(str(home), "data")}
    return subprocess.run([DROSTE, "keys", *words], capture_output=True, text=True, env=env,
                          timeout=WAIT)


def create(home, *words):
    """The text of a new key."""
    done = keys(home, "create", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Client:
    """A server, asked with one key."""

    def __init__(self, server, key):
        self.server, self.key = server, key

    def ask(self, method, path, body=None, headers=None):
        return self.server.ask(method, path, body, {"X-API-Key": self.key, **(headers or {})})

    def create(self, **body):
        answer = self.ask("POST", "/v1/sandboxes", body)
        assert answer.status == 201, answer.body
        return "/v1/sandboxes/" + answer.json["id"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A server with keys: of two clients, an administrator, a reader, and for metrics."""
    home = tmp_path_factory.mktemp("keyed")
    made = {name: create(home, name, "--scopes", "read,sandboxes,runs,models")
            for name in ("one", "other")}
    for scope in ("admin", "read", "metrics"):
        made[scope] = create(home, "a-" + scope, "--scopes", scope)
    server = Server(home)
    yield server, {name: Client(server, key) for name, key in made.items()}
    assert server.stop() == 0


def test_a_key_is_shown_once_and_kept_as_its_hash(tmp_path):
    """In a file that only its owner reads, in the form that E2B's clients want."""
    text = create(tmp_path, "ci", "--limit", "sandboxes=3", "--limit", "memory=512M")
    assert re.fullmatch("e2b_[0-9a-f]{40}", text)
    path = tmp_path / "data" / "keys.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text not in path.read_text() and text[4:] not in path.read_text()
    listed = json.loads(keys(tmp_path, "ls", "--json").stdout)
    assert [(k["name"], k["scopes"], k["limits"]) for k in listed] == \
        [("ci", "read,sandboxes", "sandboxes=3 memory=512M")]
    assert text not in keys(tmp_path, "ls").stdout and "ci" in keys(tmp_path, "ls").stdout
    assert keys(tmp_path, "revoke", listed[0]["id"]).returncode == 0
    assert json.loads(keys(tmp_path, "ls", "--json").stdout) == []
    assert keys(tmp_path, "revoke", "ci").returncode == 2


@pytest.mark.parametrize("words, what", [
    (["--scopes", "all"], "is not one of read"), (["--limit", "sandboxes"], "not a limit"),
    (["--limit", "sandboxes=0"], "valid"), (["--limit", "sandboxes=1.5"], "valid"),
    (["--limit", "memory=1"], "memory"), (["--limit", "device=disk"], "valid"),
    (["--limit", "device=nvidia,disk"], "valid"), (["--limit", "life=soon"], "valid"),
    (["--expires", "0"], "expires"), (["x" * 65], "64")])
def test_what_a_key_cannot_be_is_named(tmp_path, words, what):
    """And no key comes of it."""
    done = keys(tmp_path, "create", *words)
    assert done.returncode == 2 and what in done.stderr
    assert not (tmp_path / "data" / "keys.json").exists()


def test_keys_that_are_created_at_once_all_count(tmp_path):
    """Each change holds a lock."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_HOME": str(tmp_path)}
    running = [subprocess.Popen([DROSTE, "keys", "create", "k%d" % i], env=env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for i in range(8)]
    assert [one.wait(WAIT) for one in running] == [0] * 8
    listed = json.loads((tmp_path / "keys.json").read_text())["keys"]
    assert sorted(one["name"] for one in listed) == ["k%d" % i for i in range(8)]


def test_without_a_key_nothing_but_health_is_answered(keyed):
    """Nor with a wrong one; both ways to send one are accepted."""
    server, clients = keyed
    for path in ("/health", "/ready", "/openapi.json"):
        probe = server.ask("HEAD", path)
        assert (probe.status, probe.body) == (200, b"") and int(probe.headers["Content-Length"]) > 0
        assert server.ask("GET", path).status == 200
    key = clients["one"].key
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": key[:-1] + "g"}, {"X-API-Key": key[4:]},
                    {"Authorization": key}, {"Authorization": "Basic " + key},
                    {"Cookie": "key=" + key}):
        for path in ("/v1/sandboxes", "/v1/nothing"):
            answer = server.ask("GET", path, headers=headers)
            assert (answer.status, answer.code) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    for headers in ({"X-API-Key": key}, {"Authorization": "Bearer " + key},
                    {"authorization": "bearer " + key}):
        assert server.ask("GET", "/v1/sandboxes", headers=headers).status == 200
    assert clients["one"].ask("GET", "/v1/nothing").status == 404


def example(schema):
    """A value that fits a schema of the server's document."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: example(schema["properties"][name]) for name in schema.get("required", [])}
    if kind == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    return "x"


def test_an_administrator_reaches_what_every_key_has(keyed):
    """Other keys do not (test_owners.py)."""
    server, clients = keyed
    path = clients["one"].create()
    for client, status in (("one", 200), ("admin", 200), ("other", 404)):
        listed = clients[client].ask("GET", "/v1/sandboxes").json["sandboxes"]
        assert (path.rpartition("/")[2] in [one["id"] for one in listed]) == (status == 200)
        assert clients[client].ask("POST", path + "/execute", {"code": "1"}).status == status
    assert clients["one"].ask("DELETE", path).status == 204


def test_a_fork_belongs_to_the_owner(keyed):
    """Also one that an administrator makes."""
    _, clients = keyed
    path = clients["one"].create()
    answer = clients["admin"].ask("POST", path + "/fork")
    fork = "/v1/sandboxes/" + answer.json["id"]
    assert clients["one"].ask("GET", fork).status == 200
    assert clients["other"].ask("GET", fork).status == 404
    for one in (path, fork):
        assert clients["one"].ask("DELETE", one).status == 204


def test_scopes(keyed):
    """A reader sees its objects, which are none, and changes nothing."""
    _, clients = keyed
    for client, method, status in [("read", "GET", 200), ("read", "POST", 403),
                                   ("metrics", "GET", 403), ("metrics", "POST", 403)]:
        answer = clients[client].ask(method, "/v1/sandboxes", {} if method == "POST" else None)
        assert answer.status == status and (status == 200 or answer.code == "scope")


@pytest.mark.parametrize("origin, status", [
    (None, 200), ("http://evil.example", 403), ("null", 403), ("http://localhost:1", 403),
    ("http://HOST", 200)])
def test_pages_of_other_sites_are_refused_with_a_key_too(keyed, origin, status):
    """Any host may be the server's; its own pages may use it."""
    server, clients = keyed
    host = "sandboxes.example:80"
    headers = {"Host": host, **({"Origin": origin.replace("HOST", host)} if origin else {})}
    assert clients["one"].ask("GET", "/v1/sandboxes", headers=headers).status == status
    assert server.ask("GET", "/health", headers=headers).status == status


@pytest.mark.parametrize("hangup", [False, True])
def test_keys_change_while_the_server_runs(tmp_path, hangup):
    """A new one opens it, a revoked one does not, and its sandboxes end; those of others stay."""
    old, kept = create(tmp_path, "old"), create(tmp_path, "kept")
    server = Server(tmp_path)
    try:
        clients = [Client(server, old), Client(server, kept)]
        paths = [client.create() for client in clients]
        new = Client(server, create(tmp_path, "new"))
        assert keys(tmp_path, "revoke", "old").returncode == 0
        if hangup:
            server.process.send_signal(signal.SIGHUP)
        until(lambda: clients[0].ask("GET", paths[0]).status == 401)
        until(lambda: new.ask("GET", "/v1/sandboxes").status == 200)
        assert clients[1].ask("GET", paths[1]).status == 200
        admin = Client(server, create(tmp_path, "--scopes", "admin"))
        until(lambda: admin.ask("GET", "/v1/sandboxes").status == 200)
        until(lambda: len(admin.ask("GET", "/v1/sandboxes").json["sandboxes"]) == 1)
        (tmp_path / "data" / "keys.json").write_text("{")
        server.process.send_signal(signal.SIGHUP)
        assert clients[1].ask("GET", paths[1]).status == 200   # a broken file changes nothing
    finally:
        assert server.stop() == 0


def test_an_expired_key_is_refused(tmp_path):
    """Its time is in the file."""
    key = create(tmp_path, "short", "--expires", "1h")
    path = tmp_path / "data" / "keys.json"
    server = Server(tmp_path)
    try:
        client = Client(server, key)
        assert client.ask("GET", "/v1/sandboxes").status == 200
        text = re.sub(r'"expires_ms": \d+', '"expires_ms": 1', path.read_text())
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").chmod(0o600)
        path.with_suffix(".tmp").rename(path)
        until(lambda: client.ask("GET", "/v1/sandboxes").status == 401)
    finally:
        assert server.stop() == 0


def test_with_keys_any_address_is_served(tmp_path):
    """Without them only loopback; a file of keys that others may write is refused."""
    key = create(tmp_path, "one")
    server = Server(tmp_path, "--listen", "0.0.0.0:0")
    try:
        assert Client(server, key).ask("GET", "/v1/sandboxes").status == 200
    finally:
        assert server.stop() == 0
    path = tmp_path / "data" / "keys.json"

    def fails(*flags):
        return subprocess.run([DROSTE, "serve", "--listen", "0.0.0.0:0", *flags],
                              capture_output=True, text=True, timeout=WAIT,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert "loopback" in fails("--keys", "none").stderr
    path.chmod(0o666)
    assert "others may write" in fails("--keys", str(path)).stderr
    assert fails("--keys", str(tmp_path / "none")).returncode == 2
