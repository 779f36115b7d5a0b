"""What the fakes of Prime and E2B share: sandboxes of this machine's processes, the process service
by which both start and feed programs in them (Connect RPC; the messages of
`command_session.CommandSession` and `process.Process` differ in names, in the selector and in few
fields), and faults on demand.

A sandbox is a directory, which is the home of its programs, and, where root runs this, spaces of
process ids and mounts of its own: all of it ends with the first process in there. Programs have
real pipes. Output that comes while nobody is attached is gone, as in both services.
"""
import asyncio
import base64
import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile

from aiohttp import web

# ---- messages: field number -> (name, kind); a kind is a scalar, a message's name, `*` before what
# is repeated

COMMON = {
    "Start": {1: ("program", "Program"), 2: ("pty", "Pty"), 3: ("tag", "string"),
              4: ("stdin", "bool"),
              5: ("uuid", "string")},
    "Program": {1: ("cmd", "string"), 2: ("args", "*string"), 3: ("envs", "*Pair"),
                4: ("cwd", "string"),
                5: ("user", "string")},
    "Pair": {1: ("key", "string"), 2: ("value", "string")},
    "Pty": {1: ("size", "Size")},
    "Size": {1: ("cols", "uint32"), 2: ("rows", "uint32")},
    "Event": {1: ("event", "Moment")},
    "Moment": {1: ("start", "Pid"), 2: ("data", "Data"), 3: ("end", "End"),
               4: ("keepalive", "Nothing")},
    "Pid": {1: ("pid", "uint32")},
    "Data": {1: ("stdout", "bytes"), 2: ("stderr", "bytes"), 3: ("pty", "bytes")},
    "End": {1: ("exitCode", "sint32"), 2: ("exited", "bool"), 3: ("status", "string"),
            4: ("error", "string")},
    "Nothing": {},
    "Input": {1: ("session", "Selector"), 2: ("input", "Fed"), 3: ("uuid", "string")},
    "Fed": {1: ("stdin", "bytes"), 2: ("pty", "bytes")},
    "Signal": {1: ("session", "Selector"), 2: ("signal", "uint32"), 3: ("uuid", "string")},
    "Connect": {1: ("session", "Selector")},
    "List": {},
    "Listed": {1: ("sessions", "*Session")},
    "Session": {1: ("program", "Program"), 2: ("pid", "uint32"), 3: ("tag", "string"),
                4: ("uuid", "string")},
    "Selector": {1: ("pid", "uint32"), 2: ("tag", "string"), 3: ("uuid", "string")},
}
#: how JSON calls what is called otherwise here; only E2B's SDK speaks it
E2B_NAMES = {"program": ("process", "config"), "session": ("process",), "sessions": ("processes",)}


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at, n, shift = at + 1, n | (byte & 127) << shift, shift + 7
        if byte < 128:
            return n, at
        if shift > 63:
            raise ValueError("a number without an end")


def encode(kind, value):
    out = bytearray()
    for number, (name, sort) in COMMON[kind].items():
        for item in (value.get(name, []) if sort[0] == "*" else [value[name]] if name in value
                     else []):
            sort_ = sort.lstrip("*")
            if sort_ in ("uint32", "bool", "sint32"):
                n = int(item)
                out += varint(number << 3) + varint(((n << 1) ^ (n >> 31)) & 0xFFFFFFFF
                                                    if sort_ == "sint32" else n)
                continue
            raw = (item.encode() if sort_ == "string" else item if sort_ == "bytes"
                   else encode(sort_, item))
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return bytes(out)


def decode(kind, data):
    value, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            item, at = read_varint(data, at)
        elif wire == 2:
            size, at = read_varint(data, at)
            if at + size > len(data):
                raise ValueError("a field that is longer than its message")
            item, at = data[at:at + size], at + size
        else:
            raise ValueError("wire type %d" % wire)
        if number not in COMMON[kind]:
            continue
        name, sort = COMMON[kind][number]
        many, sort = sort[0] == "*", sort.lstrip("*")
        if sort == "string":
            item = bytes(item).decode()
        elif sort == "bytes":
            item = bytes(item)
        elif sort in COMMON:
            item = decode(sort, item)
        if many:
            value.setdefault(name, []).append(item)
        else:
            value[name] = item
    return value


