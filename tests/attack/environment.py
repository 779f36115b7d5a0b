# attack: looks for the host's secrets in environment, memory, arguments and descriptors
# rows: 75
# expect: DENY(absent)
# isolation: full light landlock
# unconfined: safe


def attack():
    # It is told all of the key but its first letters, so that finding the whole means something.
    key = ("sk-" + HOST["key"]).encode()
    saw = {"os.environ": "success" if key.decode() in repr(dict(os.environ)) else "absent"}
    for path in ("/proc/self/environ", "/proc/self/cmdline", "/proc/self/auxv", "/proc/1/environ",
                 "/proc/1/cmdline"):
        try:
            saw[path] = "success" if key in read(path) else "absent"
        except OSError:
            saw[path] = "absent"
    saw["standard input"] = "success" if os.read(0, 100) else "absent"
    found = descriptors() if HOST["level"] else []
    saw["descriptors"] = "absent" if len(found) <= 4 else " ".join(found)
    return saw


def descriptors():
    """Those that it has. At landlock, a fork cannot read /proc/self: it tries all numbers."""
    try:
        numbers = map(int, os.listdir("/proc/self/fd"))
    except PermissionError:
        numbers = range(1 << 16)
    return ["%d: %o" % (n, os.fstat(n).st_mode) for n in numbers if seen(os.fstat, n) == "success"]


def twin():
    """What a program needs is there."""
    return "success" if os.environ.get("PATH") and os.environ.get("HOME") else "no PATH or HOME"
