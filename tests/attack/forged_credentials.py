# attack: says over a socket that it is another process or another user (SCM_CREDENTIALS), and acts
#     on a process outside by its number: memory policy, placement, scheduling, process group
# rows: 196
# expect: DENY(EPERM|EACCES|ESRCH|EINVAL|ENOSYS)
# isolation: full light landlock
# unconfined: unsafe


def introduce(pid, uid, gid):
    """Sends credentials over a pair of its own: `success` if the other end gets these."""
    one, two = socket.socketpair()
    two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    said = struct.pack("iII", pid, uid, gid)
    word = seen(one.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, said)])
    if word != "success":
        return word
    _, ancillary, _, _ = two.recvmsg(1, 100)
    return "success" if ancillary and ancillary[0][2] == said else "another"


def attack():
    uid, gid, mask = os.getuid(), os.getgid(), (ctypes.c_ulong * 16)(1)
    saw = {"another user": introduce(os.getpid(), uid + 1, gid),
           "another group": introduce(os.getpid(), uid, gid + 1)}
    for pid in (HOST["pid"], HOST["parent"]):
        saw.update({
            "as %d" % pid: introduce(pid, uid, gid),
            "robust list of %d" % pid: raw(274, pid, ctypes.byref(ctypes.c_void_p()),
                                           ctypes.byref(ctypes.c_size_t())),
            "pages of %d" % pid: raw(279, pid, 0, None, None, None, 0),
            "nodes of %d" % pid: raw(256, pid, 64, mask, mask),
            "processors of %d" % pid: raw(203, pid, 128, mask),
            "idle %d" % pid: raw("sched_setscheduler", pid, 5, ctypes.byref(ctypes.c_int())),
            "nice %d" % pid: raw("setpriority", 0, pid, 19),
            "group of %d" % pid: raw(109, pid, 0),
            "end of %d" % pid: raw(448, pid, 0)})
    return saw


def twin():
    """It may say who it is."""
    return introduce(os.getpid(), os.getuid(), os.getgid())
