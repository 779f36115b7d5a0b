"""The fake Daytona's machines: a sandbox is a space of processes, mounts and (where it is blocked)
network of its own.

Its first process, `INIT` below, makes the mounts, says its process id, and waits for orphans; its
death takes all others with it, as that of a container's does. Whatever else runs there comes in by
nsenter(1), as a user who is nobody on this machine.
"""
import asyncio
import ctypes
import datetime
import json
import os
import shutil
import signal
import stat
import subprocess
import uuid

from aiohttp import web

HOME = "/home/daytona"
USER = 21000

INIT = r"""
import ctypes, os, shutil, struct, socket, sys, fcntl
home, directory, blocked, mounts = sys.argv[1], sys.argv[2], sys.argv[3] == "1", sys.argv[4:]
libc = ctypes.CDLL(None, use_errno=True)
def mount(source, target, kind=None, flags=0, data=None):
    enc = lambda t: t if t is None else os.fsencode(t)
    if libc.mount(enc(source), enc(target), enc(kind), flags, enc(data)):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e), target)
BIND = 4096
own = os.readlink("/proc/self")
for at in range(0, len(mounts), 2):         # before /home is another one
    os.makedirs(mounts[at], exist_ok=True)
held = [os.open(p, os.O_PATH) for p in [directory + "/home", directory + "/tmp"] + mounts[0::2]]
path = lambda fd: "/proc/%s/fd/%d" % (own, fd)
mount("none", "/home", "tmpfs", 0, "mode=755")
os.makedirs(home)
mount(path(held[0]), home, None, BIND)
mount(path(held[1]), "/tmp", None, BIND)
mount("none", "/dev/shm", "tmpfs", 0, "mode=1777,size=64m")
for fd, at in zip(held[2:], mounts[1::2]):
    os.makedirs(at, exist_ok=True)
    mount(path(fd), at, None, BIND)
mount("proc", "/proc", "proc")
if blocked:                                 # only the loopback device, which is up
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))
os.write(1, ("%s\n" % own).encode())
os.close(1)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        import time
        time.sleep(0.2)
"""


def missing():
    """Why there can be no sandboxes on this machine; None where there can."""
    if os.geteuid() != 0:
        return "the fake service's sandboxes have mounts of their own, which needs root"
    if any(shutil.which(p) is None for p in ("unshare", "nsenter", "setpriv", "setsid", "bash")):
        return "util-linux is not here"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "--propagation",
                            "private", "true"],
                           capture_output=True, text=True)
    return (None if tried.returncode == 0 else "no namespaces can be made here: "
            + tried.stderr.strip())


def give(path):
    os.chown(path, USER, USER)


