"""Sandboxes of Modal, over its own SDK: a bridge (docs/environments.md has the protocol), which
libdroste starts for `--env modal`. It carries this source along and needs of Python only the
package `modal`, whose version may be any from 1.6 on; nothing else of this package is imported.

A sandbox has no port and needs no network: the guest is executed in it, and its standard streams
carry everything. What Modal has sent can be read again from any offset, and what is written is
taken once for each, so a connection that breaks loses nothing.
"""
import asyncio
import collections
import json
import os
import re
import shlex
import signal
import sys
import time
import uuid

PYTHON = "3.11"
PACKAGES = ("numpy", "pandas", "scipy", "sympy", "requests", "httpx", "flask", "pyyaml", "tqdm",
            "dill")
LIFE, IDLE = 600, 300           # seconds, where nothing else was said
MIB = 1 << 20
PATIENCE = 60                   # seconds for a connection to stand again
GOODBYE = 10                    # seconds for what is done at the end, each
COMMIT = 600                    # seconds for a volume to be written back
STDERR_KEPT = 2000
PIECE = 1 << 20
MOMENT = 0.0015                 # seconds
MOUNT, ALSO = "/data", "/home/daytona/memory"
#: settings, and how Modal does them
FEATURES = {
    "image": "a name, an id (im-...), or slim:PYTHON[:PACKAGE,...]", "network": "blocked, or open",
    "network-allow": "addresses and domains",
    "cpus": "of the sandbox as a whole", "gpus": "a kind of Modal's, such as T4 or A100:2",
    "label": "its tags", "idle-timeout": "Modal's idle_timeout",
    "region": "Modal's regions", "app-name": "Modal's app",
    "volume-name": "Modal's volumes, at " + MOUNT, "sandbox": "by its id",
}


class Failed(Exception):
    """The end of a sandbox, as reported: a kind (those of errors), and a text that says what to
    do."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


# -- the streams of this program


class Host:
    """Who started this. Its streams are moved away first: what else prints here must not be heard
    as a message."""

    def __init__(self):
        self.fds = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        os.close(nowhere)

    async def open(self):
        self.lock, loop = asyncio.Lock(), asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=1 << 24)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.reader),
                                     os.fdopen(self.fds[0], "rb", 0))
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin,
                                                            os.fdopen(self.fds[1], "wb", 0))
        self.writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def say(self, message, data=b""):
        if data:
            message["bytes"] = len(data)
        async with self.lock:
            try:
                self.writer.write(json.dumps(message).encode() + b"\n" + data)
                await self.writer.drain()
            except ConnectionError:
                pass        # it is gone: its input ends as well

    async def messages(self):
        """(message, bytes) until the end."""
        try:
            while line := await self.reader.readline():
                message = json.loads(line)
                yield message, await self.reader.readexactly(
                    message["bytes"]) if "bytes" in message else b""
        except (asyncio.IncompleteReadError, ValueError):
            return


# -- what goes wrong


def secrets():
    """What must be in no text."""
    import modal.config
    found = [modal.config.config.get(name) for name in ("token_id", "token_secret")]
    return [text for text in found if text]


def masked(text):
    for secret in secrets():
        text = text.replace(secret, "[hidden]")
    return text


def judged(error):
    """Returns the error to report for one of the SDK's."""
    from modal import exception as its
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Failed):
        return error
    if isinstance(error, its.AuthError) and "oken missing" in text:
        return Failed("permission", "there is no token: set MODAL_TOKEN_ID and "
                                    "MODAL_TOKEN_SECRET, or run `modal token new`")
    for kinds, kind, words in (
            (its.AuthError, "permission", "Modal rejects the token: check MODAL_TOKEN_ID and "
                                          "MODAL_TOKEN_SECRET, or run `modal token new`: "),
            (its.PermissionDeniedError, "permission", "the token does not have permission for "
                                                      "this at Modal: "),
            (its.ResourceExhaustedError, "environment", "Modal's quota or capacity is used up "
                                                        "(see the workspace's limits): "),
            (its.ImageBuildError, "environment", ""),
            (its.NotFoundError, "not_found", "Modal did not find it: "),
            ((its.InvalidError, its.VersionError), "argument", "Modal rejected the request: "),
            (its.SandboxTimeoutError, "timeout", "the sandbox reached the end of its lifetime "
                                                 "(life)"),
            (its.SandboxTerminatedError, "lost", "the sandbox was terminated"),
            ((its.TimeoutError, asyncio.TimeoutError), "timeout", "Modal did not answer in time: "),
            ((its.ServiceError, its.InternalError, its.ConnectionError, OSError), "lost",
             "Modal could not be reached, or has an internal problem: ")):
        if isinstance(error, kinds):
            return Failed(kind, words if words.endswith("r") or words.endswith("d")
                          and ":" not in words else words + text)
    return Failed("environment", "%s: %s" % (type(error).__name__, text))


