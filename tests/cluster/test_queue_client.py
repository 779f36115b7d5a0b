"""`droste.Queue`: runs of a data set in a cluster's queue, from Python."""
import asyncio
import os
import sys
import threading
import time

import pytest

from nodes import CALLS, has_nats, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import droste   # noqa: E402

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


def url(node):
    return "http://127.0.0.1:%d" % node.port


def items(first, last):
    return [{"question": "What is it?", "context": "This is run-%d." % i, "expected": i}
            for i in range(first, last)]


def check(result):
    name = "RUN-%d" % result.item["expected"]
    assert result.completion.ok, result
    assert result.completion.answer == ["%s PART %d" % (name, i) for i in range(CALLS)]
    assert result.completion.usage["calls"] == CALLS + 1
    assert result.completion.run


def test_each_item_comes_once_with_its_result_and_the_same_call_pays_nothing(start, provider):
    queue = droste.Queue(url(start()))
    found = list(queue.map(items(0, 10), name="data", outstanding=4))
    for result in found:
        check(result)
    assert sorted(r.item["expected"] for r in found) == list(range(10))
    asked = sum(provider.requests.values())
    again = list(droste.Queue([url(start())]).map(items(0, 10), name="data"))
    assert {r.id for r in again} == {r.id for r in found}
    assert sum(provider.requests.values()) == asked
    other = list(queue.map(items(0, 1), name="other"))      # its twin: another name is paid
    check(other[0])
    assert sum(provider.requests.values()) == asked + CALLS + 1


def test_equal_items_of_one_call_are_several_runs(start):
    found = list(droste.Queue(url(start())).map(items(0, 1) * 3, name="samples"))
    assert len({r.id for r in found}) == 3 and len({r.completion.run for r in found}) == 3


def test_an_asynchronous_loop_gets_them_while_the_loop_does_other_work(start):
    async def both():
        ticks, found = 0, []

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)
        other = asyncio.ensure_future(tick())
        async for result in droste.Queue(url(start())).map(items(0, 5), name="async"):
            found.append(result)
        other.cancel()
        return ticks, found
    ticks, found = asyncio.run(both())
    for result in found:
        check(result)
    assert len(found) == 5 and ticks > 1


def test_items_are_read_only_when_there_is_room(start, provider):
    provider.pause = 0.2
    read, taken = [], 0
    source = (read.append(item) or item for item in items(0, 12))
    for result in droste.Queue(url(start())).map(source, name="room", outstanding=2):
        check(result)
        taken += 1
        # two that run, two that have ended and wait to be taken, two threads with one each
        assert len(read) <= taken + 6
    assert taken == 12


def test_the_next_url_replaces_a_node_that_is_killed(start, provider):
    provider.pause = 0.3
    nodes = [start(), start()]
    runs = droste.Queue(",".join(map(url, nodes))).map(items(0, 8), name="kill")
    first = next(runs)
    nodes[0].kill()
    found = [first, *runs]
    for result in found:
        check(result)
    assert sorted(r.item["expected"] for r in found) == list(range(8))
    assert not provider.paid_twice()


def test_a_node_that_says_nothing_is_left_for_the_next(start, monkeypatch):
    from droste._remote import queue
    monkeypatch.setattr(queue, "ANSWER_SECONDS", 2.0)
    nodes = [start(), start()]
    nodes[0].pause()
    found = list(droste.Queue([url(n) for n in nodes]).map(items(0, 2), name="silent"))
    for result in found:
        check(result)


def test_no_node_at_all_is_an_error(start, monkeypatch):
    from droste._remote import queue
    monkeypatch.setattr(queue, "PATIENCE_SECONDS", 1.0)
    node = start()
    node.kill()
    with pytest.raises(droste.EnvironmentFailed, match="cannot be reached"):
        list(droste.Queue(url(node)).map(items(0, 2), name="nobody"))


def test_a_loop_that_is_left_leaves_its_runs_and_the_same_call_finds_them(start, provider):
    provider.pause = 0.2
    queue = droste.Queue(url(start()))
    with queue.map(items(0, 6), name="left") as runs:
        check(next(runs))
    assert list(runs) == []
    found = list(queue.map(items(0, 6), name="left"))
    for result in found:
        check(result)
    assert len(found) == 6 and not provider.paid_twice()


def queued(node, runs):
    """How many runs of a mapping are in the queue."""
    return sum(node.ask("GET", "/v1/queue/" + id)[0] == 200 for id in list(runs._work.put))


