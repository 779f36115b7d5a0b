"""The runtime and the harness of verifiers, with its own agent, interception and trace."""
import asyncio
import json
import os
import sys
import threading

import pytest

pytest.importorskip("verifiers", exc_type=ImportError)
from verifiers.v1.errors import SandboxError  # noqa: E402
import verifiers.v1 as vf  # noqa: E402

from droste.integrations.verifiers import open_runtime  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "examples", "frameworks"))
import verifiers_task as example  # noqa: E402


def in_box(use, **settings):
    async def main():
        async with open_runtime(**settings) as box:
            return await asyncio.wait_for(use(box), 60)
    return asyncio.run(main())


def test_programs_have_their_environment_output_and_status():
    async def use(box):
        box.env = {"A": "task", "B": "task"}
        done = await box.run(["sh", "-c", "echo $A $B; echo bad >&2; exit 3"], {"B": "own"})
        assert (done.exit_code, done.stdout, done.stderr) == (3, "task own\n", "bad\n")
        assert (await box.run(["no-such-program"], {})).exit_code == 127
        assert await box.alive()
    in_box(use)


def test_files_are_bytes_and_reads_are_bounded_in_the_box():
    data = bytes(range(256)) * 10

    async def use(box):
        await box.write("new/dir/file", data)
        assert await box.read("new/dir/file") == data
        assert await box.read("new/dir/file", max_bytes=len(data)) == data
        with pytest.raises(SandboxError, match="over the 10 byte limit"):
            await box.read("new/dir/file", max_bytes=10)
        for most in (None, 10):
            with pytest.raises(SandboxError, match="missing"):
                await box.read("missing", max_bytes=most)
    in_box(use)


def test_there_is_no_network_and_the_task_may_demand_that():
    async def use(box):
        done = await box.run(["cat", "/proc/net/dev"], {})
        assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]] == ["lo"]
        assert box.network_restricted
    in_box(use)


def test_a_box_that_has_ended_is_not_alive_and_cannot_be_used():
    async def use(box):
        await box.interpreter.execute("import os; os.kill(os.getpid(), 9)")
        assert not await box.alive()
        with pytest.raises(SandboxError):
            await box.run(["true"], {})
        with pytest.raises(SandboxError):
            await box.write("file", b"")
        return box
    box = in_box(use)
    assert box.stopped
    with pytest.raises(SandboxError, match="not running"):
        asyncio.run(box.run(["true"], {}))


def test_a_cancelled_program_is_killed():
    """As at the time limit of a stage; the box works on."""
    async def use(box):
        task = asyncio.ensure_future(box.run(["sh", "-c", ": > up; exec sleep 1000"], {}))
        while (await box.run(["test", "-e", "up"], {})).exit_code != 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (await box.run(["pgrep", "-x", "sleep"], {})).exit_code == 0:
            await asyncio.sleep(0.01)
    in_box(use)


@pytest.fixture
def rollout(monkeypatch):
    """rollout(reply, …, **changes of the agent): the trace, and the messages of the last call."""
    monkeypatch.setenv("RECORDED_KEY", "none")
    servers = []

    def run(*replies, box=True, task={}, **changes):
        seen, left = [], list(replies)

        class Model(example.Recorded):
            def said_to(self, messages):
                seen[:] = messages
                return left.pop(0)
        server = example.ThreadingHTTPServer(("127.0.0.1", 0), Model)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = example.config_of(server.server_port, **changes)

        async def main():
            async with vf.Agent(config) as agent, open_runtime() as place:
                row = example.Total(vf.TaskData(**{"prompt": "Total?", **task}))
                return await agent.run(row, runtime=place if box else None)
        return asyncio.run(main()), seen
    yield run
    for server in servers:
        server.shutdown()
        server.server_close()


def call(arguments, name="python"):
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
        "name": name, "arguments": arguments}}]}


def code(text):
    return call(json.dumps({"code": text}))


def outputs(messages):
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_variables_stay_from_call_to_call_and_errors_reach_the_model(rollout):
    trace, seen = rollout(code("x = 300"), code("1/0"), code("x + 3"), {"content": "303"})
    assert outputs(seen)[0] == "(no output)" and outputs(seen)[2] == "303"
    assert "ZeroDivisionError" in outputs(seen)[1]
    assert trace.reward == 1.0 and trace.num_turns == 4 and not trace.errors


def test_calls_that_a_model_gets_wrong_are_explained_to_it(rollout):
    wrong = [call("{"), call("[]"), call('{"code": 5}'), call('{"code": "1"}', "bash")]
    trace, seen = rollout(*wrong, {"content": "303"})
    assert len(outputs(seen)) == 4 and all("one tool" in text for text in outputs(seen))
    assert not trace.errors


def test_long_outputs_are_cut_in_the_middle(rollout):
    limit = {"harness": {"id": "verifiers_task", "max_output": 100}}
    _, seen = rollout(code("print('a' * 500 + 'b')"), {"content": "."}, **limit)
    assert outputs(seen)[0].startswith("aaa") and outputs(seen)[0].endswith("b\n")
    assert "[… 402 characters …]" in outputs(seen)[0]


def test_the_limits_of_the_agent_end_the_run(rollout):
    trace, _ = rollout(code("1"), code("2"), code("3"), max_turns=2)
    assert trace.stop_condition == "max_turns" and trace.num_turns == 2 and not trace.errors


def test_a_lost_sandbox_is_said_to_the_model_and_is_no_reward(rollout):
    trace, seen = rollout(code("import os; os.kill(os.getpid(), 9)"), {"content": "303"})
    assert "variables are gone" in outputs(seen)[0]
    assert trace.errors and trace.reward == 0


def test_a_task_without_network_is_accepted(rollout):
    trace, _ = rollout({"content": "303"}, task={"network_allow": []})
    assert trace.reward == 1.0 and not trace.errors


def test_the_trace_can_be_read_back(rollout):
    trace, _ = rollout({"content": "303"})
    dumped = trace.model_dump(mode="json")
    assert dumped["agent"]["runtime"]["id"].startswith("droste:")
    assert vf.WireTrace.model_validate(dumped).reward == 1.0


def test_the_example(run_example):
    assert run_example("verifiers_task.py") == "The total is 303 1.0 []\n"