def is_transient(error):
    """Whether it may be better soon."""
    from modal import exception as its
    return isinstance(error, (its.ServiceError, its.InternalError, its.ConnectionError, OSError,
                              asyncio.TimeoutError))


# -- what a sandbox is made of


def image_of(wanted):
    import modal
    if wanted and wanted.startswith("im-"):
        return modal.Image.from_id(wanted)
    slim = re.fullmatch(r"slim(?::([\d.]+))?(?::(.*))?",
                        wanted or "slim:%s:%s" % (PYTHON, ",".join(PACKAGES)))
    if not slim:
        return modal.Image.from_registry(wanted)
    packages = [name for name in (slim[2] or "").split(",") if name]
    made = modal.Image.debian_slim(python_version=slim[1] or PYTHON)
    return made.pip_install(*packages) if packages else made


def network_of(wishes):
    """The arguments of Sandbox.create: nothing but what was asked for."""
    allow = wishes.get("network-allow") or []
    if allow:
        cidrs = [one for one in allow
                 if re.fullmatch(r"[0-9.]+(/\d+)?|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/\d+)?", one)]
        return {"outbound_cidr_allowlist": [one if "/" in one else one
                                            + ("/128" if ":" in one else "/32") for one in cidrs],
                "outbound_domain_allowlist": [one for one in allow if one not in cidrs]}
    return {"block_network": wishes.get("network", "none") == "none"}


