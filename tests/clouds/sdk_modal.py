"""The whole life of a sandbox by Modal's own SDK alone, against the fake: run inside the
environment that has it, by test_modal_sdk.py. Prints a line of JSON with what it saw."""
import asyncio
import json
import os
import sys

import modal
import modal.exception as problems

sys.path[:] = [path for path in sys.path if path]

LONG = 3600     # seconds: no limit of a sandbox comes in the way of a busy machine


async def raised(awaitable):
    """The name of what it raises."""
    try:
        await awaitable
    except Exception as e:
        return type(e).__name__
    return None


async def programs(box, seen):
    """What is executed has streams of bytes both ways, and a status."""
    cat = await box.exec.aio("python3", "-c",
                             "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); "
                             "sys.exit(3)", text=False)
    sent = bytes(range(256)) * 8000
    for at in range(0, len(sent), 500000):
        cat.stdin.write(sent[at:at + 500000])
        await cat.stdin.drain.aio()
    cat.stdin.write_eof()
    await cat.stdin.drain.aio()
    heard = b""
    async for data in cat.stdout:
        heard += data
    seen["echoed"] = heard == sent
    seen["status"] = await cat.wait.aio()
    loud = await box.exec.aio("sh", "-c", "echo to stderr >&2; kill -9 $$")
    seen["stderr"] = await loud.stderr.read.aio()
    seen["signal"] = await loud.wait.aio()


async def main():
    seen = {}
    app = await modal.App.lookup.aio("an-app", create_if_missing=True)
    image = modal.Image.debian_slim(python_version="3.12").pip_install("numpy")
    volume = modal.Volume.from_name("kept", create_if_missing=True, version=2)
    box = await modal.Sandbox.create.aio(app=app, image=image, timeout=LONG, idle_timeout=LONG,
                                         block_network=True, cpu=0.5, memory=512,
                                         volumes={"/data": volume} if os.environ.get("ISOLATED")
                                         else {}, tags={"of": "a test"})
    seen["id"] = box.object_id
    await programs(box, seen)
    seen["tags"] = await box.get_tags.aio()
    seen["poll"] = await box.poll.aio()
    again = await modal.Sandbox.from_id.aio(box.object_id)
    seen["again"] = (await (await again.exec.aio("echo", "again")).stdout.read.aio()).strip()
    seen["network"] = (await (await box.exec.aio("cat", "/proc/net/dev")).stdout.read.aio()).count(
        ":")
    if os.environ.get("ISOLATED"):
        early = await modal.Sandbox.create.aio(app=app, image=image, timeout=LONG,
                                               volumes={"/data": volume})
        await (await box.exec.aio("sh", "-c",
                                  "echo kept > /data/a; sync /data; echo later > "
                                  "/data/b")).wait.aio()
        other = await modal.Sandbox.create.aio(app=app, image=image, timeout=LONG,
                                               volumes={"/data": volume})
        seen["kept"] = (await (await other.exec.aio("cat", "/data/a")).stdout.read.aio()).strip()
        seen["not committed"] = await (await other.exec.aio("cat", "/data/b")).wait.aio()
        seen["made before"] = await (await early.exec.aio("cat", "/data/a")).wait.aio()
        await early.reload_volumes.aio()
        seen["reloaded"] = (await (await early.exec.aio("cat",
                                                        "/data/a")).stdout.read.aio()).strip()
        await other.terminate.aio()
        await early.terminate.aio()
    seen["listed"] = [one.object_id async
                      for one in modal.Sandbox.list.aio(app_id=app.app_id, tags={"of": "a test"})]
    gpu = await modal.Sandbox.create.aio(app=app, image=image, timeout=LONG, gpu="T4")
    seen["first kind"] = (await (await gpu.exec.aio("echo", "one")).stdout.read.aio()).strip()
    await gpu.terminate.aio()
    await box.terminate.aio()
    seen["after"] = await raised(box.exec.aio("true"))
    seen["returncode"] = await box.poll.aio()
    seen["left"] = [one.object_id async for one in modal.Sandbox.list.aio(app_id=app.app_id)]
    short = await modal.Sandbox.create.aio(app=app, image=image, timeout=1)
    seen["timeout"] = await raised(short.wait.aio())
    broken = modal.Image.debian_slim(python_version="3.12").pip_install("no-such-package")
    seen["build"] = await raised(modal.Sandbox.create.aio(app=app, image=broken))
    seen["missing"] = await raised(modal.Sandbox.from_id.aio("sb-01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    wrong = modal.Client.from_credentials("ak-known", "as-wrong")
    seen["wrong token"] = await raised(modal.App.lookup.aio("an-app", client=wrong))
    print(json.dumps(seen))


assert problems.AuthError
asyncio.run(main())
