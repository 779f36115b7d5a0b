"""A bucket that is mounted as Daytona mounts one (`mount-s3 --allow-delete --allow-overwrite`), by
FUSE's own protocol on /dev/fuse: what that program refuses is refused by the kernel here, to every
program in a sandbox.

    python3 bucket.py DIRECTORY MOUNTPOINT serves DIRECTORY at MOUNTPOINT; says "+" once it does

From Mountpoint's document of its semantics:

- A file is written once, from its beginning to its end, in order. What is written is an object,
  whole, when its writer closes it; before that it cannot be read. A write anywhere else than at its
  end is EINVAL.
- A file that exists can be written anew (O_TRUNC), not changed, and not while it is written by
  another.
- There is no rename, no link of either kind, no mode, owner, size or attribute to be set, and no
  device or pipe.
- A descriptor's close completes the upload, unless nothing is written yet or another process closes
  its copy; then the last close does. fsync completes it too; nothing can be written after it.
- A directory is a common beginning of names. A new one is this mount's own until a file is in it,
  and one whose last file is removed is gone.

What stands here of the bucket itself is a directory with its objects.
"""
import ctypes
import errno
import os
import stat
import struct
import sys

ENTRY, ATTR = struct.Struct("<QQQQII"), struct.Struct("<6Q10I")
HEAD = struct.Struct("<IIQQIIII")
MAX_WRITE = 1 << 17
REFUSED = {6: errno.ENOSYS, 5: errno.EINVAL, 8: errno.EINVAL, 12: errno.ENOSYS, 13: errno.ENOSYS,
           21: errno.ENOTSUP, 22: errno.ENOTSUP, 23: errno.ENOTSUP,
           24: errno.ENOTSUP, 43: errno.ENOTSUP, 45: errno.ENOSYS}
SETS_MORE_THAN_TIMES = 1 | 2 | 4 | 8        # mode, uid, gid, size
ATOMIC_O_TRUNC = 1 << 3


def refuse(number):
    raise OSError(number, os.strerror(number))


def name_of(data):
    return os.fsdecode(data.split(b"\0", 1)[0])


def process_of(thread):
    """The process of a thread that asks; the kernel names the thread."""
    try:
        with open("/proc/%d/status" % thread) as f:
            return int(next(line for line in f if line.startswith("Tgid:")).split()[1])
    except (OSError, StopIteration):
        return thread


