"""A sandbox of the fake Modal (modal_server.py): its first process, its volumes as it sees them,
and the programs in it with their output."""
import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import stat
import time

from grpclib import GRPCError, Status
from modal_proto import api_pb2 as api

RESULT = api.GenericResult
PIECE = 65536
AHEAD = 4 << 20             # bytes of output that are kept for a reader who is behind

# The first process of a sandbox: it makes the root, says so, and buries whoever dies.
INIT = r'''
import os, signal, subprocess, sys
root, home, place, volumes = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
run = lambda *words: subprocess.run(words, check=True)
run("mount", "--make-rprivate", "/")
run("mount", "-t", "tmpfs", "tmpfs", root)
for name in ("usr", "bin", "sbin", "lib", "lib64", "etc", "opt"):
    if os.path.islink("/" + name):
        os.symlink(os.readlink("/" + name), root + "/" + name)
    elif os.path.isdir("/" + name):
        os.mkdir(root + "/" + name)
        run("mount", "--bind", "/" + name, root + "/" + name)
for name in ("tmp", "root", "proc", "dev", "dev/shm", "var", "var/tmp", "home", "run"):
    os.mkdir(root + "/" + name)
os.chmod(root + "/tmp", 0o1777)
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    open(root + "/dev/" + name, "w").close()
    run("mount", "--bind", "/dev/" + name, root + "/dev/" + name)
os.symlink("/proc/self/fd", root + "/dev/fd")
run("mount", "-t", "proc", "proc", root + "/proc")
run("mount", "-t", "tmpfs", "tmpfs", root + "/dev/shm")
os.mkdir(root + "/dev/pts")
run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=0620", "devpts",
    root + "/dev/pts")
os.symlink("pts/ptmx", root + "/dev/ptmx")
run("mount", "--bind", home, root + "/root")
run("mount", "--bind", place + "/run", root + "/run")
run("mount", "--bind", place + "/sync", root + os.path.realpath("/usr/bin/sync"))
for place, source in zip(volumes[::2], volumes[1::2]):
    os.makedirs(root + place, exist_ok=True)
    run("mount", "--bind", source, root + place)
os.chroot(root)
os.chdir("/root")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
os.write(1, b"+")
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
'''


# In the place of sync(1): a commit of the volumes at these paths (of all, where none is named),
# which it waits for.
SYNC = r"""#!/usr/bin/python3 -S
import os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/volumes.sock")
    s.sendall("".join(os.path.abspath(path) + "\n" for path in sys.argv[1:]).encode() + b"\n")
    said = s.makefile().read()
if said != "done\n":
    sys.exit("sync: error syncing: " + said.strip())
"""


def seen_in(directory):
    """What is in there: by each path what tells whether it was changed."""
    found = {}
    for at, directories, files in os.walk(directory):
        for name in directories + files:
            s = os.lstat(os.path.join(at, name))
            what = ((s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) if stat.S_ISREG(s.st_mode)
                    else s.st_ino)
            found[os.path.relpath(os.path.join(at, name),
                                  directory)] = (stat.S_IFMT(s.st_mode), what)
    return found


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.path.lexists(
        path) and os.unlink(path)


