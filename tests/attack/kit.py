"""What the attacks share. The driver puts it in front of each of them; it runs inside the sandbox.

An attack tells what it saw: a word, or {"what was tried": word, …}. The words are the name of an
errno or of an exception, `success` where the thing was done, and words of the attack's own that its
header names. HOST (a dict that the driver adds) says what there is outside to be reached; its
`level` is the isolation, None without the wall.
"""
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import time

# where it may write: /tmp in the sandbox, a place of the driver's outside
TMP = os.environ["TMPDIR"]
libc = ctypes.CDLL(None, use_errno=True)

# x86_64; by number, so that no wrapper of libc stands between.
NR = {"open": 2, "mmap": 9, "ioperm": 173, "iopl": 172, "clone": 56, "ptrace": 101, "mknod": 133,
      "personality": 135, "modify_ldt": 154, "pivot_root": 155, "prctl": 157, "chroot": 161,
      "acct": 163, "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169, "init_module": 175,
      "quotactl": 179, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251,
      "unshare": 272, "perf_event_open": 298, "setns": 308, "process_vm_readv": 310,
      "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "seccomp": 317, "bpf": 321,
      "memfd_create": 319, "execveat": 322, "userfaultfd": 323, "io_uring_setup": 425,
      "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "pidfd_open": 434,
      "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
      "kexec_load": 246, "setuid": 105, "sched_setscheduler": 144, "mlockall": 151, "shmget": 29,
      "shmat": 30, "msgget": 68, "semget": 64, "getpid": 39, "setpriority": 141, "socket": 41,
      "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "recvmmsg": 299, "sendmmsg": 307,
      "rt_sigqueueinfo": 129, "mlock": 149, "timer_create": 222}


def raw(name, *args):
    """A system call by name or number: `success` or the errno's name."""
    number = NR[name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    values = [a if isinstance(a, (bytes, type(None))) or isinstance(a, ctypes._SimpleCData)
              or hasattr(a, "_obj") or isinstance(a, (ctypes.Array, ctypes.Structure))
              else ctypes.c_long(a) for a in args]
    libc.syscall.restype = ctypes.c_long
    if libc.syscall(ctypes.c_long(number), *values) == -1:
        return errno.errorcode.get(ctypes.get_errno(), "?")
    return "success"


def seen(call, *args, **options):
    """A call of Python's: `success`, the errno's name, or the exception's."""
    try:
        call(*args, **options)
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    except Exception as e:
        return type(e).__name__
    return "success"


def set_attribute(path, name, value):
    """os.setxattr, which CPython does not have with musl."""
    if libc.syscall(188, path.encode(), name.encode(), value, len(value), 0) < 0:
        raise OSError(ctypes.get_errno(), "setxattr", path)


def read(path):
    with open(path, "rb") as f:
        return f.read(1 << 20)


def write(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


def append(path, data=b""):
    """Opens for writing and changes nothing."""
    with open(path, "ab") as f:
        f.write(data)


def has_own_proc():
    """At `landlock` the rules of the first process hold in its forks, which have another pid."""
    return HOST["level"] != "landlock" or HOST["sessions"] not in ("forked", "rolled-back")


def in_child(function, *args):
    """Runs it in a forked process: the word it gives, or how the process died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(function(*args)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    output = os.read(reader, 4000).decode()
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return output or "signal %d" % os.WTERMSIG(status)


def in_thread():
    """Starts a thread: `success` when it has run. Those that have just ended may still count."""
    import _thread
    ran = _thread.allocate_lock()
    ran.acquire()
    for _ in range(1000):
        try:
            _thread.start_new_thread(ran.release, ())
            break
        except RuntimeError:
            time.sleep(0.01)
    return "success" if ran.acquire(timeout=30) else "no thread"


def connect_own(name):
    """Speaks with itself: over a socket with a name or, where it gets none, over a pair."""
    if HOST["level"] == "landlock":
        one, two = socket.socketpair()
        one.send(b"x")
        return seen(two.recv, 1)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(name)
        server.listen(1)
        return seen(client.connect, name)


# ---- the channel, spoken by hand: src/wire/frame.h ----

CALL, RESULT = 19, 20


def frame(kind, ident, head=b"", blob=b"", version=1, flags=0, head_len=None, blob_len=None):
    return struct.pack("<BBHIQQ", version, kind, flags, len(head) if head_len is None else head_len,
                       ident, len(blob) if blob_len is None else blob_len) + head + blob


def parts(*values):
    return (struct.pack("<I", len(values)) + struct.pack("<%dQ" % len(values), *map(len, values))
            + b"".join(values))


def greet():
    """Says what the guest holds back until it has more to say: that it is ready."""
    link = guest()["state"].link
    held = b"".join(link.send_queue)
    link.send_queue.clear()
    os.write(3, held)


def say(data):
    """Writes bytes to the channel, all of them."""
    greet()
    view = memoryview(data)
    while view:
        view = view[os.write(3, view):]


def guest():
    """The guest's own module, found by way of the callers of this code."""
    frame = sys._getframe()
    while "CHANNEL_FD" not in frame.f_globals:
        frame = frame.f_back
    return frame.f_globals


def running():
    """The id of the cell that runs."""
    return guest()["state"].session.running


def wait_to_be_killed():
    while True:
        time.sleep(1)
