# attack: asks the channel who is at its other end, for a descriptor of that process (SO_PEERPIDFD),
#     and takes hold of it
# rows: 79
# expect: DENY(EPERM|EINVAL|ENOSYS|ECHILD|EBADF|none)
# isolation: full light landlock
# unconfined: never


SO_PASSCRED, SO_PASSPIDFD, SO_PEERPIDFD = 16, 76, 77


def take(fd):
    return {"signal": raw(424, fd, 0, None, 0), "kill": raw(424, fd, 9, None, 0),
            "pidfd_getfd": raw("pidfd_getfd", fd, 0, 0), "setns": raw("setns", fd, 0x10000000),
            "madvise": raw("process_madvise", fd, None, 0, 0, 0), "release": raw(448, fd, 0),
            "info": raw(16, fd, 0xc040ff0b, ctypes.create_string_buffer(64)),
            "namespace": raw(16, fd, 0xff01, 0),
            "wait": seen(os.waitid, 3, fd, os.WEXITED | os.WNOHANG)}


def attack():
    """Before Linux 6.5 there is no such descriptor."""
    with socket.socket(fileno=os.dup(3)) as channel:
        try:
            return take(channel.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            return "none"


def twin():
    """Of a pair of its own, whose other end it is itself, it learns the same and may use it."""
    one, _two = socket.socketpair()
    pid, _, _ = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return "success" if pid == os.getpid() else "another"