class Upload:
    """A file that is being written."""

    def __init__(self, bucket, path, pid):
        self.bucket, self.path, self.pid, self.size, self.done = bucket, path, process_of(
            pid), 0, False
        self.place = os.path.join(bucket.uploads,
                                  str(len(os.listdir(bucket.uploads))) + "-%x" % id(self))
        self.fd = os.open(self.place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write(self, offset, data):
        if self.done:
            refuse(errno.EIO)
        if offset != self.size:
            refuse(errno.EINVAL)
        while data:
            n = os.write(self.fd, data)
            self.size, data = self.size + n, data[n:]

    def complete(self):
        if self.done:
            return
        self.done = True
        os.close(self.fd)
        target = self.bucket.place(self.path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(self.place, target)
        del self.bucket.writing[self.path]
        at = os.path.dirname(self.path)
        while at:                               # they are in the bucket now
            self.bucket.local.discard(at)
            at = os.path.dirname(at)


class Bucket:
    def __init__(self, directory):
        self.directory, self.uploads = directory, directory + ".uploads"
        os.makedirs(directory, exist_ok=True)
        os.makedirs(self.uploads, exist_ok=True)
        self.paths, self.numbers = {1: ""}, {"": 1}
        self.local, self.writing, self.handles, self.next = set(), {}, {}, 1

    def place(self, path):
        return os.path.join(self.directory, path) if path else self.directory

    def below(self, node, data):
        return os.path.join(self.paths[node], name_of(data))

    def node(self, path):
        if path not in self.numbers:
            self.numbers[path] = len(self.paths) + 1
            self.paths[self.numbers[path]] = path
        return self.numbers[path]

    def exists(self, path):
        return path in self.writing or path in self.local or os.path.lexists(self.place(path))

    def attributes(self, path):
        if path in self.writing:
            mode, size, when = stat.S_IFREG | 0o666, self.writing[path].size, os.stat(
                self.writing[path].place).st_mtime_ns
        elif path in self.local and not os.path.isdir(self.place(path)):
            mode, size, when = stat.S_IFDIR | 0o777, 0, os.stat(self.directory).st_mtime_ns
        else:
            s = os.lstat(self.place(path))
            mode, size, when = ((stat.S_IFDIR | 0o777, 0, s.st_mtime_ns) if stat.S_ISDIR(s.st_mode)
                                else (stat.S_IFREG | 0o666, s.st_size, s.st_mtime_ns))
        seconds, rest = divmod(when, 10**9)
        return ATTR.pack(self.node(path), size, (size + 511) // 512, seconds, seconds, seconds,
                         rest, rest, rest, mode,
                         2 if stat.S_ISDIR(mode) else 1, 0, 0, 0, 4096, 0)

    def entry(self, path):
        return ENTRY.pack(self.node(path), 0, 0, 0, 0, 0) + self.attributes(path)

    def handle(self, what):
        self.next += 1
        self.handles[self.next] = what
        return struct.pack("<QIi", self.next, 0, 0)

    # -- requests; each returns its reply

    def init(self, node, data, pid):
        major, minor, readahead = struct.unpack_from("<III", data)
        return struct.pack("<IIIIHHIIHHI32x", 7, 31, readahead, ATOMIC_O_TRUNC, 12, 9, MAX_WRITE, 1,
                           0, 0, 0)[:64]

    def lookup(self, node, data, pid):
        path = self.below(node, data)
        if not self.exists(path):
            refuse(errno.ENOENT)
        return self.entry(path)

    def getattr(self, node, data, pid):
        path = self.paths[node]
        if not self.exists(path):
            refuse(errno.ENOENT)
        return struct.pack("<QII", 0, 0, 0) + self.attributes(path)

    def setattr(self, node, data, pid):
        if (struct.unpack_from("<I", data)[0] & SETS_MORE_THAN_TIMES
            or self.paths[node] not in self.writing):
            refuse(errno.ENOTSUP)
        return self.getattr(node, data, pid)

    def mkdir(self, node, data, pid):
        path = self.below(node, data[8:])
        if self.exists(path):
            refuse(errno.EEXIST)
        self.local.add(path)
        return self.entry(path)

    def rmdir(self, node, data, pid):
        path = self.below(node, data)
        if not self.exists(path):
            refuse(errno.ENOENT)
        if path not in self.local or self.names(path):
            refuse(errno.ENOTEMPTY)
        self.local.discard(path)

    def unlink(self, node, data, pid):
        path = self.below(node, data)
        if path in self.writing:
            refuse(errno.EPERM)
        os.unlink(self.place(path))
        at = os.path.dirname(path)
        while at and not os.listdir(self.place(at)):
            os.rmdir(self.place(at))
            at = os.path.dirname(at)

    def upload(self, path, pid):
        if path in self.writing:
            refuse(errno.EPERM)
        self.writing[path] = Upload(self, path, pid)
        return self.handle(self.writing[path])

    def create(self, node, data, pid):
        path = self.below(node, data[16:])
        handle = self.upload(path, pid)
        return self.entry(path) + handle

    def open(self, node, data, pid):
        flags, path = struct.unpack_from("<I", data)[0], self.paths[node]
        if path in self.writing:
            refuse(errno.EPERM)
        if not self.exists(path):
            refuse(errno.ENOENT)
        if (flags & os.O_ACCMODE == os.O_RDONLY
            or (flags & os.O_ACCMODE == os.O_RDWR and not flags & (os.O_TRUNC | os.O_APPEND))):
            return self.handle(os.open(self.place(path), os.O_RDONLY))
        if not flags & os.O_TRUNC:
            refuse(errno.EPERM)
        return self.upload(path, pid)

    def read(self, node, data, pid):
        number, offset, size = struct.unpack_from("<QQI", data)
        what = self.handles[number]
        if isinstance(what, Upload):
            refuse(errno.EBADF)
        return os.pread(what, size, offset)

    def write(self, node, data, pid):
        number, offset, size = struct.unpack_from("<QQI", data)
        what = self.handles[number]
        if not isinstance(what, Upload):
            refuse(errno.EBADF)
        what.write(offset, data[40:40 + size])
        return struct.pack("<II", size, 0)

    def flush(self, node, data, pid):
        what = self.handles[struct.unpack_from("<Q", data)[0]]
        # Neither a child's copy of a descriptor ends it, nor a shell's that has moved its own and
        # written nothing yet.
        if isinstance(what, Upload) and what.size and what.pid == process_of(pid):
            what.complete()

    def fsync(self, node, data, pid):
        what = self.handles[struct.unpack_from("<Q", data)[0]]
        if isinstance(what, Upload):
            what.complete()

    def release(self, node, data, pid):
        what = self.handles.pop(struct.unpack_from("<Q", data)[0])
        if isinstance(what, Upload):
            what.complete()
        else:
            os.close(what)

    def names(self, path):
        found = set(os.listdir(self.place(path))) if os.path.isdir(self.place(path)) else set()
        return sorted(found | {os.path.basename(p) for p in [*self.local, *self.writing]
                               if os.path.dirname(p) == path})

    def opendir(self, node, data, pid):
        path = self.paths[node]
        names = [(name, self.node(os.path.join(path, name)),
                  self.is_directory(os.path.join(path, name))) for name in self.names(path)]
        return self.handle([(".", node, True), ("..", 1, True)] + names)

    def is_directory(self, path):
        return path not in self.writing and (path in self.local or os.path.isdir(self.place(path)))

    def readdir(self, node, data, pid):
        number, offset, size = struct.unpack_from("<QQI", data)
        out = b""
        for at, (name, inode, directory) in enumerate(self.handles[number][offset:], offset + 1):
            raw = os.fsencode(name)
            one = struct.pack("<QQII", inode, at, len(raw),
                              stat.S_IFDIR >> 12 if directory else stat.S_IFREG >> 12) + raw
            one += b"\0" * (-len(one) % 8)
            if len(out) + len(one) > size:
                break
            out += one
        return out

    def releasedir(self, node, data, pid):
        del self.handles[struct.unpack_from("<Q", data)[0]]

    def statfs(self, node, data, pid):
        return struct.pack("<5Q4I24x", 1 << 40, 1 << 40, 1 << 40, 1 << 30, 1 << 30, 4096, 255, 4096,
                           0)

    def nothing(self, node, data, pid):
        return b""

    METHODS = {1: lookup, 3: getattr, 4: setattr, 9: mkdir, 10: unlink, 11: rmdir, 14: open,
               15: read, 16: write, 17: statfs, 18: release,
               20: fsync, 25: flush, 26: init, 27: opendir, 28: readdir, 29: releasedir,
               30: nothing, 34: nothing, 35: create}
    UNANSWERED = {2, 36, 42}        # forget, interrupt

    def answer(self, raw):
        """The reply to a request of the kernel's; None where it wants none."""
        _, operation, unique, node, _, _, pid, _ = HEAD.unpack_from(raw)
        if operation in self.UNANSWERED:
            return None
        code, body = 0, b""
        try:
            if operation not in self.METHODS:
                refuse(REFUSED.get(operation, errno.ENOSYS))
            body = self.METHODS[operation](self, node, raw[HEAD.size:], pid) or b""
        except OSError as e:
            code = -(e.errno or errno.EIO)
        except KeyError:
            code = -errno.EBADF
        return struct.pack("<IiQ", 16 + len(body), code, unique) + body


def possible():
    """Whether file systems of programs can be mounted here."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    return os.geteuid() == 0


def own_mounts():
    """From now on this process's mounts are its own, and end with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # CLONE_NEWNS; MS_PRIVATE | MS_REC
    if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def mount(fd, target):
    libc = ctypes.CDLL(None, use_errno=True)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % fd
    # no suid, no devices
    if libc.mount(b"mountpoint-s3", os.fsencode(target), b"fuse", 2 | 4, options):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e), target)


def main(directory, target):
    fd = os.open("/dev/fuse", os.O_RDWR)
    bucket = Bucket(directory)
    mount(fd, target)
    print("+", flush=True)
    while True:
        try:
            raw = os.read(fd, MAX_WRITE + 4096 + 65536)
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue
            return          # ENODEV: it was unmounted
        reply = bucket.answer(raw)
        if reply is not None:
            try:
                os.write(fd, reply)
            except OSError as e:
                if e.errno != errno.ENOENT:     # the asking process is gone
                    raise


if __name__ == "__main__":
    main(*sys.argv[1:])