def test_cancelled_runs_end_and_others_go_on(start, provider):
    provider.hold()
    node = start("--runs", "1")
    queue = droste.Queue(url(node))
    other = queue.map(items(50, 51), name="other", priority=0)
    runs = queue.map(items(0, 6), name="cancel", priority=2)
    wait_until(lambda: queued(node, runs) == 6)
    runs.cancel()
    provider.release()
    assert list(runs) == []
    check(next(other))
    ended = list(queue.map(items(0, 6), name="cancel"))
    assert [r.completion.status for r in ended] == ["cancelled"] * 6
    assert not queue.cancel(ended[0].id) and not queue.cancel("nothing")


def test_runs_of_a_version_that_is_dropped_are_stale_and_a_newer_one_is_another_run(
        start, provider):
    provider.hold()
    node = start("--runs", "1")
    queue = droste.Queue(url(node))
    old = queue.map(items(0, 3), name="step", version=1)
    wait_until(lambda: queued(node, old) == 3 and provider.requests)
    queue.drop_before(2)
    provider.release()
    ended = [result.completion for result in old]
    assert [(c.status, "stale" in str(c.error)) for c in ended] == [("cancelled", True)] * 3
    new, = queue.map(items(0, 1), name="step", version=2)
    check(new)


def test_a_run_that_cannot_begin_is_a_result_with_its_reason(start):
    queue = droste.Queue(url(start()))
    bad = {"question": "?", "options": {"model": "anthropic/claude"}}
    result, = queue.map([bad], name="dead")
    assert result.completion.status == "error" and "key" in str(result.completion.error)


def test_what_a_node_refuses_is_raised_and_items_before_it_are_not_lost(start):
    queue = droste.Queue(url(start()))
    runs = queue.map([*items(0, 1), {"question": "?", "options": {"max_turns": "many"}}],
                     name="wrong", outstanding=1)
    check(next(runs))
    with pytest.raises(droste.Error):
        next(runs)
    assert list(runs) == []


def test_wrong_arguments_are_refused_before_anything_is_asked():
    queue = droste.Queue("http://127.0.0.1:9")
    for wrong in ({"items": "text"}, {"outstanding": 0}, {"priority": 3}, {"version": -1},
                  {"version": "1"}):
        with pytest.raises(droste.ArgumentError):
            queue.map(**{"items": [], "name": "x", **wrong})
    with pytest.raises(droste.ArgumentError, match="version"):
        queue.drop_before(True)
    with pytest.raises(droste.ArgumentError, match="question"):
        list(queue.map([{"context": "x"}], name="x"))
    assert list(queue.map([], name="x")) == []
    with pytest.raises(droste.UnsupportedError):
        droste.Queue("http://127.0.0.1:9", model=print)


def test_rlm_of_a_cluster_runs_in_its_queue_and_each_call_is_a_run(start, provider):
    rlm = droste.RLM(cluster=url(start()), max_iterations=3)
    found = [rlm.run("What is it?", "This is run-7."),
             asyncio.run(rlm.arun("What is it?", "This is run-7."))]
    for completion in found:
        assert completion.answer == ["RUN-7 PART %d" % i for i in range(CALLS)]
    assert found[0].run != found[1].run and not rlm._queue.cancel(found[0].run)
    with pytest.raises(droste.UnsupportedError, match="no events"):
        rlm.stream("?")
    with pytest.raises(droste.UnsupportedError, match="cannot have tools"):
        droste.RLM(cluster="http://127.0.0.1:9", tools=[print])
    with pytest.raises(droste.ArgumentError, match="two ways"):
        droste.RLM(cluster="http://127.0.0.1:9", server="http://127.0.0.1:9")


def test_a_cancelled_coroutine_cancels_its_run(start, provider):
    provider.hold()
    rlm = droste.RLM(cluster=[url(start())])

    async def leave():
        task = asyncio.ensure_future(rlm.arun("What is it?", "This is run-8."))
        while not provider.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(leave())
    provider.release()
    time.sleep(1)
    assert sum(provider.requests.values()) < CALLS + 1


def test_no_thread_is_left(start):
    """Those of runs that were left end with the request that they wait for."""
    others = set(threading.enumerate())     # of tests whose nodes are gone
    queue = droste.Queue(url(start()))
    list(queue.map(items(0, 3), name="threads"))
    queue.map(items(3, 6), name="threads").close()
    deadline = time.monotonic() + 60
    while any(t.name == "droste-queue" for t in set(threading.enumerate()) - others):
        assert time.monotonic() < deadline
        time.sleep(0.02)
