"""Runs of a cluster's queue: each has one result, whichever nodes die, and is paid for once."""
import base64
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from jetstream import JetStream
from nodes import CALLS, DROSTE, Node, get, has_nats, put, wait_until
from soak import soak

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


def expected(name):
    return ["%s PART %d" % (name.upper(), i) for i in range(CALLS)]


def check(answer, name):
    assert answer["state"] == "ended", answer
    assert answer["run"]["status"] == "answered", answer
    assert answer["run"]["answer"] == expected(name)


def test_any_node_takes_a_run_and_answers_for_it(start, provider):
    nodes = [start()]                                     # answers as soon as it has an address
    assert put(nodes, "run-1", tries=1) == {"id": "run-1", "state": "queued"}
    nodes.append(start())
    check(get(nodes[1:], "run-1"), "run-1")
    assert put(nodes[1:], "run-1")["state"] == "known"    # once, whoever asks again
    check(get(nodes[:1], "run-1"), "run-1")
    assert sum(provider.requests.values()) == CALLS + 1
    assert nodes[0].ask("GET", "/v1/queue/nothing")[0] == 404


def begin(node, path, key):
    """Repeats a refused request, as a client does that has been given Retry-After."""
    while True:
        status, answer = node.ask("POST", path, {"question": "?", "context": "This is run-1."},
                                  headers={"Idempotency-Key": key})
        if status not in (429, 503):
            return answer
        time.sleep(0.1)


def test_a_request_with_an_idempotency_key_begins_one_run_whichever_node_is_asked(start, provider):
    nodes = [start(), start()]
    for node in nodes:
        wait_until(lambda node=node: len(node.ask("GET", "/v1/cluster")[1]["nodes"]) == 2)
    for path, name in (("/v1/queue", "id"), ("/v1/runs", "run")):
        made = {key: [begin(node, path, key)[name] for node in nodes * 2] for key in "abcd"}
        assert all(len(set(ids)) == 1 for ids in made.values()), made
        assert len({ids[0] for ids in made.values()}) == 4


def runs_of(node, name):
    """The runs that a node has in its record."""
    return [run for run in node.ask("GET", "/v1/runs")[1]["runs"] if run["node"] == name]


def test_a_killed_nodes_run_goes_on_elsewhere_without_paying_again(start, provider):
    provider.hold(after=1)
    nodes = [start("--node", "first")]
    put(nodes, "run-2")
    wait_until(lambda: len(provider.requests) >= 2)    # the code's first call has no answer
    nodes.append(start("--node", "second"))
    nodes[0].kill()
    provider.release()
    begun = time.monotonic()
    answer = get(nodes[1:], "run-2")
    check(answer, "run-2")
    assert not provider.paid_twice()
    assert provider.repeated() == 1       # the one without an answer, under its own key
    assert answer["run"]["usage"]["calls"] == CALLS + 1
    print("continued within", time.monotonic() - begun)
    nodes[0].start()                      # what the killed process left is no run to resume
    wait_until(lambda: runs_of(nodes[0], "first") == [])


def test_a_node_that_was_stopped_for_longer_than_its_lease_has_lost_its_run(start, provider):
    provider.hold(after=1)
    nodes = [start("--node", "first")]
    put(nodes, "run-3")
    wait_until(lambda: len(provider.requests) >= 2)
    nodes.append(start("--node", "second"))
    nodes[0].pause()
    provider.release()
    check(get(nodes[1:], "run-3"), "run-3")
    asked = sum(provider.requests.values())
    nodes[0].go_on()
    time.sleep(2)
    assert sum(provider.requests.values()) == asked    # it does not pay for what it has lost
    check(get(nodes[:1], "run-3"), "run-3")
    assert not provider.paid_twice()
    wait_until(lambda: runs_of(nodes[0], "first") == [])   # nor keeps half of it


def test_a_node_that_stops_in_order_gives_its_runs_back_at_once(start, provider):
    provider.hold(after=1)
    nodes = [start()]
    put(nodes, "run-4")
    wait_until(lambda: len(provider.requests) >= 2)
    nodes.append(start())
    nodes[0].stop()
    provider.release()
    check(get(nodes[1:], "run-4"), "run-4")
    assert not provider.paid_twice()


