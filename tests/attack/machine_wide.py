# attack: changes what a machine has one of: its clocks, its names, what its file systems are, and
#     has a timer wake the machine
# rows: 195
# expect: DENY(EPERM|EACCES|ENOSYS|ENOTSUP)     [ENOTSUP: there is no clock that can wake it]
# isolation: full light landlock
# needs: seccomp
# alike: by capabilities that no level has, and by a list of calls and of commands of ioctl that is
#     the same everywhere
# unconfined: unsafe

REALTIME, REALTIME_ALARM, ADJ_TICK = 0, 8, 0x4000


def of_files():
    """Commands of ioctl that change a file system, or a file so that its host cannot remove it;
    all are of a kind that does no harm where it succeeds."""
    path = TMP + "/file"
    write(path)
    with open(path, "r+b") as f:
        return {name: raw(16, f.fileno(), command, data) for name, command, data in (
            ("thaw", 0xc0045878, ctypes.c_char_p(bytes(4))),
            ("trim", 0xc0185879, ctypes.c_char_p(bytes(24))),
            ("immutable", 0x40086602, ctypes.byref(ctypes.c_long(0x10))),
            ("append only", 0x40086602, ctypes.byref(ctypes.c_long(0x20))),
            ("project", 0x401c5820, ctypes.create_string_buffer(28)),
            ("verity", 0x40806685, ctypes.create_string_buffer(128)),
            ("encryption key", 0xc0506617, ctypes.create_string_buffer(80)),
            ("blocks", 1, ctypes.byref(ctypes.c_int())),
            ("extents", 0xc020660b, ctypes.create_string_buffer(32)))}


def attack():
    now = struct.pack("qq", *divmod(time.time_ns(), 10**9))
    name, timer = socket.gethostname().encode(), ctypes.c_int()
    tick = ctypes.create_string_buffer(struct.pack("I", ADJ_TICK) + bytes(204))
    struct.pack_into("q", tick, 96, 10000)
    return {**of_files(),
            "clock_settime": raw(227, REALTIME, now), "settimeofday": raw(164, now, None),
            "time zone": raw(164, None, bytes(8)), "adjtimex": raw(159, tick),
            "clock_adjtime": raw(305, REALTIME, tick),
            "alarm": raw("timer_create", REALTIME_ALARM, None, ctypes.byref(timer)),
            "alarm's descriptor": raw(283, REALTIME_ALARM, 0),
            "host name": raw(170, name, len(name)), "domain": raw(171, b"x", 1),
            "hang up": raw(153), "log": raw(103, 8, None, 1)}


def twin():
    """A timer of its own, and what a command of ioctl says of its own pipe."""
    import fcntl
    reader, writer = os.pipe()
    os.write(writer, b"abc")
    waits = struct.unpack("i", fcntl.ioctl(reader, 0x541b, bytes(4)))[0]    # FIONREAD
    return raw("timer_create", REALTIME, None, ctypes.byref(ctypes.c_int())) if waits == 3 else \
        "%d bytes" % waits
