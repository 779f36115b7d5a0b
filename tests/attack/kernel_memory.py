# attack: has the kernel keep memory for it: page tables, full pipes, full sockets, memory files,
#     many children
# rows: 54
# expect: DENY(MemoryError|ENOMEM|EMFILE|ENFILE|EAGAIN|ENOSPC|EFBIG|EPERM|bounded)
# expect memfds: DENY(EFBIG|EMFILE) or KILL(memory)
# expect children: DENY(EAGAIN) or KILL(memory)
# isolation: full light landlock
# alone: landlock
# variants: tables pipes sockets memfds children
# settings: --memory 200M --processes 8 --open-files 200 --tmp-size 16M --file-size 64M
# unconfined: unsafe


def tables():
    """One page touched in each 2 MiB: each costs a page of tables beside it."""
    import mmap
    kept = []
    for _ in range(64):
        m = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        kept.append(m)
        for at in range(0, 1 << 30, 2 << 20):
            m[at] = 1


def pipes():
    """The kernel's own limit on the pipes of a user is 64 MiB of full size
    (pipe-user-pages-soft)."""
    import fcntl
    held = 0
    while held < 1 << 30:
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(writer, 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(writer, False)
        try:
            while True:
                held += os.write(writer, bytes(1 << 16))
        except BlockingIOError:
            continue


def sockets():
    held = 0
    while held < 1 << 30:
        a, b = socket.socketpair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        a.setblocking(False)
        try:
            while True:
                held += a.send(bytes(1 << 16))
        except BlockingIOError:
            a.detach()
            b.detach()


def memfds():
    for _ in range(1000):
        fd = os.memfd_create("x")
        for _ in range(1000):
            os.write(fd, bytes(1 << 20))


def children():
    """A thousand children of 100 MB each. Only so many at once; each of them within its own
    limit."""
    started = 0
    pids = []
    try:
        while started < 1000:
            pid = os.fork()
            if pid == 0:
                try:
                    kept = bytearray(b"x" * (100 << 20))
                    time.sleep(1000)
                finally:
                    os._exit(0)
            pids.append(pid)
            started += 1
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def attack(kind):
    return seen({"tables": tables, "pipes": pipes, "sockets": sockets, "memfds": memfds,
                 "children": children}[kind])


def twin():
    return seen(bytearray, 20 << 20)
