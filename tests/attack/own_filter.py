# attack: adds a filter of its own, with a listener or one that kills
# rows: 41
# expect: CONTAIN(EPERM|ENOSYS|EINVAL|EACCES|signal 31)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def attack():
    def install(flags, action):
        program = (ctypes.c_uint64 * 1)(0x6 | action << 32)
        header = (ctypes.c_uint64 * 2)(1, ctypes.addressof(program))
        return raw("seccomp", 1, flags, header)
    return {"listener": in_child(install, 8, 0x7fff0000), "kill": in_child(install, 0, 0x80000000)}


def twin():
    return raw("getpid")
