"""Limits of keys, waiting in turn, requests that are repeated, logs, figures."""
import concurrent.futures
import http.client
import json
import re
import threading

import pytest

from server_process import WAIT, Server, until
from test_keys import Client, create


@pytest.fixture
def limited(tmp_path):
    """limited({name: limits}, flags…): a server, and its clients by name."""
    servers = []

    def run(names, *flags, **more):
        made = {name: create(tmp_path, name, *(w for one in limits for w in ("--limit", one)))
                for name, limits in names.items()}
        servers.append(Server(tmp_path, *flags, **more))
        return {name: Client(servers[-1], key) for name, key in made.items()}
    yield run
    for server in servers:
        assert server.stop() == 0


def test_the_sandboxes_of_a_key_are_limited(limited):
    """Forks count; a place is free again when one ends; others have their own."""
    clients = limited({"two": ["sandboxes=2"], "free": []})
    first = clients["two"].create()
    fork = clients["two"].ask("POST", first + "/fork")
    assert fork.status == 201
    for path in ("/v1/sandboxes", first + "/fork"):
        refused = clients["two"].ask("POST", path, {})
        assert (refused.status, refused.code) == (429, "sandboxes")
        assert int(refused.headers["Retry-After"]) >= 1
    for _ in range(3):
        clients["free"].create()
    assert clients["two"].ask("DELETE", first).status == 204
    clients["two"].create()


def test_starts_a_second_are_limited(limited):
    """The answer says when to ask again, and then it is allowed."""
    clients = limited({"slow": ["starts=0.5"], "free": []})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:    # not seconds after each other
        answers = list(pool.map(lambda _: clients["slow"].ask("POST", "/v1/sandboxes", {}),
                                range(8)))
    assert {answer.status for answer in answers} == {201, 429}
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.code == "rate"
    assert 1 <= int(refused.headers["Retry-After"]) <= 2
    for _ in range(5):
        clients["free"].create()
    until(lambda: clients["slow"].ask("POST", "/v1/sandboxes", {}).status == 201)


def test_devices_are_those_that_the_key_permits(limited):
    """By the same text. What is permitted fails only where the machine has none."""
    clients = limited({"gpu": ["device=nvidia:0"], "other": []})
    for name, device, refused in [("gpu", "nvidia", True), ("gpu", "nvidia:0", False),
                                  ("gpu", "nvidia:1", True), ("gpu", "nvidia:00", True),
                                  ("other", "nvidia:0", True), ("other", "nvidia", True)]:
        answer = clients[name].ask("POST", "/v1/sandboxes", {"options": {"device": device}})
        assert (answer.status, answer.code) == (403, "permission") if refused else \
            answer.status == 201 or (answer.status, answer.code) == (404, "not_found"), answer.body
    assert clients["gpu"].ask("POST", "/v1/sandboxes", {}).status == 201


def test_life_idle_and_memory_are_those_of_the_key(limited):
    """What a client asks for is only ever less."""
    clients = limited({"small": ["life=100", "idle=50", "memory=64M"], "free": []})
    for body, life, idle in [({}, 100, 50), ({"life_seconds": 1000, "idle_seconds": 7}, 100, 7)]:
        path = clients["small"].create(**body)
        seen = clients["small"].ask("GET", path).json
        assert (seen["life_seconds"], seen["idle_seconds"]) == (life, idle)
    assert clients["free"].ask("GET", clients["free"].create()).json["life_seconds"] == 86400
    done = clients["small"].ask("POST", path + "/execute", {"code": "x = bytes(200 << 20)"}).json
    assert done["status"] != "ok"
    done = clients["free"].ask("POST", clients["free"].create() + "/execute",
                               {"code": "x = bytes(200 << 20)"}).json
    assert done["status"] == "ok"


def test_a_life_begins_when_the_sandbox_has_started(limited):
    """However long the start takes."""
    one = limited({"one": []})["one"]
    path = one.create(life_seconds=0.1, options={"setup-code": "import time; time.sleep(0.6)"})
    until(lambda: one.ask("GET", path).status == 404)


