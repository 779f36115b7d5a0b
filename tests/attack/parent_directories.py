# attack: climbs out of its directories with .. and with descriptors of directories
# rows: 2
# expect: DENY(ENOENT|EACCES)
# isolation: full light landlock
# unconfined: safe


def attack():
    up = "../" * 40
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    attempts = {"tmp": lambda: read("/tmp/" + up + HOST["secret"]),
                "relative": lambda: read(up + HOST["secret"]),
                "openat": lambda: os.open(up + HOST["secret"], os.O_RDONLY, dir_fd=here),
                "openat /": lambda: os.open(".." + HOST["secret"], os.O_RDONLY, dir_fd=root),
                "shadow": lambda: read(up + "etc/shadow"),
                "proc": lambda: read("/proc/self/cwd/" + up + HOST["secret"])}
    return {name: seen(attempt) for name, attempt in attempts.items()}


def twin():
    return seen(read, "/tmp/" + "../" * 40 + "usr/bin/env")
