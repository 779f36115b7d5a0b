"""A Daytona that runs on this machine: the API, the toolbox of each sandbox, and terminals with
real shells in them.

    python3 tests/fakes/daytona.py [--port N] [--certificate FILE --key FILE]

says its address on a line, and runs until its standard input ends. All is gone with it.

A sandbox is a space of processes and mounts of its own (daytona_sandbox.py): its directory is
/home/daytona, a volume is a bucket's mount (bucket.py), which is bound into it, and with
networkBlockAll it has no network. That needs root; without /dev/fuse a volume is a plain directory,
and the state says so.

Which routes are whose: tests/clouds/sdk_daytona.py drives all that the vendor's own SDK uses, from
0.226 on, and so keeps them what they are: /sandbox, /sandbox/{id}[/start|/stop|/ttl/N|/autostop/N],
/volumes, /process/execute, /process/pty (list, look, resize, delete), /process/pty/create-connect
and …/{id}/connect with its subprotocol, /files. Older SDKs and our client make a terminal with POST
/process/pty, and connect without a subprotocol: then its end is told by the close frame alone. What
a reader cannot see from an SDK is from the open source of v0.190: a message of more than 64 KiB
closes with 1009, a client that does not read with 1008, and what is said while nobody is attached
is lost.

Faults come by POST /_fake/…, which no service has:

    fail     {"method", "path" (a regular expression), "status", "times", "retry_after", "how":
             "before"|"after"|"drop"} answers so, before or after the work was done, or ends the
             connection after it without an answer
    cuts     [{"out": N} | {"in": N} | {"frames": N, "part": 0..1}, …]: one for each terminal's
             connection that comes
    cut      all connections of terminals, now
    sandbox  {"id", "do": "stop"|"kill"|"destroy"|"error"|"pty"}: as idleness, the machine, an
             administrator would
    delay    {"states": seconds}: how long each state of a start lasts
    minute   {"seconds": N}: how long a minute of autoStopInterval lasts
    shell    {"shell": PATH}: of sandboxes that start from now on
    keys     {"keys": […]}: the keys that count from now on
    calm     no faults from now on
    state    GET: sandboxes with their bodies, volumes, and how often each route was asked
"""
import argparse
import asyncio
import collections
import contextvars
import datetime
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import uuid

from aiohttp import web

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bucket             # noqa: E402
import daytona_sandbox    # noqa: E402
import daytona_terminal    # noqa: E402

KEYS = {"dtn_canary-7c1e55"}
TOKEN, ORGANIZATION = "jwt-canary-91f0aa", "7f0f0d3e-0000-4000-8000-00000000d70f"
SNAPSHOTS = {"daytona-small", "daytona-medium", "daytona-large", "fleet-rlm-base"}
USUAL = "daytona-small"
PAGE = 2
STATE_SECONDS, MINUTE_SECONDS = 0.05, 60
IDLE_MINUTES = 15       # where autoStopInterval is not given; 0 is never
INTERVALS = {"autostop": "autoStopInterval", "autoarchive": "autoArchiveInterval",
             "autodelete": "autoDeleteInterval",
             "ttl": "ttlMinutes"}


#: The address by which the client knows this service: a proxy may stand between (delay_proxy.py).
reached_at = contextvars.ContextVar("reached_at", default="")


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace(
        "+00:00", "Z")


class Refused(Exception):
    """What the service says no with."""

    def __init__(self, status, message, error=None, headers=None):
        super().__init__(message)
        self.status, self.message, self.error, self.headers = status, message, error, headers or {}

    def answer(self, path):
        words = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
                 409: "Conflict",
                 429: "Too Many Requests", 503: "Service Unavailable"}
        body = {"path": path, "timestamp": now(), "statusCode": self.status,
                "error": self.error or words.get(self.status, "Error"), "message": self.message}
        return web.json_response(body, status=self.status, headers=self.headers)