def resources_of(wishes):
    made = {}
    if wishes.get("memory"):
        whole = max(128, wishes["memory"] // MIB)
        made["memory"] = (min(whole, 1024), whole)
    if wishes.get("cpus"):
        made["cpu"] = (wishes["cpus"], wishes["cpus"])
    for wish, name in (("gpus", "gpu"), ("region", "region")):
        if wishes.get(wish):
            made[name] = wishes[wish]
    return made


def volume_of(wishes):
    import modal
    if not wishes.get("volume-name"):
        return {}
    volume = modal.Volume.from_name(wishes["volume-name"],
                                    create_if_missing=not wishes.get("volume-there"), version=2)
    below = wishes.get("volume-subpath")
    return {"volumes": {MOUNT: volume.with_mount_options(sub_path=below) if below else volume}}


def words_of(wishes):
    """What is executed. With the layout of Daytona's sandboxes a volume has the directories that
    skills expect, and another name too."""
    if not wishes.get("volume-name") or not wishes.get("directories"):
        return wishes["words"]
    directories = " ".join(shlex.quote(os.path.join(MOUNT, name)) for name in wishes["directories"])
    first = "mkdir -p %s %s; ln -sfn %s %s; " % (directories, os.path.dirname(ALSO), MOUNT, ALSO)
    return ["sh", "-c", first + 'exec "$@"', "sh", *wishes["words"]]


class Apps(dict):
    """Apps by name, each looked up once."""

    async def get(self, name):
        import modal
        if name not in self:
            self[name] = asyncio.ensure_future(modal.App.lookup.aio(name, create_if_missing=True))
        try:
            return await asyncio.shield(self[name])
        except Exception:
            self.pop(name, None)
            raise


class Sandbox:
    """One guest."""

    def __init__(self, host, apps, message):
        self.host, self.apps, self.number, self.wishes = host, apps, message["open"], message
        self.box = self.program = None
        self.pending, self.more = bytearray(), asyncio.Event()
        self.may_go, self.stderr, self.begun = asyncio.Event(), collections.deque(
            maxlen=8), time.monotonic()
        self.may_go.set()
        self.heard = self.fed = self.pieces = 0
        self.task = asyncio.create_task(self.live())

    async def live(self):
        try:
            await self.start()
            await self.host.say({"id": self.number, "text": self.box.object_id})
            await self.host.say({"joined": self.number})
            tasks = [asyncio.create_task(work)
                     for work in (self.hear(), self.feed(), self.complaints())]
            try:
                done, _ = await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
            await self.tell_end()
        except asyncio.CancelledError:
            raise
        except Exception as e:
            why = await self.explained(e)
            await self.host.say({"ended": self.number, "kind": why.kind, "why": masked(str(why))})

    async def explained(self, error):
        """Where the sandbox has ended, that is why."""
        try:
            if self.program is not None:
                await self.see_whether_it_lives()
        except Failed as e:
            return e
        except Exception as e:
            return judged(e if not is_transient(e) else error)
        return judged(error)

    # -- its beginning

    async def start(self):
        import modal
        if self.wishes.get("sandbox"):
            if self.wishes.get("volume-name"):
                raise Failed("unsupported", "an existing sandbox keeps the volume that it was "
                                            "created with: remove --volume-name")
            self.box = await modal.Sandbox.from_id.aio(self.wishes["sandbox"])
            if await self.box.poll.aio() is not None:
                raise Failed("not_found", "the sandbox %s has ended" % self.wishes["sandbox"])
        else:
            app = await self.apps.get(self.wishes.get("app-name") or "rlm-sandbox")
            image = await self.built(app)
            await being_committed(self.wishes.get("volume-name"))
            await self.create(app, image)
        self.program = await self.box.exec.aio(*words_of(self.wishes), text=False)

    async def built(self, app):
        import modal
        wanted = self.wishes.get("image") or ""
        image = image_of(wanted)
        if wanted.startswith("im-"):
            return image
        slow = asyncio.create_task(self.tell_later(3, "Modal builds the image %s; the first time "
                                                      "takes some minutes"
                                                   % (wanted or "of the default packages")))
        try:
            return await image.build.aio(app)
        except modal.exception.ImageBuildError as e:
            output = await self.log_of(image) or " ".join(str(e).split())
            raise Failed("environment", "the image could not be built (%s): %s"
                         % (wanted[:40] or "the default packages", output[-110:]))
        finally:
            slow.cancel()

    async def log_of(self, image):
        """The end of what its build has said."""
        try:
            lines = [" ".join(entry.message.split()) async for entry in image.logs.tail.aio(20)]
        except Exception:
            return ""
        for line in lines:
            print("modal: %s" % masked(line), file=sys.stderr)
        return " | ".join(line for line in lines if line)

    async def tell_later(self, seconds, text):
        await asyncio.sleep(seconds)
        await self.host.say({"notice": self.number, "text": text})

    async def create(self, app, image):
        """Once, whatever becomes of the answer: its name is given to no other."""
        import modal
        name = "droste-" + uuid.uuid4().hex
        try:
            self.box = await modal.Sandbox.create.aio(
                app=app, image=image, name=name, timeout=int(self.wishes.get("timeout") or LIFE),
                idle_timeout=int(self.wishes.get("idle-timeout") or IDLE),
                tags=self.wishes.get("labels") or {}, **network_of(self.wishes),
                **resources_of(self.wishes), **volume_of(self.wishes))
        except modal.exception.AlreadyExistsError:
            self.box = await modal.Sandbox.from_name.aio(app.name, name)
        except BaseException as e:
            if is_transient(e) or isinstance(e, asyncio.CancelledError):
                keep(asyncio.create_task(remove_named(app.name, name)))
            raise

    # -- its streams

    async def again(self, work):
        """Does it until it is done or fails for good; a connection that is gone may stand again for
        a minute."""
        begun, pause = None, 0.1
        while True:
            try:
                return await work()
            except Exception as e:
                now = time.monotonic()
                begun = now if begun is None or self.heard > begun else begun
                if not is_transient(e) or now - begun > PATIENCE:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 5)

    def take(self, data):
        self.pending += data
        self.fed = time.monotonic()
        self.more.set()

    async def hear(self):
        """Its output, as it comes. The SDK goes on where it was."""
        self.heard = time.monotonic()

        async def read():
            async for data in self.program.stdout:
                self.heard = time.monotonic()
                self.pieces += 1
                await self.may_go.wait()
                await self.host.say({"read": self.number}, data)
        await self.again(read)

    async def feed(self):
        """Its input: what has come meanwhile goes in one request, and the next one waits for its
        answer."""
        stdin, trip = self.program.stdin, 0.0
        while True:
            await self.more.wait()
            if trip > 8 * MOMENT:
                await self.settle(trip)
            data = bytes(self.pending[:PIECE])
            del self.pending[:PIECE]
            if not self.pending:
                self.more.clear()
            stdin.write(data)
            begun, self.pieces = time.monotonic(), 0
            await self.again(stdin.drain.aio)
            trip = time.monotonic() - begun

    async def settle(self, trip):
        """Collects input for a moment, so that it shares one request instead of waiting for a round
        trip: while output of the guest arrives, and, if the guest has sent more than one message,
        while answers arrive. A guest that makes one call after another is not delayed."""
        begun = time.monotonic()
        while len(self.pending) < PIECE:
            now, many = time.monotonic(), self.pieces > 1
            if (now - (max(self.heard, self.fed) if many else self.heard) > MOMENT
                or now - begun > trip / (4 if many else 8)):
                return
            await asyncio.sleep(MOMENT / 3)

    async def complaints(self):
        async for data in self.program.stderr:
            self.stderr.append(data[-STDERR_KEPT:])

    # -- its end

    async def see_whether_it_lives(self):
        """Raises why it does not."""
        code = await asyncio.wait_for(self.box.poll.aio(), GOODBYE)
        if code is not None:
            await asyncio.wait_for(self.box.wait.aio(raise_on_termination=True), GOODBYE)
            raise Failed("lost", "the sandbox has ended with code %s after %.0f s"
                         % (code, time.monotonic() - self.begun))

    async def tell_end(self):
        """The guest's output has ended: with the sandbox, or by itself."""
        await self.see_whether_it_lives()
        output = b"".join(self.stderr)[-STDERR_KEPT:].decode(errors="replace").strip()
        status = await asyncio.wait_for(self.program.wait.aio(), GOODBYE)
        if status in (126, 127, 128):
            raise Failed("environment", "the image has no program %r, or the program could not be "
                                        "started: %s" % (self.wishes["words"][0], output[-200:]))
        await self.host.say({"ended": self.number})

    async def close(self):
        """Ends the program and, unless the sandbox is kept, the sandbox. The volume is written back
        first, and the host is notified, so that the next sandbox with this volume sees the
        files."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        keep, volume = self.wishes.get("on-close") == "stop", self.wishes.get("volume-name")
        if self.program is not None and (keep or volume):
            await self.at_most(GOODBYE, self.end_program)
        if volume:
            why = await self.at_most(COMMIT, self.commit) if self.program is not None else None
            await self.host.say({"closed": self.number,
                                 **({} if why is None else {"kind": why.kind, "why": masked(
                "the volume %s was not written back, so files that this session wrote may be "
                "lost: %s" % (volume, why))})})
        if self.box is not None and not keep:
            await self.at_most(GOODBYE, self.box.terminate.aio)

    async def at_most(self, seconds, work):
        """Why it was not done; None where it was."""
        try:
            await asyncio.wait_for(work(), seconds)
        except Exception as e:
            why = await self.explained(e)
            print("modal: %s: %s" % (self.box.object_id, masked(str(why))), file=sys.stderr)
            return why

    async def end_program(self):
        self.program.stdin.write_eof()
        await self.program.stdin.drain.aio()
        await self.program.wait.aio()

    async def commit(self):
        """As Modal has it for volumes of its second version: `sync` returns when what was written
        is in the volume."""
        done = await self.again(lambda: self.box.exec.aio("sync", MOUNT))
        code = await self.again(done.wait.aio)
        if code != 0:
            output = " ".join((await done.stderr.read.aio()).split())
            raise Failed("environment", "sync ended with status %s: %s" % (code, output[-200:]))


async def remove_named(app, name):
    """A sandbox that may have been made by a request whose answer is lost."""
    import modal
    try:
        box = await modal.Sandbox.from_name.aio(app, name)
        await box.terminate.aio()
    except Exception:
        pass


# -- all of them

kept = set()


committing = collections.defaultdict(set)       # a volume's name: those that are being closed


async def being_committed(volume):
    """Waits until what sandboxes of this program that have been closed wrote to the volume is
    there, or will not be."""
    if committing.get(volume):
        await asyncio.wait(set(committing[volume]))


def close(sandbox):
    task, volume = asyncio.create_task(sandbox.close()), sandbox.wishes.get("volume-name")
    keep(task)
    if volume:
        committing[volume].add(task)
        task.add_done_callback(committing[volume].discard)


def keep(task):
    """A task that nobody waits for, until it is done."""
    kept.add(task)
    task.add_done_callback(kept.discard)


async def listed(host, message):
    """The sandboxes with these labels, whoever has made them."""
    import modal
    try:
        found = []
        async for box in modal.Sandbox.list.aio(tags=message.get("labels") or {}):
            found.append({"id": box.object_id, "labels": await box.get_tags.aio()})
        await host.say({"listed": message["list"], "sandboxes": found})
    except Exception as e:
        why = judged(e)
        await host.say({"listed": message["list"], "kind": why.kind, "why": masked(str(why))})


async def removed(host, message):
    import modal
    report = {"removed": message["remove"]}
    try:
        box = await modal.Sandbox.from_id.aio(message["id"])
        await box.terminate.aio()
    except Exception as e:
        why = judged(e)
        report.update(kind=why.kind, why=masked(str(why)))
    await host.say(report)


async def serve(host):
    await host.open()
    await host.say({"bridge": 1, "features": FEATURES, "collect": True})
    sandboxes, apps = {}, Apps()
    async for message, data in host.messages():
        verb = next(iter(message))
        number = message[verb]
        if verb == "open":
            sandboxes[number] = Sandbox(host, apps, message)
        elif verb in ("list", "remove"):
            keep(asyncio.create_task((listed if verb == "list" else removed)(host, message)))
        elif number not in sandboxes:
            pass
        elif verb == "write":
            sandboxes[number].take(data)
        elif verb == "close":
            close(sandboxes.pop(number))
        elif verb == "pause":
            sandboxes[number].may_go.clear()
        elif verb == "resume":
            sandboxes[number].may_go.set()
    await asyncio.gather(*(one.close() for one in sandboxes.values()), *kept,
                         return_exceptions=True)


def without_modal(why):
    """Runs without the SDK: every request to open a sandbox fails with `why`."""
    sys.stdout.write(json.dumps({"bridge": 1, "features": FEATURES, "collect": True}) + "\n")
    sys.stdout.flush()
    for line in iter(sys.stdin.buffer.readline, b""):
        message = json.loads(line)
        sys.stdin.buffer.read(message.get("bytes", 0))
        verb = next(iter(message))
        answer = {"open": "ended", "list": "listed", "remove": "removed"}.get(verb)
        if answer:
            print(json.dumps({answer: message[verb], "kind": "config", "why": why}), flush=True)
        elif verb == "close":
            print(json.dumps({"closed": message[verb]}), flush=True)


def main():
    # nothing is imported from where it stands
    sys.path[:] = [path for path in sys.path if path]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import modal
        if tuple(map(int, re.findall(r"\d+", modal.__version__)[:2])) < (1, 6):
            return without_modal("the package modal of %s has version %s, but 1.6 is needed: pip "
                                 "install -U modal" % (sys.executable, modal.__version__))
    except ImportError as e:
        return without_modal("%s has no package modal: pip install 'droste[modal]', or set "
                             "DROSTE_MODAL_PYTHON to a Python that has it (%s)"
                             % (sys.executable, e))

    run(serve(Host()))


def run(work):
    """In the SDK's own loop, where that can be found: its functions are called without a change of
    threads there, which takes a millisecond off each call. In any other they do the same."""
    try:
        from modal._utils.async_utils import synchronizer
        loop = synchronizer._get_loop(start=True)
    except (ImportError, AttributeError, TypeError):
        return asyncio.run(work)
    return asyncio.run_coroutine_threadsafe(work, loop).result()


if __name__ == "__main__":
    main()