def dies_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Machine:
    """What runs of a sandbox."""

    def __init__(self, process, init, variables, blocked, shell):
        self.process, self.init, self.blocked = process, init, blocked
        self.variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, "USER": "daytona",
                          "SHELL": shell,
                          "LANG": "C.UTF-8", **variables}

    def words(self, *words, cwd=None):
        """The words that run others in there."""
        spaces = ["-m", "-p"] + (["-n"] if self.blocked else [])
        return ["nsenter", "-t", str(self.init), *spaces, "--", "setpriv", "--reuid", str(USER),
                "--regid", str(USER), "--clear-groups", "--", "env", "-C", cwd or HOME, *words]

    def path(self, path):
        """A path of its as this machine has it."""
        return "/proc/%d/root%s" % (self.init, os.path.normpath(os.path.join(HOME, path)))

    async def run(self, command, cwd, variables, timeout):
        p = await asyncio.create_subprocess_exec(*self.words("bash", "-c", command, cwd=cwd),
                                                 stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                 env={**self.variables, **(variables or {})})
        try:
            output, _ = await asyncio.wait_for(p.communicate(), timeout)
        except asyncio.TimeoutError:
            p.kill()
            return 124, "command execution timeout"
        return p.returncode, output.decode(errors="replace")

    async def end(self):
        try:
            os.kill(self.init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await self.process.wait()


async def start(directory, volumes, blocked, variables, shell):
    for name in ("home", "tmp"):
        place = os.path.join(directory, name)
        os.makedirs(place, exist_ok=True)
        give(place)
    mounts = [path for pair in volumes for path in pair]
    process = await asyncio.create_subprocess_exec(
        "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private",
        *(["--net"] if blocked else []),
        "/usr/bin/python3", "-I", "-c", INIT, HOME, directory, str(int(blocked)), *mounts,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=dies_with_us,
        env={"PATH": os.environ["PATH"]})
    ready = await process.stdout.readline()
    if not ready:
        why = await process.stderr.read()
        raise OSError("the sandbox did not start: " + why.decode(errors="replace")[-300:])
    return Machine(process, int(ready), variables, blocked, shell)


class Files:
    """The toolbox's routes for files."""

    def __init__(self, service):
        self.service = service

    def routes(self, box):
        return [web.post(box + "/files/bulk-upload", self.upload),
                web.post(box + "/files/bulk-download", self.download_many),
                web.get(box + "/files/download", self.download), web.get(box + "/files", self.list),
                web.get(box + "/files/info", self.info),
                web.post(box + "/files/folder", self.folder),
                web.delete(box + "/files", self.remove)]

    def place(self, request, path=None):
        path = path or request.query.get("path") or HOME
        return path, self.service.running(request).machine.path(path)

    async def upload(self, request):
        made, target = [], None
        async for part in await request.multipart():
            if part.name.endswith(".path"):
                target = (await part.text())
                continue
            path, place = self.place(request, target)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as f:
                while chunk := await part.read_chunk(1 << 20):
                    f.write(chunk)
            give(place)
            made.append({"path": path, "bytes": os.path.getsize(place)})
        return web.json_response({"files": made})

    async def download(self, request):
        path, place = self.place(request)
        if not os.path.isfile(place):
            return web.json_response({"statusCode": 404, "message": "file not found: " + path},
                                     status=404)
        return web.FileResponse(place)

    async def download_many(self, request):
        """A part for each file, as the SDK reads them."""
        body, boundary = b"", uuid.uuid4().hex
        for asked in (await request.json())["paths"]:
            path, place = self.place(request, asked)
            if os.path.isfile(place):
                head, data = "application/octet-stream", open(place, "rb").read()
                kind = "file"
            else:
                kind, head = "error", "application/json"
                data = json.dumps({"message": "file not found: " + path, "statusCode": 404,
                                   "code": "FILE_NOT_FOUND"}).encode()
            body += (
                '--%s\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\nContent-Type: '
                '%s\r\n\r\n'
                % (boundary, kind, path, head)).encode() + data + b"\r\n"
        body += ("--%s--\r\n" % boundary).encode()
        return web.Response(body=body,
                            headers={"Content-Type": "multipart/form-data; boundary=" + boundary})

    def about(self, path, place):
        s = os.stat(place)
        when = datetime.datetime.fromtimestamp(s.st_mtime, datetime.timezone.utc)
        return {"name": os.path.basename(path), "path": path, "size": s.st_size,
                "isDir": stat.S_ISDIR(s.st_mode),
                "mode": stat.filemode(s.st_mode), "permissions": "%o" % (s.st_mode & 0o777),
                "owner": str(s.st_uid),
                "group": str(s.st_gid), "modTime": str(when), "modifiedAt": when.isoformat()}

    async def info(self, request):
        path, place = self.place(request)
        if not os.path.exists(place):
            return web.json_response({"statusCode": 404, "message": "file not found: " + path},
                                     status=404)
        return web.json_response(self.about(path, place))

    async def list(self, request):
        path, place = self.place(request)
        return web.json_response([self.about(os.path.join(path, n), os.path.join(place, n))
                                  for n in sorted(os.listdir(place))])

    async def folder(self, request):
        _, place = self.place(request)
        os.makedirs(place, exist_ok=True)
        give(place)
        return web.Response(status=201)

    async def remove(self, request):
        _, place = self.place(request)
        shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)
        return web.Response(status=204)