class Sandbox:
    """What the API knows of one, and what runs of it."""

    def __init__(self, service, body):
        self.service, self.asked, self.id = service, body, str(uuid.uuid4())
        self.name = body.get("name") or self.id
        self.labels, self.state, self.reason = dict(body.get("labels") or {}), "creating", None
        self.intervals = {key: body.get(key) for key in INTERVALS.values()}
        self.created = now()
        self.terminals, self.machine, self.task = {}, None, None
        self.born = self.active = time.monotonic()
        self.directory = os.path.join(service.root, "sandboxes", self.id)

    def begin(self, states):
        self.state = states[0]
        self.task = asyncio.ensure_future(self.start(states[1:]))

    async def start(self, states):
        """Through the states that come before `started`."""
        content = (self.asked.get("buildInfo") or {}).get("dockerfileContent", "")
        for state in states:
            await asyncio.sleep(self.service.delay)
            self.state = state
            if state == "building_snapshot" and "no-such" in content:
                self.state, self.reason = ("build_failed",
                                           "pull access denied for no-such, repository does not "
                                           "exist")
                return
        await asyncio.sleep(self.service.delay)
        try:
            volumes = [(await self.service.directory_of(v), v["mountPath"])
                       for v in self.asked.get("volumes") or []]
            self.machine = await daytona_sandbox.start(self.directory, volumes,
                                                       bool(self.asked.get("networkBlockAll")),
                                                       self.asked.get("env") or {},
                                                       self.service.shell)
            self.state, self.active = "started", time.monotonic()
            asyncio.ensure_future(self.limits())
        except OSError as e:
            self.state, self.reason = "error", str(e)

    async def limits(self):
        """Stops it when nothing has happened for long, and ends it with its time. Requests to it
        count, and a terminal for as long as a client is attached."""
        while self.state == "started":
            await asyncio.sleep(0.05 if self.service.minute < 1 else 1)
            if any(terminal.clients for terminal in self.terminals.values()):
                self.active = time.monotonic()
            idle, life = self.intervals["autoStopInterval"], self.intervals["ttlMinutes"]
            idle = IDLE_MINUTES if idle is None else idle
            if (self.state == "started" and life
                and time.monotonic() - self.born > life * MINUTE_SECONDS):
                await self.halt("destroyed")
            elif (self.state == "started" and idle
                  and time.monotonic() - self.active > idle * self.service.minute):
                await self.halt("stopped")

    async def halt(self, state):
        """Ends all that runs in it."""
        self.state = {"stopped": "stopping", "destroyed": "destroying"}.get(state, state)
        if self.task:
            self.task.cancel()
        for terminal in list(self.terminals.values()):
            terminal.end()
        self.terminals.clear()
        if self.machine:
            await self.machine.end()
            self.machine = None
        self.state = state
        if state == "stopped" and self.intervals["autoDeleteInterval"] == 0:
            state = "destroyed"
        if state == "destroyed":
            self.service.sandboxes.pop(self.id, None)
            shutil.rmtree(self.directory, ignore_errors=True)

    def dto(self):
        asked = self.asked
        out = {"id": self.id, "organizationId": ORGANIZATION, "name": self.name,
               "snapshot": asked.get("snapshot", USUAL),
               "user": "daytona", "env": asked.get("env") or {}, "labels": self.labels,
               "public": bool(asked.get("public")),
               "networkBlockAll": bool(asked.get("networkBlockAll")), "kvm": False,
               "target": asked.get("target") or "us",
               "cpu": asked.get("cpu") or 1, "gpu": asked.get("gpu") or 0,
               "memory": asked.get("memory") or 1,
               "disk": asked.get("disk") or 3, "state": self.state, "desiredState": "started",
               "backupState": "None",
               "volumes": asked.get("volumes") or [], "createdAt": self.created, "updatedAt": now(),
               "runnerId": "runner-1",
               "toolboxProxyUrl": reached_at.get() + "/toolbox", "class": "small"}
        if asked.get("buildInfo"):
            out["buildInfo"] = {**asked["buildInfo"], "snapshotRef": "ref",
                                "createdAt": self.created, "updatedAt": self.created}
            del out["snapshot"]
        for key in ("networkAllowList", "domainAllowList"):
            if asked.get(key):
                out[key] = asked[key]
        for key, value in self.intervals.items():
            if value is not None and key != "ttlMinutes":
                out[key] = value
        if self.reason:
            out["errorReason"] = self.reason
        return out