def test_runs_survive_the_end_of_the_nats_server(start, nats, provider):
    provider.pause = 0.3
    nodes = [start()]
    names = ["run-%d" % i for i in range(50, 58)]
    for name in names:
        put(nodes, name)
    time.sleep(0.3)
    nats.kill()
    time.sleep(1)
    nats.start()
    for name in names:
        check(get(nodes, name), name)
    assert not provider.paid_twice()


def test_a_cancelled_run_ends_once_and_says_so(start, provider):
    provider.hold()
    nodes = [start("--runs", "1"), start("--runs", "1")]
    for name in ("run-6", "run-7", "run-8"):
        put(nodes, name)
    for name in ("run-8", "run-6"):      # one that waits or has begun
        assert nodes[0].ask("DELETE", "/v1/queue/" + name)[0] == 204
    provider.release()
    unbegun = get(nodes, "run-8")["run"]
    assert (unbegun["run"], unbegun["status"], unbegun["answer"]) == ("run-8", "cancelled", None)
    assert unbegun["question"] and "cancelled" in unbegun["error"]
    assert unbegun["usage"]["calls"] == unbegun["usage"]["cost"] == 0
    assert get(nodes, "run-6")["run"]["status"] == "cancelled"
    check(get(nodes, "run-7"), "run-7")
    assert nodes[1].ask("DELETE", "/v1/queue/run-7")[0] == 409


def drop(node, version):
    return node.ask("DELETE", "/v1/queue?before_version=%s" % version)[0]


def test_runs_of_an_old_version_end_as_stale_those_that_wait_run_or_come(start, provider, tmp_path):
    file, keys = str(tmp_path / "keys.json"), []
    for name in ("trainer", "other"):
        made = subprocess.run([DROSTE, "keys", "create", name, "--scopes", "runs", "--keys", file],
                              check=True, capture_output=True, text=True)
        keys.append(made.stdout.split()[0])
    provider.hold()
    nodes = [start("--runs", "1", "--keys", file) for _ in range(2)]
    nodes[0].key = nodes[1].key = keys[0]
    put(nodes, "run-500", version=4)
    put(nodes, "run-501", version=5)
    wait_until(lambda: len(provider.requests) >= 2)     # both are active
    put(nodes, "run-502", version=4)
    put(nodes, "run-503")
    assert drop(nodes[1], 5) == 204
    put(nodes, "run-504", version=4)
    provider.release()
    for name in ("run-500", "run-502", "run-504"):
        run = get(nodes, name)["run"]
        assert (run["status"], run["reason"], run["answer"]) == ("cancelled", "stale", None), run
        assert run["usage"]["calls"] <= (1 if name == "run-500" else 0)
    for name in ("run-501", "run-503"):                 # of that version, and of none
        answer = get(nodes, name)
        check(answer, name)
        assert "reason" not in answer["run"]
    nodes[0].key = nodes[1].key = keys[1]
    put(nodes, "run-505", version=4)
    check(get(nodes, "run-505"), "run-505")             # another key's
    nodes[0].key = nodes[1].key = keys[0]
    assert drop(nodes[0], 0) == 204
    put(nodes, "run-506", version=4)
    check(get(nodes, "run-506"), "run-506")             # all are wanted again
    assert [drop(nodes[0], wrong) for wrong in ("", "x", "-1")] == [400] * 3
    assert not provider.paid_twice()


def test_a_dead_nodes_runs_that_were_dropped_meanwhile_end_with_what_they_have_paid(
        start, provider):
    provider.hold(after=2)
    nodes = [start()]
    put(nodes, "run-510", version=1)
    put(nodes, "run-511")
    wait_until(lambda: len(provider.requests) >= 4)     # the first call of each has its answer
    nodes[0].kill()
    nodes[0] = start()
    wait_until(lambda: drop(nodes[0], 2) == 204)        # its queue is ready
    assert nodes[0].ask("DELETE", "/v1/queue/run-511")[0] == 204
    provider.release()
    stale, cancelled = (get(nodes, name)["run"] for name in ("run-510", "run-511"))
    assert stale["status"] == cancelled["status"] == "cancelled"
    assert stale["reason"] == "stale" and "reason" not in cancelled
    assert stale["usage"]["calls"] >= 1 and cancelled["usage"]["calls"] >= 1
    assert not provider.paid_twice()


