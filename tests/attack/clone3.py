# attack: makes a namespace with clone3, whose arguments a filter cannot see
# rows: 32
# expect: DENY(ENOSYS)
# isolation: full light landlock
# needs: seccomp
# unconfined: safe


def attack():
    def clone3():
        arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
        libc.syscall.restype = ctypes.c_long
        pid = libc.syscall(ctypes.c_long(NR["clone3"]), arguments, ctypes.c_long(88))
        if pid == 0:
            os._exit(0)
        return "success" if pid > 0 else errno.errorcode[ctypes.get_errno()]
    return in_child(clone3)


def twin():
    """Threads start all the same: libc falls back to clone."""
    return in_thread()
