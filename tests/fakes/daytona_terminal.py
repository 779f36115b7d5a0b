"""The fake Daytona's terminals: shells on real pseudo-terminals, and the WebSockets that show them.

What the real daemon does and ours has to live with: what is said while nobody is attached is lost;
a client that does not read is closed with 1008 after some megabytes; a message of more than 64 KiB
is closed with 1009; any number may be attached.
"""
import asyncio
import base64
import errno
import fcntl
import json
import os
import signal
import struct
import termios

from aiohttp import WSCloseCode, WSMsgType, web

MESSAGE_MAX = 65536
PIECE = 32768
# the real one has 256 pieces of what a terminal says, and the socket's buffers
UNREAD_MAX = 4 << 20
EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
ENVS = "X-Daytona-Pty-Envs~"


class Terminal:
    """One shell."""

    def __init__(self, sandbox, name, info):
        self.sandbox, self.name, self.info = sandbox, name, info
        self.clients, self.master, self.process = set(), -1, None
        self.writing, self.to_write = None, bytearray()
        self.exit, self.over = None, False
        self.starting = asyncio.Lock()

    async def start(self):
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ,
                    struct.pack("4H", self.info["rows"], self.info["cols"], 0, 0))
        machine = self.sandbox.machine
        words = machine.words("setsid", "--ctty", machine.variables["SHELL"], "-i", "-l",
                              cwd=self.info["cwd"])
        try:
            self.process = await asyncio.create_subprocess_exec(
                *words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                env={**machine.variables, "TERM": "xterm-256color", **self.info["envs"]})
        finally:
            os.close(slave)
        os.set_blocking(self.master, False)
        self.info["active"] = True
        asyncio.get_running_loop().add_reader(self.master, self.read)
        asyncio.ensure_future(self.wait())

    def read(self):
        """False where there is no more for now."""
        try:
            data = os.read(self.master, PIECE)
        except BlockingIOError:
            return False
        except OSError as e:            # EIO: no process has it open any more
            assert e.errno == errno.EIO, e
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
            return False
        for client in list(self.clients):
            client.offer(data)
        return True

    async def write(self, data):
        """Waits while nobody reads, as a write to a terminal does."""
        loop = asyncio.get_running_loop()
        while data and self.master >= 0:
            try:
                data = data[os.write(self.master, data):]
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_writer(self.master, lambda: ready.done() or ready.set_result(None))
                try:
                    await ready
                finally:
                    if self.master >= 0:
                        loop.remove_writer(self.master)
            except OSError:
                return

    async def wait(self):
        code = await self.process.wait()
        while self.master >= 0 and self.read():      # what it has said last
            pass
        self.exit = code if code >= 0 else 128 - code
        self.end()

    def kill(self):
        """As DELETE does."""
        for pid in self.shells():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def shells(self):
        if not self.process or self.process.returncode is not None:
            return []
        try:
            with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as f:
                return [int(pid) for pid in f.read().split()]
        except OSError:
            return []

    def end(self):
        if self.over:
            return
        self.over = True
        self.kill()
        self.info["active"] = False
        if self.master >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.master)
            loop.remove_writer(self.master)
            os.close(self.master)
            self.master = -1
        self.sandbox.terminals.pop(self.name, None)
        for client in list(self.clients):
            client.exited(self.exit)

    def cut(self):
        for client in list(self.clients):
            client.cut()


class Client:
    """One WebSocket that is attached."""

    def __init__(self, terminal, socket, request, wants_control):
        self.terminal, self.socket, self.request, self.wants_control = (terminal, socket, request,
                                                                        wants_control)
        self.leaver = None

    def offer(self, data):
        """Sends it at once; closes a client that has not read for too long."""
        transport = self.socket._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > UNREAD_MAX:
            self.leave(WSCloseCode.POLICY_VIOLATION, b"slow consumer")
            return
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        transport.write(b"\x82" + size + data)

    def exited(self, code):
        code = 137 if code is None else code        # it was ended from outside
        reason = '{"exitCode":%d%s}' % (code, ',"exitReason":"process exited"' if code else "")
        self.leave(1011 if code else 1000, reason.encode(),
                   {"type": "control", "status": "exited", "exitCode": code} if self.wants_control
                   else None)

    def leave(self, code, reason, word=None):
        self.terminal.clients.discard(self)
        self.leaver = self.leaver or asyncio.ensure_future(self.say_goodbye(code, reason, word))

    async def say_goodbye(self, code, reason, word):
        try:
            if word:
                await self.socket.send_json(word)
            await self.socket.close(code=code, message=reason)
        except (ConnectionError, RuntimeError):
            pass

    def cut(self):
        self.terminal.clients.discard(self)
        if self.request.transport:
            self.request.transport.abort()

    async def serve(self):
        async with self.terminal.starting:
            await self.socket.send_json({"type": "control", "status": "connected"})
            self.terminal.clients.add(self)
            if self.terminal.process is None:
                await self.terminal.start()
        try:
            async for message in self.socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    data = message.data.encode() if message.type == WSMsgType.TEXT else message.data
                    await self.terminal.write(data)
        finally:
            self.terminal.clients.discard(self)
            if self.leaver:             # what closes it has ended the reading first
                await asyncio.wait([self.leaver], timeout=5)