def copy(source, target):
    if os.path.isdir(source) and not os.path.islink(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.islink(source) or os.path.isfile(source):
        remove(target)
        shutil.copy2(source, target + ".new", follow_symlinks=False)
        os.rename(target + ".new", target)


class View:
    """A volume as a sandbox sees it."""

    def __init__(self, cloud, mount, directory):
        self.cloud, self.path, self.directory = cloud, mount.mount_path, directory
        self.volume, self.read_only = cloud.volume_path(mount.volume_id,
                                                        mount.sub_path), mount.read_only
        self.name = next(name for name, volume in cloud.volumes.items()
                         if volume == mount.volume_id)
        shutil.copytree(self.volume, directory, symlinks=True)
        self.base, self.lock = seen_in(directory), asyncio.Lock()

    async def commit(self):
        """What was changed here is changed in the volume; the last one to commit a file wins."""
        begun = time.monotonic()
        async with self.lock:
            while time.monotonic() < begun + self.cloud.commit_seconds:     # a test may change it
                await asyncio.sleep(0.01)
            await self.cloud.fault("commit", volume=self.name)
            now = seen_in(self.directory)
            for path in sorted(now):
                if self.base.get(path) != now[path] and not self.read_only:
                    copy(os.path.join(self.directory, path), os.path.join(self.volume, path))
            for path in sorted(set(self.base) - set(now)):
                remove(os.path.join(self.volume, path))
            self.base = now
            self.cloud.counts["committed"] += 1

    async def reload(self):
        """What others have committed is seen here; what was changed here is committed first."""
        await self.commit()
        for name in os.listdir(self.directory):
            remove(os.path.join(self.directory, name))
        shutil.copytree(self.volume, self.directory, symlinks=True, dirs_exist_ok=True)
        self.base = seen_in(self.directory)


def token_of(words, seconds=1200):
    """Three words in base64 with points between them, of which the second says until when it is
    good."""
    parts = ({"alg": "none"}, {**words, "exp": time.time() + seconds}, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                    for part in parts)


class Output:
    """One stream of a program: kept, so that it can be read again from any offset that a reader may
    still ask for."""

    def __init__(self, pipe):
        self.pipe, self.data, self.start, self.ended = pipe, bytearray(), 0, False
        self.changed, self.read_to = asyncio.Condition(), 0
        self.task = asyncio.create_task(self.hear())

    async def hear(self):
        while True:
            async with self.changed:
                await self.changed.wait_for(lambda: self.start + len(self.data) - self.read_to
                                            < AHEAD)
            data = await self.pipe.read(PIECE)
            async with self.changed:
                self.data += data
                self.ended = not data
                drop = self.read_to - AHEAD - self.start
                if drop > AHEAD:
                    del self.data[:drop]
                    self.start += drop
                self.changed.notify_all()
            if not data:
                return

    async def after(self, offset):
        """What there is from that offset on, at least a byte; b"" at the end."""
        if offset < self.start:
            raise GRPCError(Status.OUT_OF_RANGE,
                            "the output before offset %d is not kept any more" % self.start)
        async with self.changed:
            self.read_to = max(self.read_to, offset)
            self.changed.notify_all()
            await self.changed.wait_for(lambda: self.ended or self.start + len(self.data) > offset)
            return bytes(self.data[offset - self.start:offset - self.start + PIECE])


class Program:
    """What was executed in a sandbox."""

    def __init__(self, process):
        self.process = process
        self.outputs = [Output(process.stdout), Output(process.stderr)]
        self.written, self.closed, self.lock = 0, False, asyncio.Lock()

    async def write(self, offset, data, eof):
        """Once for each offset, in whatever order and number the requests come."""
        async with self.lock:
            if offset > self.written:
                raise GRPCError(Status.FAILED_PRECONDITION,
                                "stdin offset %d is beyond %d" % (offset, self.written))
            data = data[self.written - offset:]
            if data and self.closed:
                raise GRPCError(Status.FAILED_PRECONDITION, "stdin is closed")
            try:
                self.process.stdin.write(data)
                await self.process.stdin.drain()
            except ConnectionError:
                pass
            self.written += len(data)
            if eof:
                self.closed = True
                self.process.stdin.close()


class Sandbox:
    numbers = itertools.count(1)

    def __init__(self, cloud, app_id, definition, tags, second):
        number = next(Sandbox.numbers)
        self.cloud, self.app_id, self.definition, self.second = cloud, app_id, definition, second
        self.tags = {tag.tag_name: tag.tag_value for tag in tags}
        # The two kinds are told from one another by how their ids look.
        self.id = "sb-01FAKE%020d" % number if second else "sb-%022d" % number
        self.task_id = "ta-%020d%s" % (number, "V" if second else "")
        self.created, self.result, self.programs, self.init = time.time(), None, {}, None
        self.place = os.path.join(cloud.directory, self.id)
        self.changed, self.last_active = asyncio.Condition(), time.monotonic()
        self.tokens, self.serials = {}, itertools.count()     # and until when each is good
        self.views, self.sync, self.over = [], None, asyncio.Event()

    def new_token(self):
        token = token_of({"task": self.task_id, "serial": next(self.serials)},
                         self.cloud.token_seconds)
        self.tokens[token] = time.time() + self.cloud.token_seconds
        return token

    async def start(self):
        os.makedirs(os.path.join(self.place, "home"))
        os.mkdir(os.path.join(self.place, "root"))
        await asyncio.sleep(self.cloud.start_seconds)
        if self.cloud.isolated:
            await self.mount_volumes()
            blocked = (self.definition.network_access.network_access_type
                       == api.NetworkAccess.BLOCKED)
            volumes = [word for view in self.views for word in (view.path, view.directory)]
            words = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                     *(["--net"] if blocked else []),
                     "/usr/bin/python3", "-S", "-c", INIT, self.place + "/root",
                     self.place + "/home", self.place, *volumes]
            self.init = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE,
                                                             stdin=asyncio.subprocess.DEVNULL,
                                                             start_new_session=True)
            if await self.init.stdout.read(1) != b"+":
                raise GRPCError(Status.INTERNAL, "the sandbox could not be made")
            with open("/proc/%d/task/%d/children" % (self.init.pid, self.init.pid)) as children:
                self.first = int(children.read().split()[0])
        self.watch = asyncio.create_task(self.limits())

    async def mount_volumes(self):
        """The views, and what commits them."""
        os.mkdir(os.path.join(self.place, "run"))
        with open(os.path.join(self.place, "sync"), "w") as file:
            file.write(SYNC)
        os.chmod(file.name, 0o755)
        for number, mount in enumerate(self.definition.volume_mounts):
            self.views.append(View(self.cloud, mount, os.path.join(self.place, "view-%d" % number)))
        self.sync = await asyncio.start_unix_server(self.asked_to_sync,
                                                    os.path.join(self.place, "run", "volumes.sock"))

    async def asked_to_sync(self, reader, writer):
        outcome, paths = "done", []
        while (line := (await reader.readline()).decode().strip()):
            paths.append(line)
        try:
            for view in self.views:
                if not paths or view.path.rstrip("/") in paths:
                    await view.commit()
        except (GRPCError, OSError) as e:
            outcome = getattr(e, "message", None) or str(e)
        writer.write(outcome.encode() + b"\n")
        writer.close()

    async def commit_at_the_end(self):
        """After its processes have ended; what it held goes then."""
        try:
            if self.result.status in (RESULT.GENERIC_STATUS_TERMINATED,
                                      RESULT.GENERIC_STATUS_TIMEOUT,
                                      RESULT.GENERIC_STATUS_IDLE_TIMEOUT):
                for view in self.views:
                    await view.commit()
        except (GRPCError, OSError):
            pass            # nobody is told
        shutil.rmtree(self.place, ignore_errors=True)
        self.over.set()

    async def limits(self):
        """Its time, and the time that nothing may be executed in it."""
        end, idle = (time.monotonic() + self.definition.timeout_secs,
                     self.definition.idle_timeout_secs)
        while self.result is None:
            await asyncio.sleep(0.05)
            if any(p.process.returncode is None for p in self.programs.values()):
                self.last_active = time.monotonic()
            if time.monotonic() > end:
                await self.finish(RESULT.GENERIC_STATUS_TIMEOUT)
            elif idle and time.monotonic() > self.last_active + idle:
                await self.finish(RESULT.GENERIC_STATUS_IDLE_TIMEOUT)

    async def execute(self, request):
        if request.exec_id in self.programs:
            return
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                       **dict(request.env)}
        words, cwd = list(request.command_args), request.workdir or None
        if self.cloud.isolated:
            if request.workdir:
                words = ["sh", "-c", 'cd "$0" && exec "$@"', request.workdir, *words]
            words = ["nsenter", "-t", str(self.first), "-m", "-p", "-n", "-r", "-w", "--", *words]
            cwd = None
        else:
            environment["HOME"] = cwd = cwd or os.path.join(self.place, "home")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe,
                                                       env=environment, cwd=cwd,
                                                       start_new_session=True)
        self.programs[request.exec_id] = Program(process)

    async def finish(self, status, exception=""):
        """It is over, with all that runs in it."""
        if self.result is not None:
            return
        self.result = RESULT(status=status, exception=exception, exitcode=137)
        for process in [self.init] + [p.process for p in self.programs.values()]:
            if process is not None and process.returncode is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for program in self.programs.values():
            await program.process.wait()
        if self.init:
            await self.init.wait()
        if self.sync:
            self.sync.close()
        self.last = asyncio.create_task(self.commit_at_the_end())
        async with self.changed:
            self.changed.notify_all()

    async def ended(self, seconds):
        """Its result, if that is there in time."""
        try:
            async with self.changed:
                await asyncio.wait_for(self.changed.wait_for(lambda: self.result is not None),
                                       seconds or 0.001)
        except asyncio.TimeoutError:
            pass
        return self.result
