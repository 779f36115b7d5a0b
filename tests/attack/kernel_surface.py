# attack: calls what user programs have no use for: bpf, perf, io_uring, keyrings, modules, …
# rows: 35
# expect: DENY(EPERM|ENOSYS|EACCES)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def attack():
    zeros = ctypes.create_string_buffer(256)
    return {name: in_child(raw, name, *arguments) for name, arguments in {
        "bpf": (0, zeros, 128), "perf_event_open": (zeros, 0, -1, -1, 0), "userfaultfd": (1,),
        "io_uring_setup": (8, zeros), "keyctl": (0, -2, 1), "request_key": (b"user", b"x", None, 0),
        "add_key": (b"user", b"x", b"x", 1, -2), "kexec_load": (0, 0, None, 0),
        "init_module": (zeros, 1, b""), "finit_module": (0, b"", 0), "swapon": (b"/tmp/x", 0),
        "reboot": (0xfee1dead, 0x28121969, 0, None), "acct": (b"/tmp/x",),
        "quotactl": (0x80000100, b"/dev/null", 0, zeros), "iopl": (3,), "ioperm": (0x80, 1, 1),
        "personality": (0x0040000,), "modify_ldt": (0, zeros, 16)}.items()}


def twin():
    return raw("getpid")
