#!/usr/bin/python3
"""Prime's sandboxes (VMs): the routes of its API for their life, its gateway, and the command
sessions behind that.

    PRIME_FAKE_KEY=KEY prime.py

Says its address, which is that of the API and of the gateway; POST /_fake makes faults
(process_service.Faults), and also {"kill": ID}, {"idle": ID} (as if its idle timeout had come),
{"expire": true} (all tokens of the gateway, now), {"slow": POLLS} (so many looks at a sandbox until
it runs), {"lag": N} (the gateway hears late of a sandbox that runs, and refuses so many requests,
with 404 and 502 in turns), {"fail": [TYPE, MESSAGE]} (the next one comes to nothing), {"container":
true} (so does VM). GET says what there is.
"""
import asyncio
import datetime
import json
import os
import sys
import uuid

from aiohttp import web

import process_service as ps

KEY = os.environ.get("PRIME_FAKE_KEY", "prime-key")
TOKEN_SECONDS = float(os.environ.get("PRIME_FAKE_TOKEN_SECONDS", "3600"))
ENDED = ("TERMINATED", "ERROR", "TIMEOUT")
faults = ps.Faults()
boxes, keys, tokens, orders = {}, {}, {}, {"slow": 2, "lag": 2}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def detail(status, text):
    return web.json_response({"detail": text}, status=status)


class Box(ps.Sandbox):
    def __init__(self, asked):
        super().__init__("sbx" + uuid.uuid4().hex[:20], keyed=True)
        self.asked, self.created, self.status = asked, now(), "PENDING"
        self.polls, self.error = orders["slow"], orders.pop("fail", None)
        self.vm = not orders.pop("container", False)
        self.reason, self.lag, self.stepping = None, orders["lag"], asyncio.Lock()
        self.network = asked.get("network_allowlist") != []

    async def step(self):
        """Each look brings it further, as time would, but for one that comes while it boots."""
        async with self.stepping:
            await self.one_step()

    async def one_step(self):
        if self.status in ("PENDING", "PROVISIONING"):
            self.polls -= 1
            self.status = "PROVISIONING"
            if self.polls <= 0 and self.error:
                self.finish("ERROR")
            elif self.polls <= 0:
                await self.boot()
                self.status = "RUNNING"
                minutes = self.asked.get("timeout_minutes", 60)
                asyncio.get_running_loop().call_later(minutes * 60, self.finish, "TIMEOUT",
                                                      "timeout")

    def finish(self, status, reason=None, error=None):
        if self.status not in ENDED:
            self.status, self.reason, self.error = status, reason, error or self.error
            self.end()

    def shown(self):
        a, error = self.asked, self.error or (None, None)
        return {"id": self.id, "name": a["name"], "dockerImage": a.get("docker_image", ""),
                "cpuCores": a.get("cpu_cores", 1.0),
                "memoryGB": a.get("memory_gb", 1.0), "diskSizeGB": a.get("disk_size_gb", 5.0),
                "diskMountPath": "/sandbox-workspace",
                "gpuCount": a.get("gpu_count", 0), "gpuType": a.get("gpu_type"), "vm": self.vm,
                "status": self.status,
                "networkAllowlist": a.get("network_allowlist"),
                "networkDenylist": a.get("network_denylist"),
                "timeoutMinutes": a.get("timeout_minutes", 60),
                "idleTimeoutMinutes": a.get("idle_timeout_minutes"),
                "terminationReason": self.reason, "environmentVars": a.get("environment_vars"),
                "labels": a.get("labels", []),
                "createdAt": self.created.isoformat(), "updatedAt": now().isoformat(),
                "errorType": error[0], "errorMessage": error[1],
                "userId": "user", "teamId": a.get("team_id"), "region": a.get("region"),
                "pendingImageBuildId": None}


def box_of(request):
    box = boxes.get(request.match_info["id"])
    if box is None:
        raise web.HTTPNotFound(text=json.dumps({"detail": "Sandbox not found"}),
                               content_type="application/json")
    return box


@web.middleware
async def authorized(request, handler):
    if request.path.startswith("/api/") and request.headers.get("Authorization") != "Bearer " + KEY:
        return detail(401, "Invalid API key")
    return await handler(request)


ALLOWED = {"name", "docker_image", "checkpoint_id", "arch", "start_command", "cpu_cores",
           "memory_gb", "disk_size_gb", "gpu_count",
           "gpu_type", "vm", "network_allowlist", "network_denylist", "timeout_minutes",
           "idle_timeout_minutes", "environment_vars",
           "secrets", "labels", "team_id", "region", "advanced_configs", "idempotency_key",
           "volumes", "guaranteed",
           "registry_credentials_id"}


def wrong(a):
    """Why a request cannot be."""
    unknown = set(a) - ALLOWED
    if unknown or not a.get("name") or not a.get("docker_image"):
        return "Field required: name, docker_image; unknown: %s" % sorted(unknown)
    if a.get("network_allowlist") is not None and a.get("network_denylist") is not None:
        return "network_allowlist and network_denylist are mutually exclusive"
    if not 1 <= a.get("timeout_minutes", 60) <= 1440:
        return "timeout_minutes must be between 1 and 1440"
    idle = a.get("idle_timeout_minutes")
    if idle is not None and not 1 <= idle <= a.get("timeout_minutes", 60):
        return "idle_timeout_minutes must be between 1 and timeout_minutes"
    if a.get("gpu_count", 0) > 0 and not a.get("gpu_type"):
        return "gpu_type is required when gpu_count is greater than 0"
    return None


