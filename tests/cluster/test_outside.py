"""A cluster seen from outside: the console, /v1/cluster, /metrics, traces, `droste cluster status`
and `doctor`."""
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from jetstream import JetStream
from nodes import (DROSTE, ROOT, Nats, Node, Provider, free_port, get, has_nats, is_open, put,
                   queue_nodes, wait_until)

sys.path.append(os.path.join(ROOT, "tests", "e2e"))
from browser import browser, needs_browser  # noqa: E402, F401: a fixture

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with queue_nodes(tmp_path_factory.mktemp("cluster"), 2, "--runs", "2") as made:
        wait_until(lambda: len(up(made[0][0])) == 2)
        yield made


def up(node):
    answer = node.ask("GET", "/v1/cluster")[1]
    return {n["name"]: n for n in answer["nodes"] if n["state"] == "up"}


def droste(*words, status=0):
    done = subprocess.run([DROSTE, "cluster", *words], capture_output=True, text=True, timeout=60)
    assert status in (None, done.returncode), (done.stdout, done.stderr)
    return done.stdout + done.stderr


def checks(nats, status=0):
    found = json.loads(droste("doctor", "--join", nats.url, "--json", status=status))["checks"]
    return {c["name"]: c for c in found}


def test_status_shows_nodes_and_the_runs_of_each_key_and_priority(cluster):
    nodes, nats, provider = cluster
    provider.hold()
    for i in range(6):
        put(nodes, "run-1%d" % i, priority=2)
    found = {}

    def both_are_up():
        found.update(json.loads(droste("status", "--join", nats.url, "--json")))
        return {n["name"]: n["state"] for n in found["nodes"]} == {"node0": "up", "node1": "up"}
    wait_until(both_are_up)
    assert {n["address"] for n in found["nodes"]} == {"127.0.0.1:%d" % n.port for n in nodes}
    lane, = [n for n in found["queue"] if n["priority"] == 2]
    assert lane["key"] == "local" and lane["running"] <= 4 and found["runs"] >= 1
    assert lane["waiting"] + lane["running"] <= 6
    text = droste("status", "--join", nats.url)
    assert "node1" in text and "0 dead letters" in text
    provider.release()
    for i in range(6):
        get(nodes, "run-1%d" % i)


def test_any_node_answers_for_all_and_metrics_name_them(cluster):
    nodes = cluster[0]
    put(nodes, "run-20")
    get(nodes, "run-20")
    for node in nodes:
        wait_until(lambda node=node: len(up(node)) == 2 and
                   sum(n["tokens"] for n in up(node).values()) > 0)
        text = node.text("/metrics")
        for name in ("node0", "node1"):
            assert re.search('^droste_cluster_node_up{node="%s",version="[^"]+"} 1$' % name, text,
                             re.M)