def test_a_cancellation_does_not_give_a_run_back_to_the_node_that_has_lost_it(
        start, nats, provider):
    provider.hold(after=1)
    node = start()
    put([node], "run-520")
    wait_until(lambda: len(provider.requests) >= 2)
    stream = JetStream(nats.port)
    subject = stream.subject("droste_run_logs", "droste.run.log.*.run-520")
    for mark in (b"T", b"C"):       # another node takes it, and it is cancelled
        assert "seq" in stream.ask(subject, mark + b"0" * 16 + b"00000001.")
    provider.release()
    assert get([node], "run-520")["run"]["status"] == "cancelled"
    marks = b"".join(message[:1] for message in stream.messages("droste_run_logs", subject))
    stream.close()
    # the node takes it again, when the other one's lease is over, before it appends anything
    assert marks.partition(b"TC")[2].startswith(b"T"), marks


def test_a_run_is_cancelled_while_its_node_appends_to_its_log(start, provider):
    provider.pause = 0
    nodes = [start(), start()]
    names = ["run-%d" % i for i in range(300, 340)]
    for i, name in enumerate(names):
        put(nodes, name)
        assert nodes[i % 2].ask("DELETE", "/v1/queue/" + name)[0] in (204, 409)
    for name in names:
        assert get(nodes, name)["run"]["status"] in ("cancelled", "answered")


def test_a_run_that_cannot_begin_is_a_dead_letter_with_its_reason(start):
    nodes = [start("--runs", "1")]
    put(nodes, "run-9", options={"model": "anthropic/claude"})
    answer = get(nodes, "run-9")
    assert answer["state"] == "dead" and "key" in answer["reason"]


def read_ledger(nats):
    stream = JetStream(nats.port)
    found = stream.messages("KV_droste-spending", stream.subject(
        "KV_droste-spending", "$KV.droste-spending.*"))
    stream.close()
    return json.loads(found[-1])


def test_runs_of_a_key_share_its_limit_on_cost_between_nodes(start, nats, provider, tmp_path):
    """A run costs 0.015 dollars and may cost 0.06: of a limit of 0.07, four runs."""
    file, keys = str(tmp_path / "keys.json"), []
    (tmp_path / "prices").write_text("* 1 1000\n")
    for name, limit in (("spender", "cost=0.07"), ("other", "sandboxes=50")):
        made = subprocess.run([DROSTE, "keys", "create", name, "--scopes", "read,runs", "--limit",
                               limit, "--keys", file], check=True, capture_output=True, text=True)
        keys.append(made.stdout.split()[0])
    nodes = [start("--keys", file, "--prices", str(tmp_path / "prices"), "--max-tokens",
                   "20") for _ in range(3)]
    names = ["run-%d" % i for i in range(400, 406)]
    for node in nodes:
        node.key = keys[0]
    for name in names:
        put(nodes, name, options={"max-cost": 0.06})
    wait_until(lambda: len(provider.requests) > 2)
    nodes[0].kill()    # the node that continues its runs finds their holds
    runs = [get(nodes[1:], name)["run"] for name in names]
    cost = sum(run["usage"]["cost"] for run in runs)
    assert cost <= 0.07
    assert {run["status"] for run in runs} == {"answered", "budget"}
    assert sum(run["status"] == "answered" for run in runs) >= 3
    assert not provider.paid_twice()
    wait_until(lambda: read_ledger(nats)["holds"] == [])    # each end is settled behind it
    assert read_ledger(nats)["spent"] == pytest.approx(cost * 1e9)
    nodes[1].key = keys[1]
    put(nodes[1:2], "run-1")
    check(get(nodes[1:2], "run-1"), "run-1")    # another key is not touched


