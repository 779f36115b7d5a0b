"""The asynchronous flavour of E2B's Python SDK: see sdk_features.py. Its rows are fewer, because
both flavours send the same requests."""
import asyncio
import json
import os
import sys
import traceback

ADDRESS = sys.argv[1]
os.environ.update(E2B_API_KEY="e2b_" + "0" * 40, E2B_API_URL=ADDRESS, E2B_SANDBOX_URL=ADDRESS)

from e2b_code_interpreter import AsyncSandbox  # noqa: E402

ROWS = {}


def row(function):
    """One row: it gets a sandbox that the rows share."""
    ROWS[function.__name__] = function
    return function


@row
async def control_plane(sandbox):
    own = await AsyncSandbox.create(metadata={"a": "b"}, envs={"A": "1"}, timeout=60)
    assert (await own.get_info()).metadata == {"a": "b"} and await own.is_running()
    await own.set_timeout(90)
    again = await AsyncSandbox.connect(own.sandbox_id)
    assert (await again.commands.run("echo $A")).stdout == "1\n"
    listed = await AsyncSandbox.list().next_items()
    assert own.sandbox_id in [one.sandbox_id for one in listed]
    assert await own.kill() is True and await own.kill() is False


@row
async def run_code(sandbox):
    seen = []
    done = await sandbox.run_code("print('a')\n'b'", on_stdout=lambda m: seen.append(m.line),
                                  on_result=lambda r: seen.append(r.text))
    assert seen == ["a\n", "b"] and done.text == "b"
    assert (await sandbox.run_code("1 / 0")).error.name == "ZeroDivisionError"


@row
async def executions_of_a_context_take_turns(sandbox):
    await sandbox.run_code("n = 0")
    code = "import time\nold = n\ntime.sleep(0.02)\nn = old + 1"
    await asyncio.gather(*(sandbox.run_code(code) for _ in range(8)))
    assert (await sandbox.run_code("n")).text == "8"


@row
async def contexts(sandbox):
    own = await sandbox.create_code_context(cwd="/tmp")
    assert (await sandbox.run_code("import os; os.getcwd()", context=own)).text == "/tmp"
    await sandbox.remove_code_context(own)


@row
async def a_client_that_leaves_interrupts_its_cell(sandbox):
    await sandbox.run_code("kept = 1")
    running = asyncio.create_task(sandbox.run_code("import time\nwhile True: time.sleep(0.01)"))
    await asyncio.sleep(0)
    for _ in range(100):
        await sandbox.is_running()
    running.cancel()
    try:
        await running
        raise AssertionError("it was not cancelled")
    except asyncio.CancelledError:
        pass
    assert (await sandbox.run_code("kept")).text == "1"


@row
async def commands(sandbox):
    done = await sandbox.commands.run("echo out; echo err >&2; pwd", cwd="/usr")
    assert (done.stdout, done.stderr) == ("out\n/usr\n", "err\n")
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    await sandbox.commands.send_stdin(handle.pid, "x\n")
    assert await handle.kill() is True


@row
async def commands_at_once(sandbox):
    done = await asyncio.gather(*(sandbox.commands.run(f"echo {i}") for i in range(20)))
    assert [one.stdout for one in done] == [f"{i}\n" for i in range(20)]


@row
async def files(sandbox):
    await sandbox.files.write("a/b.txt", "é")
    assert await sandbox.files.read("a/b.txt") == "é"
    stream = await sandbox.files.read("a/b.txt", format="stream")
    assert b"".join([piece async for piece in stream]) == "é".encode()
    assert [one.name for one in await sandbox.files.list("a")] == ["b.txt"]
    assert await sandbox.files.exists("a/b.txt")
    await sandbox.files.remove("a")
    assert not await sandbox.files.exists("a")


@row
async def forks_and_snapshots(sandbox):
    if not hasattr(AsyncSandbox, "fork"):
        return      # an older SDK
    own = await AsyncSandbox.create()
    await own.run_code("x = 'kept'")
    await own.files.write("a.txt", "b")
    [fork], snapshot = await asyncio.gather(own.fork(), own.create_snapshot())
    assert (await fork.run_code("x")).text == "kept"
    await own.kill()
    again = await AsyncSandbox.create(snapshot.snapshot_id)
    assert await again.files.read("a.txt") == "b"
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert (await AsyncSandbox.list_snapshots(sandbox_id=own.sandbox_id).next_items()) == []
    await asyncio.gather(fork.kill(), again.kill())


@row
async def files_watched(sandbox):
    seen = asyncio.Queue()
    await sandbox.files.make_dir("watched")
    handle = await sandbox.files.watch_dir("watched", on_event=seen.put_nowait)
    await sandbox.files.write("watched/new.txt", "x")
    found = [await seen.get() for _ in range(3)]
    assert [(one.type.value, one.name) for one in found] == [
        ("create", "new.txt"), ("chmod", "new.txt"), ("write", "new.txt")]
    await handle.stop()


async def main():
    shared, answers = await AsyncSandbox.create(timeout=600), {}
    for name, function in ROWS.items():
        try:
            await asyncio.wait_for(function(shared), 60)
            answers[name] = None
        except Exception:  # noqa: BLE001: the caller shows it
            answers[name] = traceback.format_exc()
    await shared.kill()
    print(json.dumps(answers), flush=True)
    os._exit(0)     # the SDK's HTTP library has aborted when the interpreter ended


asyncio.run(main())
