# attack: takes limits and priority from the process that watches over it, then ends: its end must
#     be told as it was
# rows: 65
# expect: DENY(EPERM|ENOSYS)
# expect end: KILL(exit 5)
# isolation: full light landlock
# variants: limits end
# unconfined: never


def attack(kind):
    """Where it cannot see its keeper, or may not, nothing comes of it, which is as good."""
    keeper = os.getppid()
    # The kernel looks at the lower half of a pid only.
    saw = {"%d of %d" % (resource, pid): raw(302, pid, resource, (ctypes.c_uint64 * 2)(0, 0), None)
           for pid in (keeper, keeper | 1 << 32) for resource in range(16)}
    if kind == "limits":
        return saw
    raw("setpriority", 0, keeper, 19)
    raw("setpriority", 2, 0, 19)
    raw("ioprio_set", 1, keeper, 3 << 13)
    os._exit(5)


def twin():
    """Of itself it may give up what it likes, also in a child before that runs a program."""
    return in_child(lambda: raw(302, 0, 7, (ctypes.c_uint64 * 2)(20, 20), None))