class Service:
    """All sandboxes and volumes of one account."""

    def __init__(self, root):
        self.root, self.shell = root, "/bin/bash"
        self.sandboxes, self.volumes = {}, {}
        # the processes that serve volumes, by the volumes' ids
        self.buckets, self.mounts = bucket.possible(), {}
        self.keys, self.faults, self.cuts = set(KEYS), [], collections.deque()
        self.delay, self.minute, self.asked = STATE_SECONDS, MINUTE_SECONDS, collections.Counter()
        self.created = 0
        self.bodies = []

    # -- authentication

    def check(self, request):
        authorization = request.headers.get("Authorization", "")
        token = authorization[7:] if authorization.startswith("Bearer ") else None
        if token in self.keys:
            return
        if token == TOKEN and request.headers.get("X-Daytona-Organization-ID") == ORGANIZATION:
            return
        raise Refused(401, "Invalid credentials")

    def sandbox(self, request, key="id"):
        name = request.match_info[key]
        for s in self.sandboxes.values():
            if name in (s.id, s.name):
                return s
        raise Refused(404, "Sandbox with ID or name %s not found" % name)

    # -- sandboxes

    async def create(self, request):
        body = await request.json()
        self.bodies.append(body)
        if body.get("buildInfo") and body.get("snapshot"):
            raise Refused(400, "Cannot specify both a snapshot and a build info")
        if not body.get("buildInfo"):
            if any(body.get(key) is not None for key in ("cpu", "memory", "disk", "gpu")):
                raise Refused(400, "Cannot specify Sandbox resources when using a snapshot")
            if body.get("snapshot", USUAL) not in SNAPSHOTS:
                raise Refused(400,
                              "Snapshot %s not found. Did you add it through the Daytona Dashboard?"
                              % body["snapshot"])
        elif not re.match(r"FROM \S+\n", body["buildInfo"].get("dockerfileContent", "")):
            raise Refused(400, "dockerfileContent must begin with FROM")
        if body.get("networkBlockAll") and (body.get("networkAllowList")
                                            or body.get("domainAllowList")):
            raise Refused(400, "networkBlockAll and an allow list exclude each other")
        for v in body.get("volumes") or []:
            self.volume_ready(v)
        if body.get("name") and any(s.name == body["name"] for s in self.sandboxes.values()):
            raise Refused(409, "Sandbox with name %s already exists" % body["name"])
        s = Sandbox(self, body)
        self.created += 1
        self.sandboxes[s.id] = s
        s.begin(["pending_build", "building_snapshot", "starting"] if body.get("buildInfo")
                else ["creating", "starting"])
        # the service itself waits for these, for up to half a minute
        if not body.get("buildInfo"):
            await asyncio.wait([s.task], timeout=30)
        return web.json_response(s.dto())

    async def list(self, request):
        wanted = json.loads(request.query.get("labels") or "{}")
        found = [s for s in self.sandboxes.values()
                 if all(s.labels.get(k) == v for k, v in wanted.items())]
        # a page may have fewer than were asked for
        limit = min(int(request.query.get("limit") or 100), PAGE)
        at = int(request.query.get("cursor") or 0)
        more = str(at + limit) if len(found) > at + limit else None
        return web.json_response({"items": [s.dto() for s in found[at:at + limit]],
                                  "nextCursor": more})

    async def look(self, request):
        return web.json_response(self.sandbox(request).dto())

    async def start(self, request):
        s = self.sandbox(request)
        if s.state not in ("stopped", "archived"):
            raise Refused(400, "Sandbox is not in a state that can be started: %s" % s.state)
        s.begin(["starting"])
        return web.json_response(s.dto())

    async def stop(self, request):
        s = self.sandbox(request)
        if s.state != "started":
            raise Refused(400, "Sandbox is not started")
        await s.halt("stopped")
        return web.json_response(s.dto())

    async def delete(self, request):
        s = self.sandbox(request)
        await s.halt("destroyed")
        return web.json_response(s.dto())

    async def interval(self, request):
        s = self.sandbox(request)
        s.intervals[INTERVALS[request.match_info["what"]]] = int(request.match_info["minutes"])
        return web.json_response(s.dto())

    async def relabel(self, request):
        s = self.sandbox(request)
        s.labels = (await request.json())["labels"]
        return web.json_response({"labels": s.labels})

    async def toolbox_address(self, request):
        self.sandbox(request)
        return web.json_response({"url": reached_at.get() + "/toolbox"})

    # -- volumes

    async def directory_of(self, mount):
        ident = self.volume_ready(mount)["id"]
        place = os.path.join(self.root, "volumes", ident)
        if self.buckets:
            place = await self.mount_of(ident, place)
        place = os.path.join(place, mount.get("subpath") or "")
        os.makedirs(place, exist_ok=True)
        if not self.buckets:
            daytona_sandbox.give(place)
        return place

    async def mount_of(self, ident, directory):
        """Where a volume's bucket is mounted: once for all sandboxes of a runner."""
        target = os.path.join(self.root, "mounts", ident)
        if ident not in self.mounts:
            os.makedirs(target)
            self.mounts[ident] = asyncio.ensure_future(asyncio.create_subprocess_exec(
                sys.executable, "-I", bucket.__file__, directory, target, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                preexec_fn=daytona_sandbox.dies_with_us))
            ready = await (await self.mounts[ident]).stdout.readline()
            assert ready, "the bucket cannot be mounted"
        while not os.path.ismount(target):
            await asyncio.sleep(0.01)
        return target

    async def unmount(self, ident):
        if ident in self.mounts:
            process = await self.mounts.pop(ident)
            process.kill()
            await process.wait()
            await (await asyncio.create_subprocess_exec(
                "umount", "-l", os.path.join(self.root, "mounts", ident))).wait()

    def volume_ready(self, mount):
        for v in self.volumes.values():
            if mount["volumeId"] in (v["id"], v["name"]):
                if v["state"] != "ready":
                    raise Refused(400, "Volume '%s' is not in a ready state. Current state: %s"
                                  % (v["name"], v["state"]))
                return v
        raise Refused(404, "Volume '%s' not found" % mount["volumeId"])

    async def make_volume(self, request):
        name = (await request.json())["name"]
        if any(v["name"] == name for v in self.volumes.values()):
            raise Refused(409, "Volume with name %s already exists" % name)
        v = {"id": str(uuid.uuid4()), "name": name, "organizationId": ORGANIZATION,
             "state": "pending_create",
             "createdAt": now(), "updatedAt": now(), "errorReason": None}
        self.volumes[v["id"]] = v
        asyncio.get_running_loop().call_later(max(self.delay, 0.02),
                                              lambda: v.update(state="ready"))
        return web.json_response(dict(v))

    async def volume_list(self, request):
        return web.json_response(list(self.volumes.values()))

    def volume_by(self, key, value):
        for v in self.volumes.values():
            if v[key] == value:
                return v
        raise Refused(404, "Volume with %s %s not found" % (key, value))

    async def volume(self, request):
        return web.json_response(self.volume_by("id", request.match_info["id"]))

    async def volume_named(self, request):
        return web.json_response(self.volume_by("name", request.match_info["name"]))

    async def remove_volume(self, request):
        v = self.volume_by("id", request.match_info["id"])
        del self.volumes[v["id"]]
        await self.unmount(v["id"])
        shutil.rmtree(os.path.join(self.root, "volumes", v["id"]), ignore_errors=True)
        return web.Response(status=200)

    # -- the toolbox

    def running(self, request):
        s = self.sandbox(request)
        s.active = time.monotonic()
        if s.state != "started":
            raise Refused(400,
                          "failed to get runner info: no IP address found. Is the Sandbox started?")
        return s

    async def directory(self, request):
        self.running(request)
        return web.json_response({"dir": daytona_sandbox.HOME})

    async def execute(self, request):
        s, body = self.running(request), await request.json()
        code, output = await s.machine.run(body["command"], body.get("cwd"), body.get("envs"),
                                           body.get("timeout") or 360)
        return web.json_response({"exitCode": code, "result": output})

    # -- faults

    async def fault(self, request):
        what = request.match_info["what"]
        if what == "state":
            return web.json_response({
                "sandboxes": [{**s.dto(), "intervals": s.intervals, "terminals": list(s.terminals),
                               "init": s.machine.init if s.machine else None}
                              for s in self.sandboxes.values()],
                "volumes": list(self.volumes.values()), "asked": dict(self.asked),
                "created": self.created,
                "bodies": self.bodies, "cuts": len(self.cuts), "buckets": self.buckets})
        body = await request.json()
        if what == "fail":
            self.faults.append({"times": 1, "how": "before", "method": ".*", **body})
        elif what == "cuts":
            self.cuts = collections.deque(body)
        elif what == "cut":
            for s in self.sandboxes.values():
                for terminal in s.terminals.values():
                    terminal.cut()
        elif what == "delay":
            self.delay = body["states"]
        elif what == "minute":
            self.minute = body["seconds"]
        elif what == "shell":
            self.shell = body["shell"]
        elif what == "keys":
            self.keys = set(body["keys"])
        elif what == "calm":
            self.keys, self.faults, self.delay, self.shell = set(
                KEYS), [], STATE_SECONDS, "/bin/bash"
            self.minute = MINUTE_SECONDS
            self.cuts.clear()
        elif what == "sandbox":
            await self.do(body)
        else:
            raise Refused(404, what)
        return web.json_response({})

    async def do(self, body):
        s = self.sandboxes[body["id"]]
        if body["do"] == "kill":            # the machine is gone, and nobody has noticed yet
            await s.machine.end()
        elif body["do"] == "pty":
            for terminal in list(s.terminals.values()):
                terminal.kill()
        elif body["do"] == "error":
            s.reason = body.get("reason", "the runner is gone")
            await s.halt("error")
        else:
            await s.halt({"stop": "stopped", "destroy": "destroyed"}[body["do"]])

    def fault_of(self, request):
        for f in self.faults:
            if (f["times"] > 0 and re.fullmatch(f["method"], request.method)
                and re.search(f["path"], request.path)):
                f["times"] -= 1
                return f
        return None

    @web.middleware
    async def around(self, request, handler):
        """Keys, counts and faults, for every route."""
        reached_at.set("%s://%s" % (request.scheme, request.host))
        if request.path.startswith("/_fake/"):
            return await handler(request)
        self.asked["%s %s" % (request.method, re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|droste-[\w-]+",
                                                     "ID", request.path))] += 1
        fault = self.fault_of(request)
        try:
            if fault and fault["how"] == "before":
                raise Refused(fault["status"], fault.get("message", "try again later"),
                              headers={"Retry-After": str(fault["retry_after"])}
                              if "retry_after" in fault else {})
            self.check(request)
            answer = await handler(request)
        except Refused as e:
            answer = e.answer(request.path)
        except web.HTTPNotFound:
            answer = Refused(404, "Cannot %s %s"
                             % (request.method, request.path)).answer(request.path)
        if fault and fault["how"] == "drop":
            request.transport.abort()
        if fault and fault["how"] == "after":
            return Refused(fault["status"], "try again later").answer(request.path)
        return answer

    def application(self):
        app = web.Application(middlewares=[self.around], client_max_size=1 << 30)
        box = "/toolbox/{id}"
        terminals = daytona_terminal.Routes(self)
        files = daytona_sandbox.Files(self)
        app.add_routes([
            web.post("/api/sandbox", self.create), web.get("/api/sandbox", self.list),
            web.get("/api/sandbox/{id}", self.look), web.delete("/api/sandbox/{id}", self.delete),
            web.post("/api/sandbox/{id}/start", self.start),
            web.post("/api/sandbox/{id}/stop", self.stop),
            web.put("/api/sandbox/{id}/labels", self.relabel),
            web.get("/api/sandbox/{id}/toolbox-proxy-url", self.toolbox_address),
            web.post("/api/sandbox/{id}/{what:autostop|autoarchive|autodelete|ttl}/{minutes}",
                     self.interval),
            web.get("/api/volumes", self.volume_list), web.post("/api/volumes", self.make_volume),
            web.get("/api/volumes/by-name/{name}", self.volume_named),
            web.get("/api/volumes/{id}", self.volume),
            web.delete("/api/volumes/{id}", self.remove_volume),
            web.get(box + "/work-dir", self.directory),
            web.get(box + "/user-home-dir", self.directory),
            web.post(box + "/process/execute", self.execute),
            web.route("*", "/_fake/{what}", self.fault)] + terminals.routes(box)
                       + files.routes(box))
        app.on_shutdown.append(self.close)
        return app

    async def close(self, app):
        for s in list(self.sandboxes.values()):
            await s.halt("destroyed")
        for ident in list(self.mounts):
            await self.unmount(ident)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    options = parser.parse_args()
    if bucket.possible():
        bucket.own_mounts()
    root = tempfile.mkdtemp(prefix="fake-daytona-")
    os.chmod(root, 0o755)
    service, tls = Service(root), None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate, options.key)
    runner = web.AppRunner(service.application(), access_log=None)
    try:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=tls)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        print("%s://127.0.0.1:%d" % ("https" if tls else "http", port), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await runner.cleanup()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
