# attack: makes namespaces of its own, by unshare, clone and setns
# rows: 31
# expect: DENY(EPERM|ENOSYS|EINVAL)
# isolation: full light landlock
# needs: seccomp
# unconfined: safe


def attack():
    saw = {"unshare %#x" % flag: in_child(raw, "unshare", flag) for flag in
           (0x10000000, 0x10000000 | 0x20000, 0x10000000 | 0x40000000, 0x02000000 | 0x10000000)}

    def clone():
        libc.syscall.restype = ctypes.c_long
        pid = libc.syscall(ctypes.c_long(NR["clone"]), ctypes.c_long(0x10000000 | 17), None, None,
                           None, None)
        if pid == 0:
            os._exit(0)
        return "success" if pid > 0 else errno.errorcode[ctypes.get_errno()]
    saw["clone"] = in_child(clone)
    fd = os.open("/proc/self/ns/user", os.O_RDONLY)
    saw["setns"] = in_child(raw, "setns", fd, 0x10000000)
    return saw


def twin():
    return "success" if in_child(lambda: "x") == "x" else "no child"