def test_runs_outside_of_the_queue_count_in_the_ledger_of_all_nodes(
        start, nats, provider, tmp_path):
    """A run costs 0.015 dollars, and needs 0.03. What one node has spent of a limit of 0.033, no
    node spends again, in the queue or outside, nor the same one after it was killed."""
    file, keys = str(tmp_path / "keys.json"), []
    (tmp_path / "prices").write_text("* 1 1000\n")
    for limit in ("cost=0.033", "cost=5"):
        made = subprocess.run([DROSTE, "keys", "create", "spender", "--scopes", "read,runs",
                               "--limit", limit, "--keys", file], check=True, capture_output=True,
                              text=True)
        keys.append(made.stdout.split()[0])
    nodes = [start("--keys", file, "--prices", str(tmp_path / "prices"), "--max-tokens", "20")
             for _ in range(2)]

    def run(node, key):
        body = {"question": "What?", "context": "This is run-1.", "options": {"max-cost": 0.033}}
        begun = []
        wait_until(lambda: begun.append(node.ask("POST", "/v1/runs", body, key=key)) or
                   begun[-1][0] == 201)    # the ledger is read
        path = "/v1/runs/" + begun[-1][1]["run"]
        wait_until(lambda: node.ask("GET", path, key=key)[1]["status"] != "running")
        return node.ask("GET", path, key=key)[1]["status"]

    def in_the_ledger():
        ledger = read_ledger(nats)
        return ledger["spent"] + sum(hold["nano"] for hold in ledger["holds"])
    assert run(nodes[0], keys[0]) == "answered"
    wait_until(lambda: in_the_ledger() == pytest.approx(0.01503e9, rel=1e-3))
    asked = sum(provider.requests.values())
    assert run(nodes[1], keys[0]) == "budget"
    nodes[0].kill()
    nodes[0].start()
    assert run(nodes[0], keys[0]) == "budget"
    for node in nodes:
        node.key = keys[0]
    put(nodes, "run-410", options={"max-cost": 0.033})
    assert get(nodes, "run-410")["run"]["status"] == "budget"
    assert sum(provider.requests.values()) == asked
    assert run(nodes[1], keys[1]) == "answered"       # another key is not touched


def test_nodes_together_send_no_more_requests_a_minute_than_the_limit(start, nats, provider):
    limit, begun = 40, time.monotonic()
    nodes = [start("--requests-per-minute", str(limit)) for _ in range(3)]
    names = ["run-%d" % i for i in range(600, 630)]     # 90 calls
    for i, name in enumerate(names):
        put(nodes[i % 3:], name)

    def asked():
        return sum(provider.requests.values())
    stream, window = JetStream(nats.port), {}

    def most_in(minutes):    # and in those that have passed on a slow machine
        return limit * (minutes + int((time.monotonic() - begun) / 60))

    def is_used_up():    # a value that a node writes meanwhile is missed
        window.update(message for message in stream.all_messages("KV_droste-rates")
                      if not message[0].endswith(".time"))
        return asked() >= limit / 2 and any(
            sum(s["requests"] for s in json.loads(data)["slices"]) >= limit
            for data in window.values())
    wait_until(is_used_up)
    assert asked() <= most_in(1)
    key, = window
    stream.send(b'PUB %s 14\r\n{"slices": []}\r\n' % key.encode())    # as if a minute were over
    stream.close()
    wait_until(lambda: asked() >= limit * 3 / 2)
    time.sleep(0.5)
    assert asked() <= most_in(2)
    assert not provider.paid_twice()


def lost(answer):
    return answer[0] == 503 and answer[1]["error"]["code"] == "node_lost"


