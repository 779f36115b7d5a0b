# attack: takes memory that no limit of a process counts: memory files, also mapped, sent and
#     closed; shared maps; page tables; many processes
# rows: 54
# expect: KILL(memory)
# isolation: full light landlock
# alone: full light landlock
# variants: files mapped sent held shared tables processes
# settings: --memory 64M --processes 64 --tmp-size 16M
# unconfined: unsafe
import mmap

MIB = 1 << 20
MOST = 1 << 30      # where nothing stops it, it stops here


def memory_file(size, name="x"):
    fd = os.memfd_create(name)
    for _ in range(size // MIB):
        os.write(fd, bytes(MIB))
    return fd


def files():
    return [memory_file(16 * MIB) for _ in range(MOST // (16 * MIB))]


def mapped():
    """No descriptor is left of it, and no page in the process's own tables."""
    kept = []
    for _ in range(MOST // (16 * MIB)):
        fd = memory_file(16 * MIB)
        kept.append(mmap.mmap(fd, 16 * MIB))
        os.close(fd)
    return kept


def sent():
    """They wait in sockets, open in no process."""
    kept = []
    for _ in range(MOST // (16 * MIB)):
        a, b = socket.socketpair()
        fd = memory_file(16 * MIB)
        socket.send_fds(a, [b"x"], [fd])
        os.close(fd)
        kept += [a, b]
    return kept


def held():
    """They wait in the channel, which the host does not read while too many replies are unread."""
    greet()
    channel = socket.socket(fileno=os.dup(3))
    for ident in range(1 << 40, (1 << 40) + 10 ** 6, 100):
        channel.sendall(b"".join(frame(CALL, ident + i, b'{"name": "none"}', parts(b"{}"))
                                 for i in range(100)))
        until = time.monotonic() + 2
        while unsent(channel) and time.monotonic() < until:
            time.sleep(0.001)
        if unsent(channel):
            break
    for _ in range(MOST // (16 * MIB)):
        fd = memory_file(16 * MIB)
        socket.send_fds(channel, [frame(21, 1)], [fd])
        os.close(fd)
    return channel


def unsent(channel):
    """Bytes that the host has not received: SIOCOUTQ, unix(7)."""
    import fcntl
    return struct.unpack("i", fcntl.ioctl(channel, 0x5411, b"\0" * 4))[0]


def shared():
    """A page that was let go of (MADV_DONTNEED) is in no process's resident memory, and still
    there."""
    kept = mmap.mmap(-1, MOST)
    for at in range(0, MOST, MIB):
        kept[at:at + MIB] = b"x" * MIB
        kept.madvise(mmap.MADV_DONTNEED, at, MIB)
    return kept


def tables():
    """Each page that was touched is given back; its page of tables is not."""
    kept = []
    for _ in range(256):
        m = mmap.mmap(-1, 1 << 30)
        kept.append(m)
        for at in range(0, 1 << 30, 2 * MIB):
            m[at] = 1
            m.madvise(mmap.MADV_REMOVE, at, 4096)
    return kept


def processes():
    for _ in range(MOST // (32 * MIB)):
        if os.fork() == 0:
            kept = b"x" * (32 * MIB)
            time.sleep(60)
            os._exit(0)


def attack(kind):
    kept = {"files": files, "mapped": mapped, "sent": sent, "held": held, "shared": shared,
            "tables": tables, "processes": processes}[kind]()
    time.sleep(30)
    return "success"


def twin():
    """Some of each, below the limit, long enough to be looked at. A larger mapping could be charged
    with what other programs use (docs/limitations.md)."""
    fd = memory_file(8 * MIB)
    kept = [mmap.mmap(fd, 8 * MIB), mmap.mmap(-1, 24 * MIB), b"x" * (8 * MIB)]
    kept[1][:8 * MIB] = b"x" * (8 * MIB)
    with open(TMP + "/some", "wb") as f:
        f.write(bytes(4 * MIB))
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            time.sleep(1)
            os._exit(0)
        children.append(pid)
    words = {"success" if os.waitpid(pid, 0)[1] == 0 else "a child died" for pid in children}
    os.close(fd)
    os.unlink(TMP + "/some")
    return words.pop()
