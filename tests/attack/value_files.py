# attack: sends the result of its cell in a memory file that it can still change, that is shorter or
#     longer than it says or has holes, or in what is not a memory file; and many more than one
# rows: 79
# expect: KILL(protocol)
# expect kept: INERT(forged)
# expect many: INERT(forged)
# expect unasked: INERT(forged)
# isolation: full light landlock
# variants: unsealed writable growing pipe directory socket device short long holes empty none
#     unannounced kept many unasked
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never
import fcntl
import mmap

FLAG_FD, WRITE, GROW, SHRINK = 1, 8, 4, 2
ALL = WRITE | GROW | SHRINK | 1
VALUE = parts(b'{"attack": "forged", "twin": "success"}' + b" " * 300000)


def value_file(seals=ALL, data=VALUE, size=None):
    fd = os.memfd_create("value", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if size is not None:
        os.ftruncate(fd, size)
    fcntl.fcntl(fd, 1033, seals)
    return fd


def send(fds, size=len(VALUE), flags=FLAG_FD):
    """Sends a result whose contents are in the first descriptor."""
    greet()
    with socket.socket(fileno=os.dup(3)) as channel:
        socket.send_fds(channel, [frame(RESULT, running(), b'{"status": "ok", "submitted": 0}',
                                        flags=flags, blob_len=size)], fds)


def seek_changes(fd):
    """What can still be done to a sealed file, through its descriptor and a mapping."""
    view = mmap.mmap(fd, len(VALUE), mmap.MAP_SHARED, mmap.PROT_READ)
    saw = {"shrinks": seen(os.ftruncate, fd, 1), "writes": seen(os.pwrite, fd, b"x", 0),
           "maps": seen(mmap.mmap, fd, len(VALUE), mmap.MAP_SHARED),
           "punches": raw(285, fd, 3, 0, 4096), "unseals": seen(fcntl.fcntl, fd, 1033, 0)}
    view.close()
    return saw


def attack(kind):
    if kind == "kept":
        fd = value_file()
        saw = seek_changes(fd)
        if set(saw.values()) != {"EPERM"}:
            return saw
        send([fd])
    if kind == "many":
        send([value_file()] + [value_file(0) for _ in range(200)])
    elif kind == "unasked":
        greet()
        other = value_file(0, b"x")
        with socket.socket(fileno=os.dup(3)) as channel:
            for _ in range(1000):
                socket.send_fds(channel, [frame(21, 10 ** 9)], [other])
        send([value_file()])
    elif kind == "unannounced":
        send([value_file()], flags=2)
    elif kind == "none":
        send([])
    else:
        make = {"unsealed": lambda: value_file(0), "writable": lambda: value_file(GROW | SHRINK),
                "growing": lambda: value_file(WRITE | SHRINK), "pipe": lambda: os.pipe()[0],
                "directory": lambda: os.open("/usr", os.O_RDONLY),
                "socket": lambda: socket.socketpair()[0].detach(),
                "device": lambda: os.open("/dev/zero", os.O_RDONLY),
                "short": lambda: value_file(data=VALUE[:-1]),
                "long": lambda: value_file(data=VALUE + b"x"),
                "holes": lambda: value_file(data=VALUE[:1000], size=len(VALUE)),
                "empty": lambda: value_file(data=b"")}
        send([make[kind]()], 0 if kind == "empty" else len(VALUE))
    wait_to_be_killed()


def twin():
    """The same in a file as the guest makes it."""
    send([value_file()])
    wait_to_be_killed()