class Cut:
    """Ends a connection after so many bytes or frames: {"out": bytes} or {"frames": n, "part": p}
    from the service, {"in": bytes} to it. It stands where the transport was."""

    def __init__(self, transport, protocol, plan):
        self.transport, self.plan = transport, dict(plan)
        if "in" in plan:
            real = protocol.data_received

            def received(data):
                left = self.plan["in"]
                self.plan["in"] -= len(data)
                if left > 0:
                    real(data[:left])
                if self.plan["in"] <= 0:
                    self.transport.abort()
            protocol.data_received = received

    def __getattr__(self, name):
        return getattr(self.transport, name)

    def write(self, data):
        if "out" in self.plan:
            left = self.plan["out"]
            self.plan["out"] -= len(data)
            self.transport.write(data[:max(left, 0)])
            if self.plan["out"] < 0:
                self.abort_soon()
        elif "frames" in self.plan:
            self.plan["frames"] -= 1
            if self.plan["frames"] >= 0:
                self.transport.write(data)
            else:
                self.transport.write(data[:int(len(data) * self.plan.get("part", 0))])
                self.abort_soon()
        else:
            self.transport.write(data)

    def abort_soon(self):
        """What was written is sent; then no more."""
        self.plan["out"] = 0
        self.transport.close()


def envs_of(token):
    """Variables, as the SDK puts them into a subprotocol."""
    return json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))


class Routes:
    def __init__(self, service):
        self.service = service

    def routes(self, box):
        pty = box + "/process/pty"
        return [web.get(pty, self.list), web.post(pty, self.make),
                web.get(pty + "/create-connect", self.make_and_connect),
                web.get(pty + "/{name}", self.look), web.delete(pty + "/{name}", self.delete),
                web.get(pty + "/{name}/connect", self.connect),
                web.post(pty + "/{name}/resize", self.resize)]

    def new(self, request, asked):
        s = self.service.running(request)
        if asked["id"] in s.terminals:
            raise web.HTTPConflict(text='{"error":"PTY session with ID \'%s\' already exists"}'
                                   % asked["id"],
                                   content_type="application/json")
        info = {"id": asked["id"], "cwd": asked.get("cwd") or "/home/daytona",
                "envs": asked.get("envs") or {},
                "cols": int(asked.get("cols") or 80), "rows": int(asked.get("rows") or 24),
                "active": False,
                "lazyStart": bool(asked.get("lazyStart")), "createdAt": "2026-08-01T00:00:00Z"}
        terminal = s.terminals[asked["id"]] = Terminal(s, asked["id"], info)
        return terminal

    def find(self, request):
        s = self.service.running(request)
        name = request.match_info["name"]
        if name not in s.terminals:
            raise web.HTTPNotFound(text='{"error":"PTY session %s not found"}' % name,
                                   content_type="application/json")
        return s.terminals[name]

    async def list(self, request):
        s = self.service.running(request)
        return web.json_response({"sessions": [t.info for t in s.terminals.values()]})

    async def started(self, request):
        """The terminal, not while its shell is being started."""
        async with self.find(request).starting:
            return self.find(request)

    async def look(self, request):
        return web.json_response((await self.started(request)).info)

    async def make(self, request):
        terminal = self.new(request, await request.json())
        if not terminal.info["lazyStart"]:
            await terminal.start()
        return web.json_response({"sessionId": terminal.name}, status=201)

    async def delete(self, request):
        (await self.started(request)).end()
        return web.json_response({"message": "PTY session deleted"})

    async def resize(self, request):
        terminal, asked = await self.started(request), await request.json()
        terminal.info.update(cols=asked["cols"], rows=asked["rows"])
        if terminal.master >= 0:
            fcntl.ioctl(terminal.master, termios.TIOCSWINSZ,
                        struct.pack("4H", asked["rows"], asked["cols"], 0, 0))
        return web.json_response(terminal.info)

    async def make_and_connect(self, request):
        tokens = [t.strip() for t in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        envs = next((envs_of(t[len(ENVS):]) for t in tokens if t.startswith(ENVS)), {})
        return await self.attach(request, self.new(request, {**request.query, "envs": envs}))

    async def connect(self, request):
        return await self.attach(request, self.find(request))

    async def attach(self, request, terminal):
        wants = EXIT_CONTROL in request.headers.get("Sec-WebSocket-Protocol", "")
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_MAX, compress=False,
                                       protocols=(EXIT_CONTROL,) if wants else ())
        await socket.prepare(request)
        if self.service.cuts:
            plan = self.service.cuts.popleft()
            if plan:
                socket._writer.transport = Cut(request.transport, request.protocol, plan)
        await Client(terminal, socket, request, wants).serve()
        return socket
