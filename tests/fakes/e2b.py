#!/usr/bin/python3
"""E2B's sandboxes: the routes of its API for their life, and envd's process service behind its
proxy.

    E2B_FAKE_KEY=KEY e2b.py

Says its address, which is that of the API (E2B_API_URL) and of the proxy to all sandboxes
(E2B_SANDBOX_URL), which are told apart by the header E2b-Sandbox-Id. POST /_fake makes faults
(process_service.Faults), and also {"kill": ID}, {"idle": ID} (its timeout comes), {"fail": true}
(the next one is refused), {"lag": N} (the proxy refuses so many requests for a new one, which it
does not know yet). GET says what there is.
"""
import asyncio
import datetime
import os
import sys
import urllib.parse
import uuid

from aiohttp import web

import process_service as ps

KEY = os.environ.get("E2B_FAKE_KEY", "e2b_" + "0" * 40)
TEMPLATES = {"base", "code-interpreter-v1"}
faults = ps.Faults()
boxes, keys, orders = {}, {}, {"lag": 0}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def refusal(code, message):
    return web.json_response({"code": code, "message": message}, status=code)


class Box(ps.Sandbox):
    def __init__(self, asked):
        super().__init__("i" + uuid.uuid4().hex[:19], keyed=False)
        self.asked, self.started, self.token = asked, now(), "envd-" + uuid.uuid4().hex
        self.timer, self.lag = None, orders["lag"]
        self.network = asked.get("allow_internet_access", True)
        self.reset(asked.get("timeout", 300))

    def reset(self, seconds):
        self.end_at = now() + datetime.timedelta(seconds=seconds)
        if self.timer:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.time_is_up)

    def time_is_up(self):
        if self.asked.get("autoPause"):
            self.pause(True)
        else:
            boxes.pop(self.id, None)
            self.end()

    def created(self):
        return {"templateID": self.asked["templateID"], "sandboxID": self.id, "clientID": "client",
                "envdVersion": "0.6.4",
                "envdAccessToken": self.token, "domain": None}

    def listed(self):
        return {"templateID": self.asked["templateID"], "sandboxID": self.id, "clientID": "client",
                "envdVersion": "0.6.4",
                "startedAt": self.started.isoformat(), "endAt": self.end_at.isoformat(),
                "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024,
                "state": "paused" if self.paused else "running",
                "metadata": self.asked.get("metadata", {})}


@web.middleware
async def authorized(request, handler):
    if (not request.path.startswith(("/process.", "/health", "/_fake"))
        and request.headers.get("X-API-KEY") != KEY):
        return refusal(401, "Invalid API key")
    return await handler(request)


async def create(request):
    asked = await request.json()
    if orders.pop("fail", None):
        return refusal(500, "Failed to place sandbox")
    if asked.get("templateID") not in TEMPLATES:
        return refusal(404, "template '%s' not found" % asked.get("templateID"))
    if not 0 < asked.get("timeout", 300) <= 86400:
        return refusal(400, "Timeout cannot be greater than 24 hours")
    key = request.headers.get("Idempotency-Key")
    box = keys.get(key) if key else None
    if box is None:
        box = Box(asked)
        await box.boot()
        boxes[box.id] = box
        if key:
            keys[key] = box
    return web.json_response(box.created(), status=201)


def found(handler):
    async def handle(request):
        box = boxes.get(request.match_info["id"])
        if box is None:
            return refusal(404, "sandbox %s doesn't exist or you don't have access to it"
                           % request.match_info["id"])
        return await handler(request, box)
    return handle


async def show(request, box):
    return web.json_response({**box.listed(), "envdAccessToken": box.token,
                              "allowInternetAccess": box.asked.get("allow_internet_access", True)})


async def listing(request):
    wanted = dict(urllib.parse.parse_qsl(request.query.get("metadata", "")))
    wanted = {urllib.parse.unquote(k): urllib.parse.unquote(v) for k, v in wanted.items()}
    states = ([s for value in request.query.getall("state", []) for s in value.split(",")]
              or ["running", "paused"])
    chosen = [b.listed() for b in boxes.values()
              if wanted.items() <= b.asked.get("metadata", {}).items()]
    shown, at = [b for b in chosen
                 if b["state"] in states], int(request.query.get("nextToken") or 0)
    size = min(int(request.query.get("limit", 100)), orders.get("page", 100))
    more = {"x-next-token": str(at + size)} if at + size < len(shown) else {}
    return web.json_response(shown[at:at + size], headers=more)


async def delete(request, box):
    boxes.pop(box.id, None)
    box.timer.cancel()
    box.end()
    return web.Response(status=204)


async def timeout(request, box):
    box.reset((await request.json())["timeout"])
    return web.Response(status=204)


async def pause(request, box):
    if box.paused:
        return refusal(409, "sandbox is already paused")
    box.timer.cancel()
    box.pause(True)
    faults.cut()        # its connections do not outlive it
    return web.Response(status=204)


async def connect(request, box):
    again = box.paused
    if again:
        box.pause(False)
    box.reset((await request.json()).get("timeout", 300))
    return web.json_response(box.created(), status=201 if again else 200)


def behind_proxy(request):
    """The sandbox, as the proxy and envd find it."""
    ident = request.headers.get("E2b-Sandbox-Id")
    box = boxes.get(ident)
    if box and box.lag > 0:
        box.lag, box = box.lag - 1, None
    if box is None or box.paused:
        raise web.HTTPBadGateway(
            text='{"sandboxId":"%s","message":"The sandbox was not found","code":502}' % ident,
            content_type="application/json")
    if request.headers.get("E2b-Sandbox-Port") != "49983":
        raise web.HTTPBadGateway(
            text='{"sandboxId":"%s","message":"The sandbox is running but port is not '
                 'open","code":502}' % ident,
            content_type="application/json")
    if request.headers.get("X-Access-Token") != box.token:
        raise web.HTTPUnauthorized(
            text='{"code":401,"message":"unauthorized access, '
                 'please provide a valid access token"}',
            content_type="application/json")
    return box


async def health(request):
    behind_proxy(request)
    return web.Response(status=204)


def order(asked):
    for name in ("kill", "idle"):
        ident = asked.get(name)
        for box in list(boxes.values()):
            if ident in ("all", box.id):
                boxes.pop(box.id, None)
                box.end()
    orders.update({k: asked[k] for k in ("fail", "page", "lag") if k in asked})


def state():
    return {"sandboxes": {i: {"status": "paused" if b.paused else "running", "alive": b.alive,
                              "asked": b.asked, "programs": len(b.programs),
                              "ends": b.end_at.timestamp()}
                          for i, b in boxes.items()}, "lag": orders["lag"]}


def end():
    for box in boxes.values():
        box.end()


def main():
    app = web.Application(middlewares=[ps.faulty(faults), authorized], client_max_size=1 << 28)
    app["order"] = order
    one = "/sandboxes/{id}"
    app.add_routes([
        web.post("/v2/sandboxes", create), web.get("/v2/sandboxes", listing),
        web.get(one, found(show)), web.delete(one, found(delete)),
        web.post(one + "/timeout", found(timeout)), web.post(one + "/pause", found(pause)),
        web.post("/v2" + one + "/connect", found(connect)),
        web.get("/health", health), *ps.Service(faults, behind_proxy,
                                                keepalive=90).routes("/process.Process")])
    ps.serve(app, faults, state, end)


if __name__ == "__main__":
    sys.exit(main())