def to_json(kind, value):
    out = {}
    for name, sort in COMMON[kind].values():
        if name not in value:
            continue
        item = value[name]
        called = E2B_NAMES.get(name, (name,))[-1]
        if sort == "*Pair":
            out[called] = {p["key"]: p["value"] for p in item}
        elif sort.lstrip("*") in COMMON:
            out[called] = ([to_json(sort[1:], i) for i in item] if sort[0] == "*"
                           else to_json(sort, item))
        else:
            out[called] = base64.b64encode(item).decode() if sort == "bytes" else item
    return out


def from_json(kind, data):
    value = {}
    for name, sort in COMMON[kind].values():
        item = next((data[n] for n in E2B_NAMES.get(name, (name,)) if n in data), None)
        if item is None:
            continue
        if sort == "*Pair":
            item = [{"key": k, "value": v} for k, v in item.items()]
        elif sort.lstrip("*") in COMMON:
            item = ([from_json(sort[1:], i) for i in item] if sort[0] == "*"
                    else from_json(sort, item))
        elif sort == "bytes":
            item = base64.b64decode(item)
        elif name == "signal" and isinstance(item, str):
            item = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9}[item]
        value[name] = item
    return value


# ---- sandboxes and their programs

INIT = ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print(flush=True)\n"
        "while True: signal.pause()")