def test_requests_wait_for_a_place_and_keys_take_turns(limited):
    """Of a full server: the key that asked for one is served before the third of another that
    asked for many."""
    clients = limited({"many": [], "one": []}, "--max-sandboxes", "1", "--queue", "1h")
    held, order, lock = clients["many"].create(), [], threading.Lock()

    def ask(name):
        path = clients[name].create()
        with lock:
            order.append((name, path))
    threads = [threading.Thread(target=ask, args=("many",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    admin = Client(clients["one"].server, create_admin(clients["one"].server))

    def waiting():
        text = admin.ask("GET", "/metrics").body.decode()
        return int(re.search(r"^droste_creates_waiting (\d+)$", text, re.M).group(1))
    until(lambda: waiting() == 4)
    threads.append(threading.Thread(target=ask, args=("one",)))
    threads[-1].start()
    until(lambda: waiting() == 5)
    assert clients["many"].ask("DELETE", held).status == 204
    for n in range(5):
        until(lambda count=n + 1: len(order) == count)
        assert clients[order[n][0]].ask("DELETE", order[n][1]).status == 204
    for thread in threads:
        thread.join(WAIT)
    assert [name for name, _ in order].index("one") <= 1


def create_admin(server):
    """The key of an administrator of a running server, once the server has read it."""
    key = create(server.home, "--scopes", "admin")
    until(lambda: Client(server, key).ask("GET", "/v1/sandboxes").status == 200)
    return key


def test_waiting_for_a_place_ends(limited):
    """With an answer that says so; one whose client leaves is forgotten."""
    clients = limited({"one": []}, "--max-sandboxes", "1", "--queue", "0.3")
    path = clients["one"].create()
    refused = clients["one"].ask("POST", "/v1/sandboxes", {})
    assert (refused.status, refused.code) == (429, "capacity")
    gone = http.client.HTTPConnection("127.0.0.1", clients["one"].server.port, timeout=WAIT)
    gone.request("POST", "/v1/sandboxes", "{}", {"X-API-Key": clients["one"].key})
    gone.close()
    assert clients["one"].ask("DELETE", path).status == 204
    until(lambda: clients["one"].ask("POST", "/v1/sandboxes", {}).status == 201)


def test_a_repeated_request_has_its_effect_once(limited):
    """With the same answer; another body is refused, another client is another key."""
    clients = limited({"one": [], "other": []})

    def ask(name, body, key="a-1", path="/v1/sandboxes"):
        return clients[name].ask("POST", path, body, {"Idempotency-Key": key})
    first, again = ask("one", {"metadata": {"n": "1"}}), ask("one", {"metadata": {"n": "1"}})
    assert first.status == again.status == 201 and first.body == again.body
    assert first.headers["Location"] == again.headers["Location"]
    assert (first.headers["Idempotency-Replayed"], again.headers["Idempotency-Replayed"]) == \
        (None, "true")
    mismatch = ask("one", {"metadata": {"n": "2"}})
    assert (mismatch.status, mismatch.code) == (409, "idempotency_request_mismatch")
    assert ask("other", {"metadata": {"n": "1"}}).json["id"] != first.json["id"]
    assert ask("one", {"metadata": {"n": "1"}}, "a-2").json["id"] != first.json["id"]
    fork = first.headers["Location"] + "/fork"
    assert ask("one", {}, "f", fork).json["id"] == ask("one", {}, "f", fork).json["id"]
    assert ask("one", {}, "x" * 256).status == ask("one", {}, "a b").status == 400
    assert len(clients["one"].ask("GET", "/v1/sandboxes").json["sandboxes"]) == 3


def test_a_refusal_is_not_kept(limited):
    """What failed for a limit may succeed the next time."""
    clients = limited({"one": ["sandboxes=1"]})
    path = clients["one"].create()
    headers = {"Idempotency-Key": "k"}
    assert clients["one"].ask("POST", "/v1/sandboxes", {}, headers).status == 429
    assert clients["one"].ask("DELETE", path).status == 204
    assert clients["one"].ask("POST", "/v1/sandboxes", {}, headers).status == 201


def test_a_client_that_left_gets_its_sandbox_when_it_asks_again(limited):
    """It waits for a place; while it does, a second request is told so. Without the key, nothing
    is created for a client that has left."""
    clients = limited({"one": []}, "--max-sandboxes", "1", "--queue", "1h")
    held = clients["one"].create()
    headers = {"X-API-Key": clients["one"].key, "Idempotency-Key": "mine"}
    gone = http.client.HTTPConnection("127.0.0.1", clients["one"].server.port, timeout=WAIT)
    gone.request("POST", "/v1/sandboxes", "{}", headers)

    def repeated():
        return clients["one"].ask("POST", "/v1/sandboxes", "{}", {"Idempotency-Key": "mine"})
    admin = Client(clients["one"].server, create_admin(clients["one"].server))
    until(lambda: b"\ndroste_creates_waiting 1\n" in admin.ask("GET", "/metrics").body)
    gone.close()
    early = repeated()
    assert (early.status, early.code) == (409, "idempotency_in_progress")
    assert clients["one"].ask("DELETE", held).status == 204
    until(lambda: repeated().status == 201)
    listed = clients["one"].ask("GET", "/v1/sandboxes").json["sandboxes"]
    assert [one["id"] for one in listed] == [repeated().json["id"]]


def test_logs_are_json_and_have_no_secrets(limited, tmp_path):
    """Each request has a line with its id, and what changes something one of the audit log; texts
    of clients are escaped. Nor have traces, metrics and errors."""
    log, audit, traces = tmp_path / "log", tmp_path / "audit", tmp_path / "traces"
    with log.open("w") as stderr:
        clients = limited({"one": []}, "--log-level", "debug", "--audit-log", str(audit),
                          "--traces", str(traces), stderr=stderr)
        one = clients["one"]
        answer = one.ask("POST", "/v1/sandboxes", {"metadata": {"k": "SECRET-1"}},
                         {"X-Request-Id": "mine-1"})
        assert answer.headers["X-Request-Id"] == "mine-1"
        path = answer.headers["Location"]
        one.ask("POST", path + "/execute", {"code": "'SECRET-2'"})
        one.ask("PUT", path + "/files?path=/tmp/SECRET-3", b"SECRET-4")
        other = one.ask("GET", "/v1/%22%0a%7b", headers={"X-Request-Id": "a b"})
        assert re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", other.headers["X-Request-Id"])
        one.server.ask("GET", "/v1/sandboxes", headers={"X-API-Key": "SECRET-5"})
        one.server.ask("GET", "/health")
        wrong = one.ask("GET", path + "/files?path=/tmp/none", headers={"Cookie": "SECRET-6"})
        assert wrong.status == 404
        one.ask("DELETE", path)
        until(lambda: audit.read_text().count("\n") == 5)
        until(lambda: log.read_text().count('"request"') == 8)
        until(lambda: traces.read_text().count("\n") == 7)
    lines = {(e["method"], e["status"]): e for e in map(json.loads, audit.read_text().splitlines())}
    assert set(lines) == \
        {("POST", 201), ("POST", 200), ("PUT", 204), ("GET", 401), ("DELETE", 204)}
    created = lines["POST", 201]
    assert created["request_id"] == "mine-1" and created["created"] == path
    assert created["key_name"] == "one" and created["client"].startswith("127.0.0.1:")
    assert audit.stat().st_mode & 0o777 == 0o600
    for text in (audit.read_text(), log.read_text(), traces.read_text(), wrong.body.decode()):
        assert "SECRET" not in text and one.key not in text
    for line in log.read_text().splitlines():
        assert json.loads(line)["level"] in ("info", "debug", "warning", "error")


def test_figures(limited):
    """In Prometheus' format; they need a scope."""
    clients = limited({"one": ["sandboxes=1"]})
    path = clients["one"].create()
    clients["one"].ask("POST", path + "/execute", {"code": "1"})
    assert clients["one"].ask("POST", "/v1/sandboxes", {}).status == 429
    assert clients["one"].ask("GET", "/metrics").code == "scope"
    metrics = create(clients["one"].server.home, "--scopes", "metrics")
    reader = Client(clients["one"].server, metrics)
    until(lambda: reader.ask("GET", "/metrics").status == 200)
    answer = reader.ask("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text, found, kinds = answer.body.decode(), {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kinds[name] = line.split()
        elif not line.startswith("#"):
            assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+', line), line
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
            assert re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name) in kinds or name in kinds \
                or name.split("{")[0] in kinds
    assert found["droste_sandboxes"] == found["droste_cells_total"] == 1
    assert found["droste_sandboxes_created_total"] == 1
    assert found['droste_refused_total{reason="sandboxes"}'] == 1
    assert found["droste_cell_seconds_count"] == 1 == found["droste_create_seconds_count"]
    assert found['droste_cell_seconds_bucket{le="+Inf"}'] == 1
    key = [name for name in found if name.startswith("droste_key_sandboxes") and found[name] == 1]
    assert len(key) == 1


def test_figures_on_loopback_need_no_key(server):
    """Where nothing else does."""
    assert b"droste_sandboxes " in server.ask("GET", "/metrics").body
