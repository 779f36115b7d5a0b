# attack: makes device files, of the host's disk, memory and console
# rows: 17
# expect: DENY(EPERM|EROFS|EACCES)
# isolation: full light landlock
# unconfined: safe


def attack():
    saw = {}
    for name, mode, number in (("disk", 0o60666, 0xfe00), ("mem", 0o20666, 0x101),
                               ("null", 0o20666, 0x103),
                               ("kmsg", 0o20666, 0x10b), ("console", 0o20666, 0x501)):
        path = TMP + "/droste-attack-node%d" % os.getpid()
        saw[name] = raw("mknod", path.encode(), mode, number)
        if os.path.exists(path):
            os.unlink(path)
        saw[name + " /dev"] = raw("mknod", b"/dev/droste-attack/x", mode, number) \
            if HOST["level"] is None else raw("mknod", b"/dev/x", mode, number)
    return saw


def twin():
    """FIFOs and sockets are files like others."""
    os.mkfifo(TMP + "/fifo%d" % os.getpid())
    os.mknod(TMP + "/sock%d" % os.getpid(), 0o140600)
    return seen(read, "/dev/null")
