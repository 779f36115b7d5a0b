"""`droste batch --cluster`: the tasks of a file in a cluster's queue."""
import json
import os
import signal
import subprocess

import pytest

from nodes import CALLS, DROSTE, has_nats, queue_nodes, wait_until

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes, of which a test may kill the first, and their provider."""
    with queue_nodes(tmp_path_factory.mktemp("cluster"), 2, "--runs", "4") as made:
        nodes, _, provider = made
        yield nodes, provider


@pytest.fixture
def droste(tmp_path, cluster):
    """droste(flags…): the command over tasks.jsonl; without a key of any model."""
    nodes, provider = cluster
    (tmp_path / "context.txt").write_text("This is run-0.")
    tasks = [{"id": i, "question": "What is it?", "context_text": "This is run-%d." % i,
              "expected": "RUN-%d PART %d" % (i, CALLS - 1)} for i in range(1, 6)]
    tasks.append({"id": 0, "question": "What is it?", "context": "context.txt", "expected": "no"})
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))

    def run(*flags, status=None, urls=None):
        words = [DROSTE, "batch", "tasks.jsonl", "--out", "r.jsonl", "--json", "--quiet",
                 "--cluster", urls or ",".join("http://127.0.0.1:%d" % n.port for n in nodes),
                 "--grader", "contains", *flags]
        process = subprocess.Popen(words, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={
                                       "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
        if status is None:
            return process
        out, err = process.communicate(timeout=120)
        assert process.returncode == status, err
        return json.loads(out) if out else err
    run.home, run.provider, run.nodes = tmp_path, provider, nodes
    return run


def lines(droste):
    text = (droste.home / "r.jsonl").read_text()
    return {line["id"]: line for line in map(json.loads, text.splitlines())}


def asked(droste):
    return sum(droste.provider.requests.values())


def test_tasks_are_run_by_nodes_and_graded_here_and_the_same_command_pays_nothing(droste):
    before = asked(droste)
    end = droste(status=0)
    assert (end["tasks"], end["statuses"]["answered"], end["passed"]) == (6, 6, 5)
    assert end["calls"] == 6 * (CALLS + 1) == asked(droste) - before
    found = lines(droste)
    assert found[0]["answer"] == ["RUN-0 PART %d" % k for k in range(CALLS)]
    assert found[3]["grade"]["passed"] and found[3]["usage"]["calls"] == CALLS + 1
    os.unlink(droste.home / "r.jsonl")      # only the note is left of the batch
    assert droste(status=0)["passed"] == 5
    assert asked(droste) - before == 6 * (CALLS + 1)
    os.unlink(droste.home / "r.jsonl")      # its twin: another batch is paid
    os.unlink(droste.home / "r.jsonl.batch")
    assert droste(status=0)["passed"] == 5
    assert asked(droste) - before == 2 * 6 * (CALLS + 1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_runs_go_on_without_the_command_and_the_same_one_fetches_them(droste, end):
    droste.provider.hold()
    before = asked(droste)
    command = droste()
    wait_until(lambda: asked(droste) > before)
    command.send_signal(end)
    out, err = command.communicate(timeout=30)
    droste.provider.release()
    assert command.returncode == (-9 if end == signal.SIGKILL else 130), err
    if end == signal.SIGINT:
        assert json.loads(out)["stopped"] == "interrupt"
    assert droste(status=0)["passed"] == 5
    assert asked(droste) - before == 6 * (CALLS + 1)


def test_cancel_ends_the_runs_that_have_no_result_and_again_runs_them(droste):
    droste.provider.hold()
    before = asked(droste)
    command = droste("--concurrency", "3")
    wait_until(lambda: asked(droste) > before)
    command.kill()
    command.communicate()
    end = droste("--cancel", status=1)
    droste.provider.release()
    assert end["statuses"]["cancelled"] == 6 and end["left"] == 0
    paid = asked(droste)
    assert droste(status=1)["statuses"] == end["statuses"] and asked(droste) == paid
    assert droste("--again", status=0)["statuses"]["answered"] == 6


def test_a_limit_of_the_batch_stops_it_and_without_it_goes_on(droste):
    end = droste("--concurrency", "1", "--batch-max-calls", str(CALLS + 2), status=3)
    assert end["stopped"] == "budget" and end["statuses"]["answered"] == 2
    assert droste(status=0)["passed"] == 5


def test_a_task_that_no_node_can_begin_has_an_error_and_others_a_result(droste):
    tasks = [{"id": "bad", "question": "?", "settings": {"model": "anthropic/claude"}},
             {"id": "good", "question": "What is it?", "context_text": "This is run-9."}]
    (droste.home / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    assert droste("--priority", "0", status=1)["statuses"]["error"] == 1
    found = lines(droste)
    assert "key" in found["bad"]["error"]["message"] and found["good"]["status"] == "answered"


def test_what_a_cluster_cannot_do_is_refused_before_anything_is_asked(droste):
    before = asked(droste)
    assert "contexts of all tasks" in droste("--context", "context.txt", status=4)
    assert "--priority" in droste("--priority", "3", status=2)
    assert "--server" in droste("--server", "http://127.0.0.1:1", status=2)
    (droste.home / "r.jsonl").write_text('{"id": 1}\n')
    assert "another batch" in droste(status=2)
    (droste.home / "r.jsonl").unlink()
    (droste.home / "tasks.jsonl").write_text(
        json.dumps({"question": "?", "contexts": {"a": "context.txt"}}))
    assert "one context" in droste(status=2)
    assert asked(droste) == before


def test_another_node_is_asked_if_one_is_gone(droste):
    nodes = droste.nodes
    urls = "http://127.0.0.1:1,http://127.0.0.1:%d" % nodes[1].port
    assert droste(status=0, urls=urls)["passed"] == 5
