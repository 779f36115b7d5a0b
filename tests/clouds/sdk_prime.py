"""The whole life of a sandbox by Prime's own SDK (prime-sandboxes): run by test_prime.py against
tests/fakes/prime.py, which so has what the SDK asks for and not what our client would like."""
import asyncio
import json
import os
import sys
import traceback
import urllib.request

from prime_sandboxes import APIClient, AsyncSandboxClient, CreateSandboxRequest, SandboxClient
from prime_sandboxes.core import UnauthorizedError
from prime_sandboxes.exceptions import SandboxNotRunningError

PATIENCE = 300      # attempts for a sandbox to run, of which the SDK would make 60
HANGS = 200         # seconds: nothing here takes so long on a busy machine


def order(**asked):
    urllib.request.urlopen(urllib.request.Request(os.environ["PRIME_API_BASE_URL"] + "/_fake",
                                                  json.dumps(asked).encode(), method="POST"))


def request(name, **more):
    return CreateSandboxRequest(name=name, docker_image="python:3.12-slim", network_allowlist=[],
                                timeout_minutes=60,
                                idle_timeout_minutes=30, labels=["sdk"], **more)


def life():
    client = SandboxClient(APIClient())
    box = client.create(request("first", idempotency_key="one"))
    assert box.status == "PENDING" and box.vm and box.network_allowlist == []
    assert client.create(request("first", idempotency_key="one")).id == box.id, "created twice"
    client.wait_for_creation(box.id, max_attempts=PATIENCE)
    assert client.get(box.id).status == "RUNNING"
    result = client.execute_command(box.id, "echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3), result
    assert client.get_network(box.id).policy.allowlist == []
    order(expire=True)      # the SDK gets another token
    assert client.execute_command(box.id, "pwd").exit_code == 0
    assert [b.id for b in client.list(labels=["sdk"],
                                      exclude_terminated=True).sandboxes] == [box.id]
    client.delete(box.id)
    assert client.get(box.id).status == "TERMINATED"
    try:
        client.execute_command(box.id, "true")
        raise SystemExit("a command in a sandbox that is gone")
    except SandboxNotRunningError:
        pass
    second = client.create(request("second"))
    assert client.bulk_delete(labels=["sdk"]).succeeded.count(second.id) == 1
    order(fail=["IMAGE_PULL_FAILED", "no such image"])
    third = client.create(request("third"))
    try:
        client.wait_for_creation(third.id, max_attempts=PATIENCE)
        raise SystemExit("a sandbox without an image")
    except SandboxNotRunningError as e:
        assert "no such image" in str(e), e
    try:
        SandboxClient(APIClient(api_key="wrong")).get(box.id)
        raise SystemExit("a wrong key was taken")
    except UnauthorizedError:
        pass


def streams():
    """How many streams are attached to programs."""
    with urllib.request.urlopen(os.environ["PRIME_API_BASE_URL"] + "/_fake") as answer:
        return json.load(answer)["streams"]


async def attached():
    """Until the SDK has attached itself again: what a program says before that is lost."""
    while await asyncio.to_thread(streams) == 0:
        await asyncio.sleep(0.05)


async def line_of(stream):
    """The next line, in however many pieces it comes."""
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.__anext__()
    return line


async def process():
    async with AsyncSandboxClient() as client:
        box = await client.create(request("live"))
        await client.wait_for_creation(box.id, max_attempts=PATIENCE)
        live = await client.open_process(
            box.id, "echo begun; read a; echo got $a; read b; echo got $b; read c; exit 7")
        assert await line_of(live.stdout) == b"begun\n"
        await live.write_stdin(b"one\n")
        assert await line_of(live.stdout) == b"got one\n"
        order(cut=True)
        await attached()
        await live.write_stdin(b"two\n")
        assert await line_of(live.stdout) == b"got two\n"
        # the end is told whether it comes before the SDK is attached again or after
        order(cut=True)
        await live.write_stdin(b"three\n")
        assert await live.wait() == 7
        again = await client.open_process(box.id, "sleep 1000")
        await again.kill()
        assert await again.wait() != 0
        await live.aclose()
        await again.aclose()
        await client.delete(box.id)


async def process_or_exit():
    """A failure and a wait without end are told with where they are. The SDK takes the cancellation
    of a live process for a lost stream and attaches again, so asyncio.run() would never come to the
    end of either."""
    task = asyncio.ensure_future(process())
    await asyncio.wait([task], timeout=HANGS)
    if not task.done():
        task.print_stack()
        print("the SDK waits for something that does not come", file=sys.stderr, flush=True)
    elif task.exception():
        traceback.print_exception(task.exception())
    if not task.done() or task.exception():
        os._exit(1)


life()
asyncio.run(process_or_exit())
print("all")