def test_any_node_answers_for_volumes_and_contexts_of_all(start, nats, provider):
    nodes = [start("--node", "n%d" % i) for i in range(3)]
    for node in nodes:
        wait_until(lambda node=node: len(node.ask("GET", "/v1/cluster")[1]["nodes"]) == 3)
    wait_until(lambda: nodes[0].ask("POST", "/v1/volumes", {"name": "data"})[0] == 201)
    assert [node.ask("POST", "/v1/volumes", {"name": "data"})[0] for node in nodes] == [409] * 3
    assert "on the node 'n0'" in nodes[1].ask("POST", "/v1/volumes", {"name": "data"})[1]["error"][
        "message"]
    assert nodes[1].ask("PUT", "/v1/volumes/data/files?path=a", [1, "a" * 100000])[0] == 204
    assert nodes[2].ask("GET", "/v1/volumes/data/files?path=a")[1] == [1, "a" * 100000]
    sandbox = nodes[2].ask("POST", "/v1/sandboxes", {"options": {"volume-name": "data"}})[1]["id"]
    code = "import os; SUBMIT(answer=len(open(os.environ['DROSTE_VOLUME'] + '/a').read()))"
    done = nodes[1].ask("POST", "/v1/sandboxes/%s/execute" % sandbox, {"code": code})[1]
    assert done["submit"] == {"answer": 100007}, done
    assert nodes[2].ask("DELETE", "/v1/volumes/data")[0] == 409           # it is in use
    nodes[1].ask("DELETE", "/v1/sandboxes/" + sandbox)

    def make(node, made):
        made.append(node.ask("POST", "/v1/volumes", {"name": "race"})[0])
    made = []
    threads = [threading.Thread(target=make, args=(node, made)) for node in nodes * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [201] + [409] * 8                              # one node has it
    assert [{v["name"] for v in node.ask("GET", "/v1/volumes")[1]["volumes"]}
            for node in nodes] == [{"data", "race"}] * 3
    nats.process.send_signal(signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        removed = pool.submit(nodes[2].ask, "DELETE", "/v1/volumes/data")
        wait_until(lambda: nodes[0].ask("GET", "/v1/volumes/data")[0] == 404)
        assert not removed.done()       # the name is free when its removal is answered
        nats.process.send_signal(signal.SIGCONT)
        assert removed.result()[0] == 204
    assert nodes[1].ask("GET", "/v1/volumes/data")[0] == 404
    assert nodes[2].ask("POST", "/v1/volumes", {"name": "data"})[0] == 201

    assert nodes[0].ask("POST", "/v1/templates", {"name": "warm", "cells": ["x = 41"]})[0] == 201
    warm = nodes[1].ask("POST", "/sandboxes", {"templateID": "warm"}, key="e2b_any")
    assert warm[0] == 201, warm
    done = nodes[2].ask("POST", "/v1/sandboxes/%s/execute" % warm[1]["sandboxID"],
                        {"code": "SUBMIT(answer=x + 1)"})[1]
    assert done["submit"] == {"answer": 42}
    context = nodes[0].ask("POST", "/v1/contexts?name=text", "This is run-1.")[1]["id"]
    begun = nodes[1].ask("POST", "/v1/runs", {"question": "What?", "context_file": context})[1]
    run = begun["run"]
    wait_until(lambda: nodes[2].ask("GET", "/v1/runs/" + run)[1]["status"] != "running")
    assert nodes[2].ask("GET", "/v1/runs/" + run)[1]["answer"] == expected("run-1")
    assert [c["id"] for c in nodes[2].ask("GET", "/v1/contexts")[1]["contexts"]] == [context]
    assert nodes[1].ask("GET", "/v1/files/" + context)[1]["filename"] == "text"
    nodes[0].kill()
    wait_until(lambda: all(lost(node.ask("GET", "/v1/" + path)) for node in nodes[1:]
                           for path in ("contexts/" + context, "runs/" + run, "volumes/other")))
    assert nodes[1].ask("GET", "/v1/batches/" + run)[0] == 503
    assert nodes[1].ask("GET", "/v1/volumes/data")[0] == 200              # of n2
    nodes[0].start()
    wait_until(lambda: nodes[1].ask("DELETE", "/v1/contexts/" + context)[0] == 204)
    wait_until(lambda: nodes[2].ask("GET", "/v1/runs/" + run)[0] == 200)
    assert '"run":"%s"' % run in nodes[2].text("/v1/runs/%s/export" % run)
    wait_until(lambda: nodes[2].ask("GET", "/v1/runs/" + "0" * 32)[0] == 404)
    assert nodes[1].ask("POST", "/v1/runs/%s/resume" % run)[0] == 409     # it has ended
    assert nodes[1].ask("DELETE", "/v1/runs/" + run)[0] == 204
    assert nodes[2].ask("GET", "/v1/runs/" + run)[0] == 404
    wait_until(lambda: nodes[2].ask("GET", "/v1/contexts/" + context)[0] == 404)


def test_the_length_of_the_queue_is_a_figure_of_each_node(start, provider):
    provider.hold()
    node = start("--runs", "1")

    def queued():
        text = node.text("/metrics")
        return int(re.search("^droste_cluster_queued_runs ([0-9]+)$", text, re.M)[1])
    assert queued() == 0
    for i in range(3):
        put([node], "run-%d" % i)
    wait_until(lambda: queued() >= 2)


def test_a_node_survives_whatever_comes_from_nats_and_still_runs_runs(start, nats, provider):
    node = start()
    stream = JetStream(nats.port)
    rubbish = [b"", b"\0", b"all ", b"x", b"{}", b"[" * 5000, b"\xff" * 3000,
               b"all " + b"r" * 5000, b"all run-0", b'{"name": "n", "sandboxes": -1, "most": -9}',
               b"T" + b"\xff" * 25, b"U" + b"f" * 24 + b"+", b"E" + b"0" * 24 + b".{"]
    subjects = ["droste.run.word.queued", "droste.run.word.ended", "droste.run.word.cancel",
                "droste.run.queue.1.all", "droste.run.log.all.run-0", "$KV.droste-nodes.node.0001",
                "$KV.droste-nodes.node.xyz", "$KV.droste_lanes.1.all", "$KV.droste_lanes.9.x",
                "$KV.droste_lanes.1.a.b", "$KV.droste_lanes.1", "$KV.droste-spending.all",
                "$KV.droste-rates.time"]
    put([node], "run-1")
    stream.send(b"PUB droste.run.queue.1.local 12\r\nlocal run-77\r\n")    # without a log
    subjects.append("$KV.droste_versions.local")
    for subject in subjects:
        for data in rubbish:
            stream.send(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(data), data))
    stream.close()
    put([node], "run-2")
    check(get([node], "run-1"), "run-1")
    check(get([node], "run-2"), "run-2")
    lost = get([node], "run-77")
    assert lost["state"] == "dead" and "no request" in lost["reason"]
    put([node], "run-3", version=0)
    check(get([node], "run-3"), "run-3")
    assert node.process.poll() is None
    assert not provider.paid_twice()


def of_another_version(message):
    """A message of a log (serve/queue/log.c); the head of a unit is in store/unit.h."""
    if message[:1] != b"U" or message[26:28] != b"DL":
        return message
    return message[:30] + bytes([message[30] ^ 0x80]) + message[31:]


def test_a_run_of_another_version_waits_for_its_node_and_does_not_fail(start, nats, provider):
    provider.hold(after=1)
    nodes = [start()]
    put(nodes, "run-60")
    wait_until(lambda: len(provider.requests) >= 2)
    nodes[0].kill()
    stream = JetStream(nats.port)
    subject = stream.subject("droste_run_logs", "droste.run.log.*.run-60")
    kept = stream.messages("droste_run_logs", subject)
    foreign = [of_another_version(message) for message in kept]
    assert foreign != kept
    stream.replace("droste_run_logs", subject, foreign)
    provider.release()
    nodes.append(start())
    log = os.path.join(nodes[1].home, "log")
    wait_until(lambda: "of another version" in open(log).read())
    assert nodes[1].ask("GET", "/v1/queue/run-60")[1]["state"] == "running"
    assert stream.messages("droste_run_logs", subject) == foreign
    nodes[1].pause()                                   # it must not read half of the log
    stream.replace("droste_run_logs", subject, kept)   # now it has the version
    nodes[1].go_on()
    stream.close()
    check(get(nodes[1:], "run-60"), "run-60")
    assert not provider.paid_twice()


def test_a_higher_priority_comes_first(start, provider):
    node = start("--runs", "1")
    put([node], "run-18", priority=0)
    check(get([node], "run-18"), "run-18")          # the node knows of this priority
    provider.hold()
    for i in range(6):
        put([node], "run-1%d" % i, priority=2)
    put([node], "run-19", priority=0)
    provider.pause = 0.1    # three runs take longer than the word of a queued run may
    provider.release()
    for i in (9, *range(6)):
        check(get([node], "run-1%d" % i), "run-1%d" % i)
    assert provider.order().index("run-19") <= 4    # behind what the node had taken before


def test_each_of_many_runs_has_one_result_whatever_is_killed(tmp_path):
    figures = soak(tmp_path, 200, 7)
    assert figures["killed"] + figures["stopped"] + figures["nats"] > 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_runs_of_a_node_whose_disk_is_full_go_to_another(tmp_path, nats, provider):
    data = tmp_path / "node0" / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(data)], check=True)
    nodes = []
    try:
        nodes.append(Node(tmp_path / "node0", nats, provider))
        names = ["run-%d" % i for i in range(200, 216)]
        for name in names:
            noise = base64.b64encode(os.urandom(300000)).decode()
            put(nodes, name, context="This is %s. %s" % (name, noise))
        log = tmp_path / "node0" / "log"
        wait_until(lambda: "the disk is full" in log.read_text())
        (tmp_path / "other").mkdir()
        nodes.append(Node(tmp_path / "other", nats, provider))
        for name in names:
            check(get(nodes[1:], name), name)
        assert not provider.paid_twice()
        # the copies can be removed when there is room
        subprocess.run(["mount", "-o", "remount,size=64m", str(data)], check=True)
        wait_until(lambda: nodes[0].ask("GET", "/v1/runs?status=running")[1]["runs"] == [])
    finally:
        for node in nodes:
            node.kill()
        subprocess.run(["umount", "--lazy", str(data)], check=True)     # a guest may still end
