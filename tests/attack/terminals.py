# attack: opens the host's terminals and consoles, and makes a terminal type, load a line
#     discipline, or take what the kernel says
# rows: 17
# expect: DENY(ENOENT|EACCES|EPERM|ENXIO|ENOTTY|ENODEV|EIO)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


NUMBERS = {"type": (0x5412, b"x"), "type in a console": (0x541C, b"\2"),
           "discipline": (0x5423, b"\2\0\0\0"), "console": (0x541D, None)}


def attack():
    """Without a terminal of its own, the filter answers before the kernel does."""
    saw = {path: seen(os.open, path, os.O_RDWR | os.O_NOCTTY) for path in
           ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/pts/0",
            "/dev/pts/1", "/proc/1/fd/0", "/dev/vcs")}
    libc.ioctl.restype = ctypes.c_int
    fd = os.open("/dev/null", os.O_RDWR)
    for name, (number, argument) in NUMBERS.items():
        ctypes.set_errno(0)
        refused = libc.ioctl(fd, ctypes.c_ulong(number), argument) < 0
        saw[name] = errno.errorcode.get(ctypes.get_errno(), "?") if refused else "success"
        if saw[name] == "ENOTTY":
            saw[name] = "reached the kernel"
    return saw


def twin():
    """The commands that a terminal of its own needs reach the kernel: this is none."""
    import fcntl
    import termios
    for number, argument in ((termios.TIOCSWINSZ, b"\0" * 8), (termios.TIOCSCTTY, 0)):
        if seen(fcntl.ioctl, os.open("/dev/null", os.O_RDWR), number, argument) != "ENOTTY":
            return "refused"
    return "success"