def test_a_server_in_no_cluster_has_no_nodes(tmp_path):
    process = subprocess.Popen([DROSTE, "serve", "--listen", "127.0.0.1:0"], text=True,
                               stdout=subprocess.PIPE, env={
                                   "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    try:
        node = Node.__new__(Node)
        node.port = int(process.stdout.readline().strip().rpartition(":")[2])
        assert node.ask("GET", "/v1/cluster")[1] == {"nodes": [], "queued": 0}
        assert "cluster_node" not in node.text("/metrics")
    finally:
        process.kill()
        process.communicate()


def test_a_queued_run_continues_its_callers_trace_on_whichever_node(cluster):
    nodes, _, provider = cluster
    trace = "0af7651916cd43dd8448eb211c80319c"
    for i, node in enumerate(nodes):
        status, _ = node.ask("POST", "/v1/queue", {
            "id": "run-3%d" % i, "question": "What is it?", "context": "This is run-3%d." % i},
            headers={"traceparent": "00-%s-b7ad6b7169203331-01" % trace})
        assert status == 202
        get(nodes, "run-3%d" % i)
    of_runs = {n for n in provider.traces if n}
    assert of_runs and {n.split("-")[1] for n in of_runs} == {trace}


def test_the_doctor_finds_nothing_wrong_with_what_works(cluster):
    nodes, nats, _ = cluster
    found = checks(nats)
    assert {c["state"] for c in found.values()} == {"ok"}, found
    assert found["nodes"]["text"] == "2 nodes are up"
    assert "The cluster works." in droste("doctor", "--join", nats.url)


def test_the_doctor_tells_a_node_that_is_silent_and_a_dead_letter(cluster, tmp_path):
    nodes, nats, _ = cluster
    put(nodes, "run-40", options={"model": "anthropic/claude"})
    assert get(nodes, "run-40")["state"] == "dead"
    nodes[1].process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: {n["name"]: n["state"] for n in nodes[0].ask(
            "GET", "/v1/cluster")[1]["nodes"]}.get("node1") == "lost")
        found = checks(nats)
        assert "node1" in found["stale"]["text"] and found["stale"]["cure"]
        assert "key" in found["dead letters"]["text"]
        stream = JetStream(nats.port)
        assert stream.ask("$JS.API.STREAM.PURGE.droste_dead_runs", b"").get("success")
        stream.close()
        assert 'version="' in nodes[0].text("/metrics")
        (tmp_path / "new").mkdir()
        newcomer = Node(tmp_path / "new", nats, cluster[2], "--node", "newcomer")
        try:
            wait_until(lambda: {n["name"]: n["state"] for n in newcomer.ask(
                "GET", "/v1/cluster")[1]["nodes"]} == {"node0": "up", "node1": "lost",
                                                       "newcomer": "up"})
        finally:
            newcomer.stop()
    finally:
        nodes[1].go_on()
    wait_until(lambda: len(up(nodes[0])) == 2)
    nodes[1].kill()
    nodes[1].start()
    # What was started again is not missed, nor what has left.
    wait_until(lambda: [n["state"] for n in nodes[0].ask("GET", "/v1/cluster")[1]["nodes"]]
               == ["up"] * 2)
    assert "stale" not in checks(nats)


def test_the_doctor_says_what_is_missing(tmp_path):
    """Nothing there; no JetStream; no nodes. Its twin is the cluster that works."""
    found = json.loads(droste("doctor", "--join", "nats://127.0.0.1:%d" % free_port(), "--json",
                              status=4))["checks"]
    assert found[0]["name"] == "nats" and "nats-server" in found[0]["cure"]
    port = free_port()
    plain = subprocess.Popen(["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", str(port)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    nats = Nats(tmp_path / "nats")
    try:
        wait_until(lambda: is_open(port))
        assert "start nats-server with -js" in droste("doctor", "--join",
                                                      "nats://127.0.0.1:%d" % port, status=4)
        assert "none has ever joined" in droste("doctor", "--join", nats.url, status=4)
        assert "--join" in droste("doctor", status=2)
    finally:
        plain.kill()
        plain.wait()
        nats.kill()


def test_the_quick_start_of_the_documentation_works_as_it_stands(tmp_path, cluster):
    """But for its ports, and with the model of the tests."""
    with open(os.path.join(ROOT, "docs", "cluster.md")) as f:
        text = f.read().split("## Two nodes on a laptop")[1]
    start, use = re.findall("```sh\n(.*?)```", text, re.S)[:2]
    env = {"PATH": os.path.dirname(DROSTE) + ":/usr/sbin:/usr/bin:/bin", "HOME": str(tmp_path),
           "OPENAI_API_KEY": "test", "OPENAI_BASE_URL": cluster[2].url}
    for port in ("4222", "8710", "8711"):
        start, use = (part.replace(port, port_of(port)) for part in (start, use))
    use = use.replace("one two three", "This is run-50.")
    begun = subprocess.Popen(["sh", "-c", "mkdir -p cluster/one cluster/two\n" + start + "wait"],
                             cwd=tmp_path, env=env, start_new_session=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for _ in range(2):
            assert "127.0.0.1" in begun.stdout.readline()
        done = subprocess.run(["sh", "-ec", use], env=env, capture_output=True, text=True,
                              timeout=90)
        assert done.returncode == 0 and "RUN-50 PART 0" in done.stdout, done
        assert "one " in done.stdout and "two " in done.stdout
    finally:
        os.killpg(begun.pid, signal.SIGTERM)
        begun.communicate(timeout=60)


PORTS = {}


def port_of(name):
    return PORTS.setdefault(name, str(free_port()))


def test_nodes_are_upgraded_one_after_the_other_while_runs_go_on(tmp_path, monkeypatch):
    """Each drains and joins again with another version; nothing is lost or paid twice."""
    with open(DROSTE, "rb") as f:
        old = f.read()
    newer = tmp_path / "droste"
    newer.write_bytes(old.replace(b"0.1.0", b"0.1.9"))
    newer.chmod(0o755)
    nats, provider, nodes = Nats(tmp_path / "nats"), Provider(pause=0.5), []
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            nodes.append(Node(tmp_path / name, nats, provider, "--node", name, "--runs", "3"))
        names = ["run-6%d" % i for i in range(8)]
        for name in names:
            put(nodes, name)
        monkeypatch.setattr("nodes.DROSTE", str(newer))
        for i, node in enumerate(nodes):
            wait_until(lambda: len(provider.requests) > 2 * i)
            node.stop()
            node.start()
            want = "warning" if i == 0 else "ok"
            wait_until(lambda want=want: checks(nats)["versions"]["state"] == want)
        assert {n["version"] for n in up(nodes[0]).values()} == {"0.1.9"}
        for name in names:
            assert get(nodes, name)["run"]["status"] == "answered"
        assert not provider.paid_twice()
    finally:
        for node in nodes:
            node.kill()
        provider.close()
        nats.kill()


def test_keys_of_the_same_priority_take_turns(tmp_path):
    """A key with many runs delays another key's by few, and a higher priority delays the
    first of neither."""
    file, keys = str(tmp_path / "keys.json"), []
    for name in ("many", "few"):
        made = subprocess.run([DROSTE, "keys", "create", name, "--scopes", "read,runs", "--keys",
                               file], check=True, capture_output=True, text=True)
        keys.append(made.stdout.split()[0])
    nats, provider, node = Nats(tmp_path / "nats"), Provider(), None
    try:
        node = Node(tmp_path, nats, provider, "--runs", "1", "--keys", file)
        for i, node.key in enumerate(keys):
            put([node], "run-9%d" % i)
            get([node], "run-9%d" % i)      # the node knows of this key
        provider.hold()
        node.key = keys[0]
        for i in range(8):
            put([node], "run-7%d" % i)
        node.key = keys[1]
        for i in range(2):
            put([node], "run-8%d" % i)
        provider.release()
        for i in range(2):
            get([node], "run-8%d" % i)
        node.key = keys[0]
        for i in range(8):
            get([node], "run-7%d" % i)
        assert "run-81" in provider.order()[:2 + 8], provider.order()
    finally:
        if node:
            node.kill()
        provider.close()
        nats.kill()


@needs_browser
def test_the_console_shows_the_nodes_of_the_cluster(cluster, browser):  # noqa: F811
    nodes = cluster[0]
    browser.console_errors.clear()
    browser.open("http://127.0.0.1:%d/" % nodes[0].port)
    browser.wait("!document.getElementById('to-cluster').hidden")
    browser.js("document.getElementById('to-cluster').click()")
    browser.wait("document.querySelectorAll('#nodes tr').length === 2")
    text = browser.js("document.getElementById('cluster').innerText")
    assert "2 nodes up" in text and "node0" in text and "127.0.0.1:%d" % nodes[1].port in text
    nodes[1].pause()
    try:
        browser.wait("document.getElementById('cluster').innerText.includes('1 not')")
    finally:
        nodes[1].go_on()
    browser.wait("document.getElementById('cluster').innerText.includes('2 nodes up')")
    browser.js("location.hash = ''")
    browser.wait("document.getElementById('cluster').hidden")
    assert not browser.console_errors
