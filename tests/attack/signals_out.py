# attack: sends signals out of the sandbox in every way there is: kill, queues, pidfds, SIGIO of a
#     socket, timers, groups
# rows: 65
# expect: DENY(EPERM|ESRCH|EINVAL|ENOSYS|unheard)
# isolation: full light landlock
# unconfined: unsafe


SIGKILL = 9
F_SETOWN, F_SETSIG, F_SETOWN_EX = 8, 10, 15


def by_socket(pid, whose):
    """Has the kernel send it, when something arrives; then it is the kernel that must not."""
    import fcntl
    one, two = socket.socketpair()
    try:
        if whose is None:
            fcntl.fcntl(one, F_SETOWN, pid)
        else:
            fcntl.fcntl(one, F_SETOWN_EX, struct.pack("ii", whose, pid))
        fcntl.fcntl(one, F_SETSIG, SIGKILL)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
        two.send(b"x")
    except OSError as e:
        return errno.errorcode[e.errno]
    return "unheard"        # if it is not, the host finds its process dead


def by_pidfd(pid):
    fd = libc.syscall(ctypes.c_long(NR["pidfd_open"]), pid, 0)
    return errno.errorcode[ctypes.get_errno()] if fd < 0 else raw(424, fd, SIGKILL, None, 0)


def attack():
    """The host's process runs as the guest does outside, so that only the wall protects it."""
    saw, info = {}, (ctypes.c_int * 32)(SIGKILL, 0, -1)
    event = (ctypes.c_int * 16)(0, 0, SIGKILL, 4)       # SIGEV_THREAD_ID
    for pid in (HOST["pid"], HOST["parent"]):
        event[4] = pid
        saw.update({
            "kill %d" % pid: raw(62, pid, SIGKILL), "its group %d" % pid: raw(62, -pid, SIGKILL),
            "tkill %d" % pid: raw(200, pid, SIGKILL),
            "tgkill %d" % pid: raw(234, pid, pid, SIGKILL),
            "queue %d" % pid: raw("rt_sigqueueinfo", pid, SIGKILL, info),
            "thread's queue %d" % pid: raw(297, pid, pid, SIGKILL, info),
            "timer %d" % pid: raw("timer_create", 1, event, ctypes.byref(ctypes.c_int())),
            "pidfd %d" % pid: by_pidfd(pid),
            "limit %d" % pid: raw(302, pid, 0, (ctypes.c_uint64 * 2)(), None),
            "socket %d" % pid: by_socket(pid, None),
            "socket's group %d" % pid: by_socket(-pid, None),
            "socket's thread %d" % pid: by_socket(pid, 0),
            "socket's process %d" % pid: by_socket(pid, 1)})
    return saw


def twin():
    """A signal of the kernel's own, for itself."""
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    import fcntl
    one, two = socket.socketpair()
    fcntl.fcntl(one, F_SETOWN, os.getpid())
    fcntl.fcntl(one, F_SETSIG, int(signal.SIGUSR1))
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    two.send(b"x")
    return "success" if heard else "unheard"