async def create(request):
    a = await request.json()
    why = wrong(a)
    if why:
        return detail(422, why)
    key = a.pop("idempotency_key", None)
    box = boxes.get(keys.get(key)) if key else None
    if box is None:
        box = Box(a)
        boxes[box.id] = box
        if key:
            keys[key] = box.id
    return web.json_response(box.shown())


async def show(request):
    box = box_of(request)
    await box.step()
    return web.json_response(box.shown())


async def statuses(request):
    found, errors = [], []
    for ident in (await request.json())["sandbox_ids"]:
        box = boxes.get(ident)
        if box is None:
            errors.append({"sandbox_id": ident, "code": "NOT_FOUND",
                           "message": "Sandbox not found"})
            continue
        await box.step()
        error = box.error or (None, None)
        found.append({"sandbox_id": ident, "status": box.status, "error_type": error[0],
                      "error_message": error[1],
                      "pending_image_build_id": None})
    return web.json_response({"statuses": found, "errors": errors})


async def listing(request):
    q = request.query
    labels = set(q.getall("labels", []))
    page, size = int(q.get("page", 1)), min(int(q.get("per_page", 50)), orders.get("page", 100))
    found = [b for b in boxes.values() if labels <= set(b.asked.get("labels", []))
             and (q.get("is_active", "false").lower() != "true" or b.status not in ENDED)]
    shown = [b.shown() for b in found[(page - 1) * size:page * size]]
    return web.json_response({"sandboxes": shown, "total": len(found), "page": page,
                              "perPage": size, "hasNext": page * size < len(found)})


async def delete(request):
    box_of(request).finish("TERMINATED", "deleted")
    return web.json_response({"message": "Sandbox deleted"})


async def delete_many(request):
    asked = await request.json()
    labels = set(asked.get("labels") or [])
    chosen = [i for i, b in boxes.items() if i in (asked.get("sandbox_ids") or []) or labels
              and labels <= set(b.asked.get("labels", []))]
    for ident in chosen:
        boxes[ident].finish("TERMINATED", "deleted")
    return web.json_response({"succeeded": chosen, "failed": [], "message": "deleted"})


async def error_context(request):
    box = box_of(request)
    error = box.error or (None, None)
    return web.json_response({"status": box.status, "errorType": error[0],
                              "errorMessage": error[1]})


async def egress(request):
    a = box_of(request).asked
    return web.json_response({"policy": {"allowlist": a.get("network_allowlist"),
                                         "denylist": a.get("network_denylist")},
                              "generation": 1, "applied_generation": 1, "applied": True})


async def auth(request):
    box = box_of(request)
    if box.status != "RUNNING":
        return detail(409, "Sandbox is not running")
    token = "gateway-" + uuid.uuid4().hex
    expires = now() + datetime.timedelta(seconds=TOKEN_SECONDS)
    tokens[token] = (box, expires)
    return web.json_response({"gateway_url": "http://" + request.host + "/gateway", "token": token,
                              "user_ns": "user-ns",
                              "job_id": box.id, "expires_at":
                              expires.isoformat().replace("+00:00", "Z"), "sandbox_id": box.id})


def behind_gateway(request):
    """The sandbox, as the gateway finds it."""
    box, expires = tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "),
                              (None, None))
    if (box is None or expires < now() or box.id != request.match_info["job"]
        or request.match_info["ns"] != "user-ns"):
        raise ps.Refused("unauthenticated", "invalid or expired token")
    if not box.alive:
        raise ps.Refused("not_found", "sandbox_not_found")
    if box.lag > 0:
        box.lag -= 1
        if box.lag % 2:
            raise web.HTTPBadGateway(text='{"error":"sandbox_not_found"}',
                                     content_type="application/json")
        raise ps.Refused("not_found", "sandbox_not_found")
    if not box.vm:
        raise ps.Refused("unimplemented", "not a VM sandbox")
    return box


def order(asked):
    for ident in [asked.get("kill"), asked.get("idle")]:
        if ident:
            chosen = list(boxes.values()) if ident == "all" else [boxes[ident]]
            for box in chosen:
                if ident == asked.get("idle"):
                    box.finish("TERMINATED", "idle_timeout",
                               ("IDLE_TIMEOUT", "Sandbox was idle for too long"))
                else:
                    box.finish("ERROR", None, ("OOM_KILLED", "Sandbox ran out of memory"))
    if asked.get("expire"):
        tokens.clear()
    orders.update({k: asked[k] for k in ("slow", "lag", "fail", "container", "page") if k in asked})


def state():
    return {"sandboxes": {i: {"status": b.status, "alive": b.alive, "asked": b.asked,
                              "programs": len(b.programs)} for i, b in boxes.items()},
            "tokens": len(tokens), "lag": orders["lag"]}


def end():
    for box in boxes.values():
        box.end()


def main():
    app = web.Application(middlewares=[ps.faulty(faults), authorized], client_max_size=1 << 28)
    app["order"] = order
    api = "/api/v1/sandbox"
    service = ps.Service(faults, behind_gateway, keepalive=30)
    app.add_routes([
        web.post(api, create), web.get(api, listing), web.delete(api, delete_many),
        web.post(api + "/status:batchGet", statuses),
        web.get(api + "/{id}", show), web.delete(api + "/{id}", delete),
        web.get(api + "/{id}/error-context", error_context),
        web.get(api + "/{id}/egress-policy", egress), web.post(api + "/{id}/auth", auth),
        *service.routes("/gateway/{ns}/{job}/command_session.CommandSession")])
    ps.serve(app, faults, state, end)


if __name__ == "__main__":
    sys.exit(main())