class Sandbox:
    """A directory, and programs in it. `alive` until it is ended."""

    def __init__(self, ident, keyed):
        # Prime's has keys of idempotency, and tells the end of a program also to who attaches
        # later; E2B's has tags.
        self.id, self.keyed = ident, keyed
        # /tmp is each one's own, where root runs this
        self.home = tempfile.mkdtemp(prefix="sandbox-", dir="/var/tmp")
        self.programs, self.init, self.alive, self.paused = [], None, True, False
        self.inputs = set()                         # the keys of what was written already
        self.network = True

    async def boot(self):
        if os.geteuid() == 0:
            os.mkdir(self.home + "/.tmp", 0o1777)
            os.chmod(self.home + "/.tmp", 0o1777)
            self.init = await asyncio.create_subprocess_exec(
                "unshare", *([] if self.network else ["--net"]), "--pid", "--mount", "--fork",
                "--kill-child", "--mount-proc", "sh", "-c",
                'mount --bind "$1/.tmp" /tmp && exec "$2" -ISc "$3"', "sh", self.home,
                sys.executable, INIT,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
            await self.init.stdout.readline()

    def words(self):
        """What stands before a command that is to run in there."""
        if not self.init:
            return []
        with open("/proc/%d/task/%d/children" % (self.init.pid, self.init.pid)) as children:
            return ["nsenter", "-t", children.read().split()[0], "-p", "-m", "-n", "--"]

    async def start(self, message):
        program = Program(self, message)
        await program.start()
        self.programs.append(program)
        return program

    def find(self, selector):
        for program in reversed(self.programs):
            if (not program.over or self.keyed) and any(
                    selector.get(k) and selector[k] == getattr(program, k)
                    for k in ("pid", "uuid" if self.keyed else "tag")):
                return program
        return None

    def pause(self, paused):
        self.paused = paused
        for program in self.programs:
            program.signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def end(self):
        if not self.alive:
            return
        self.alive = False
        for program in self.programs:
            program.signal(signal.SIGKILL)
        if self.init and self.init.returncode is None:
            os.killpg(self.init.pid, signal.SIGKILL)
        for program in self.programs:
            program.tell(None)
        shutil.rmtree(self.home, ignore_errors=True)


class Program:
    def __init__(self, sandbox, message):
        self.sandbox, self.message = sandbox, message
        self.tag, self.uuid = message.get("tag"), message.get("uuid")
        self.listeners, self.over, self.process = [], None, None
        self.writing = asyncio.Lock()

    async def start(self):
        asked = self.message["program"]
        environment = {"PATH": os.environ["PATH"], "HOME": self.sandbox.home, "LANG": "C.UTF-8"}
        environment.update((p["key"], p.get("value", "")) for p in asked.get("envs", []))
        if not shutil.which(asked["cmd"], path=environment["PATH"]):
            raise Refused("invalid_argument",
                          'exec: "%s": executable file not found in $PATH' % asked["cmd"])
        stdin = asyncio.subprocess.PIPE if self.message.get("stdin") else asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(
            *self.sandbox.words(), asked["cmd"], *asked.get("args", []), stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, cwd=asked.get("cwd") or self.sandbox.home,
            env=environment,
            start_new_session=True)
        self.pid = self.process.pid
        self.task = asyncio.ensure_future(self.attend())

    async def attend(self):
        await asyncio.gather(self.read("stdout", self.process.stdout),
                             self.read("stderr", self.process.stderr))
        code = await self.process.wait()
        end = {"exitCode": code if code >= 0 else -1, "exited": code >= 0,
               "status": "exit status %d" % code if code >= 0
               else "signal: " + signal.Signals(-code).name}
        if code < 0:
            end["error"] = end["status"]
        self.over = {"event": {"end": end}}
        self.tell(self.over)

    async def read(self, name, stream):
        while True:
            data = await stream.read(32768)
            if not data:
                return
            for queue in list(self.listeners):
                await queue.put({"event": {"data": {name: data}}})

    def tell(self, event):
        for queue in self.listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def signal(self, number):
        if self.process and self.process.returncode is None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass


class Refused(Exception):
    """A Connect error, or an answer of the proxy before the service: (status, object)."""
    STATUS = {"canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504,
              "not_found": 404,
              "already_exists": 409, "permission_denied": 403, "resource_exhausted": 429,
              "failed_precondition": 400,
              "aborted": 409, "unimplemented": 501, "internal": 500, "unavailable": 503,
              "unauthenticated": 401}

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.text = code, message


# ---- faults

class Faults:
    """What goes wrong, as tests ask for it by POST /_fake: {"cut": true} all streams now;
    {"cut_after": BYTES} of all streams from now; {"cut_each": [LEAST, MOST], "times": N, "seed": S}
    again and again after so many frames, at their boundary and in their middle in turns; {"answer":
    {"match": REGEX of "METHOD PATH", "times": N, "status": S, "body": O, "headers": {}, "acted":
    BOOL}}; {"drop": {"match": REGEX, "times": N, "acted": BOOL}} closes the connection before or
    after acting."""

    def __init__(self):
        self.streams, self.rules = set(), []
        self.left = None                                # bytes until the next cut
        self.frames, self.each, self.random = None, None, random.Random(0)
        self.cuts, self.requests = 0, []

    def cut(self):
        for transport in list(self.streams):
            transport.abort()
        self.cuts += len(self.streams)
        self.streams.clear()

    def order(self, asked):
        if asked.get("cut"):
            self.cut()
        if "cut_after" in asked:
            self.left = asked["cut_after"]
        if "cut_each" in asked:
            self.each, self.times = asked["cut_each"], asked.get("times", 1)
            self.random = random.Random(asked.get("seed", 0))
            self.arm()
        for kind in ("answer", "drop"):
            if kind in asked:
                self.rules.append(dict(asked[kind], kind=kind))
        if asked.get("clear"):
            self.rules, self.left, self.frames = [], None, None

    def arm(self):
        self.frames = self.random.randint(*self.each) if self.times > 0 else None
        self.times -= 1

    def rule(self, request):
        line = "%s %s" % (request.method, request.path)
        for rule in self.rules:
            if rule.get("times", 1) > 0 and re.search(rule["match"], line):
                rule["times"] = rule.get("times", 1) - 1
                return rule
        return None

    async def write(self, response, transport, frame):
        """A frame of a stream; False if it was cut in it or behind it."""
        cut = None
        if self.left is not None:
            cut, self.left = ((self.left, None) if self.left <= len(frame)
                              else (None, self.left - len(frame)))
        if cut is None and self.frames is not None:
            self.frames -= 1
            if self.frames <= 0:
                cut = self.random.choice([len(frame), self.random.randint(0, len(frame))])
                self.arm()
        await response.write(frame if cut is None else frame[:cut])
        if cut is None:
            return True
        self.cuts += 1
        self.streams.discard(transport)
        transport.close()       # what was written goes out; no end of the stream does
        return False


def faulty(faults):
    @web.middleware
    async def middleware(request, handler):
        if request.path == "/_fake":
            return await handler(request)
        faults.requests.append("%s %s" % (request.method, request.path))
        rule = faults.rule(request)
        if rule is None:
            return await handler(request)
        # else aiohttp hears the next request on this connection as the rest of this one
        await request.read()
        if rule.get("acted"):
            await handler(request)
        if rule["kind"] == "answer":
            body = rule.get("body", {"message": "as the test asked", "detail": "as the test asked",
                                     "code": rule["status"]})
            return web.json_response(body, status=rule["status"], headers=rule.get("headers"))
        request.transport.abort()
        return web.Response(status=500)
    return middleware


# ---- the service

def envelope(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


class Service:
    """The routes of the process service below a prefix. `find` gives the sandbox of a request, or
    raises Refused or an HTTP error of web's."""

    def __init__(self, faults, find, keepalive=90):
        self.faults, self.find, self.keepalive = faults, find, keepalive

    def routes(self, prefix):
        unary = {"SendInput": self.send_input, "SendSignal": self.send_signal, "List": self.list,
                 "CloseStdin": self.close_stdin}
        for name, handler in unary.items():
            yield web.post(prefix + "/" + name,
                           self.unary(handler, {"SendInput": "Input", "SendSignal": "Signal",
                                               "List": "List", "CloseStdin": "Connect"}[name]))
        yield web.post(prefix + "/Start", self.stream(self.start, "Start"))
        yield web.post(prefix + "/Connect", self.stream(self.connect, "Connect"))

    def unary(self, handler, kind):
        async def handle(request):
            # request.content_type takes a tenth of all its time
            sort = request.headers.get("Content-Type", "").partition(";")[0]
            js = sort == "application/json"
            try:
                if not js and sort != "application/proto":
                    return web.Response(status=415)
                body = await request.read()
                sandbox = self.find(request)
                message = from_json(kind, json.loads(body)) if js else decode(kind, body)
                answer = await handler(sandbox, message) or {}
                kind_ = "Listed" if kind == "List" else "Nothing"
                raw = json.dumps(to_json(kind_, answer)).encode() if js else encode(kind_, answer)
                return web.Response(body=raw, headers={"Content-Type": sort})
            except Refused as e:
                return web.json_response({"code": e.code, "message": e.text},
                                         status=Refused.STATUS[e.code])
            except (ValueError, KeyError) as e:
                return web.json_response({"code": "invalid_argument", "message": str(e)},
                                         status=400)
        return handle

    def stream(self, handler, kind):
        async def handle(request):
            js = request.content_type == "application/connect+json"
            if not js and request.content_type != "application/connect+proto":
                return web.Response(status=415)
            if request.headers.get("Connect-Protocol-Version") != "1":
                return web.json_response({"code": "invalid_argument", "message":
                                          "missing Connect-Protocol-Version"}, status=400)
            body = await request.read()
            response = web.StreamResponse(headers={"Content-Type": request.content_type})
            transport, queue, program = request.transport, asyncio.Queue(64), None
            try:
                if len(body) < 5 or len(body) != 5 + struct.unpack(">I", body[1:5])[0]:
                    raise Refused("invalid_argument", "protocol error: incomplete envelope")
                sandbox = self.find(request)
                message = from_json(kind, json.loads(body[5:])) if js else decode(kind, body[5:])
                program = await handler(sandbox, message)
                if not program.over:
                    program.listeners.append(queue)
                await response.prepare(request)
                self.faults.streams.add(transport)
                end = await self.feed(request, response, program, queue, js)
            except Refused as e:
                end = {"error": {"code": e.code, "message": e.text}}
                if not response.prepared:
                    await response.prepare(request)
            except ConnectionError:
                end = None
            finally:
                self.faults.streams.discard(transport)
                if program and queue in program.listeners:
                    program.listeners.remove(queue)
                    while not queue.empty():        # who waits to put in is let go
                        queue.get_nowait()
            try:
                if end is not None:
                    await response.write(envelope(json.dumps(end).encode(), 2))
            except ConnectionError:
                pass        # who asked has gone
            return response
        return handle

    async def feed(self, request, response, program, queue, js):
        """The events of a program; what ends the stream, or None where it was cut."""
        every = float(request.headers.get("Keepalive-Ping-Interval", self.keepalive))
        timeout = request.headers.get("Connect-Timeout-Ms")
        if timeout:     # of the program itself, as in both services
            asyncio.get_running_loop().call_later(int(timeout) / 1000, program.signal,
                                                  signal.SIGKILL)
        beat = asyncio.ensure_future(self.keep_alive(queue, every))
        try:
            return await self.tell(response, request.transport, program, queue, js)
        finally:
            beat.cancel()

    async def keep_alive(self, queue, every):
        while True:
            await asyncio.sleep(every)
            await queue.put({"event": {"keepalive": {}}})

    async def tell(self, response, transport, program, queue, js):
        event = {"event": {"start": {"pid": program.pid}}}
        while True:
            raw = json.dumps(to_json("Event", event)).encode() if js else encode("Event", event)
            if not await self.faults.write(response, transport, envelope(raw)):
                return None
            if "end" in event["event"]:
                return {}
            if program.over and queue.empty():
                event = program.over
                continue
            event = await queue.get()
            if event is None:
                return {"error": {"code": "unavailable", "message":
                                  "the connection to sandbox %s ended before the stream completed"
                                  % program.sandbox.id}}

    # -- methods

    async def start(self, sandbox, message):
        if sandbox.keyed and message.get("uuid"):     # the key of idempotency: it may run already
            existing = sandbox.find({"uuid": message["uuid"]})
            if existing:
                if existing.message != message:
                    raise Refused("failed_precondition",
                                  "session_uuid is in use by another command")
                return existing
        if "program" not in message:
            raise Refused("invalid_argument", "no command")
        return await sandbox.start(message)

    def selected(self, sandbox, message):
        program = sandbox.find(message.get("session", {}))
        if program is None:
            raise Refused("not_found", "process with %s not found" % message.get("session"))
        return program

    async def connect(self, sandbox, message):
        return self.selected(sandbox, message)

    async def send_input(self, sandbox, message):
        program = self.selected(sandbox, message)
        key = sandbox.keyed and message.get("uuid")
        if program.process.stdin is None:
            raise Refused("failed_precondition", "stdin is not enabled")
        async with program.writing:
            if key in sandbox.inputs:
                return
            try:
                program.process.stdin.write(message["input"]["stdin"])
                await program.process.stdin.drain()
            except (ConnectionError, RuntimeError) as e:
                raise Refused("internal", "error writing to stdin: %s" % e)
            if key:
                sandbox.inputs.add(key)

    async def close_stdin(self, sandbox, message):
        if sandbox.keyed:
            raise Refused("unimplemented", "CloseStdin is not a method of this service")
        self.selected(sandbox, message).process.stdin.close()

    async def send_signal(self, sandbox, message):
        program = self.selected(sandbox, message)
        if message.get("signal") not in (9, 15):
            raise Refused("unimplemented", "invalid signal: %s" % message.get("signal"))
        program.signal(message["signal"])

    async def list(self, sandbox, message):
        return {"sessions": [{"program": p.message["program"], "pid": p.pid,
                              **{k: getattr(p, k) for k in ("tag", "uuid") if getattr(p, k)}}
                             for p in sandbox.programs if not p.over]}


# ---- the program of a fake

def serve(application, faults, state, end):
    """Runs until its standard input ends or it is told to stop; says its address first."""
    async def fake(request):
        if request.method == "GET":
            return web.json_response({**state(), "cuts": faults.cuts, "requests": faults.requests,
                                      "streams": len(faults.streams)})
        asked = await request.json()
        faults.order(asked)
        answer = request.app["order"](asked) if "order" in request.app else None
        return web.json_response(answer or {})

    async def main():
        application.router.add_route("*", "/_fake", fake)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", int(os.environ.get("FAKE_PORT", "0")))
        await site.start()
        print("http://127.0.0.1:%d" % site._server.sockets[0].getsockname()[1], flush=True)
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        loop.add_signal_handler(signal.SIGINT, over.set)
        loop.add_reader(0, over.set)        # its end; nothing comes there
        await over.wait()
        end()
        await asyncio.sleep(0.05)
        os._exit(0)

    asyncio.run(main())
