# attack: opens the host's secret by every system call and every spelling of its name that there is
# rows: 1
# expect: DENY(ENOENT|EACCES|EPERM|ENOSYS|EXDEV|ELOOP|EROFS|ENOTDIR|EOPNOTSUPP|EINVAL|EBADF)
# isolation: full light landlock
# unconfined: safe


AT_FDCWD = -100

# Landlock lets it learn that a file is there, and how large it is.
NOT_CLAIMED = ("open path", "stat", "lstat", "newfstatat", "access", "faccessat2", "statx",
               "getxattr")


def openat2(*args):
    """Again while a rename or a mount anywhere on the machine raced with "..", of which openat2(2)
    then says EAGAIN."""
    for _ in range(10000):
        answer = raw(437, *args)
        if answer != "EAGAIN":
            break
    return answer


def calls(path):
    name = ctypes.c_char_p(path)
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0)
    beneath = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0x10)   # RESOLVE_IN_ROOT, of the root
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    space = ctypes.create_string_buffer(4096)
    stolen = (TMP + "/stolen").encode()
    return {"open": raw("open", name, os.O_RDONLY), "open rw": raw("open", name, os.O_RDWR),
            "open path": raw("open", name, os.O_PATH), "creat": raw(85, name, 0o600),
            "openat": raw(257, AT_FDCWD, name, os.O_RDONLY, 0),
            "openat root": raw(257, root, ctypes.c_char_p(path.lstrip(b"/")), os.O_RDONLY, 0),
            "openat2": openat2(AT_FDCWD, name, how, 24),
            "openat2 root": openat2(root, name, beneath, 24),
            "stat": raw(4, name, space), "lstat": raw(6, name, space),
            "newfstatat": raw(262, AT_FDCWD, name, space, 0), "access": raw(21, name, 4),
            "faccessat2": raw(439, AT_FDCWD, name, 4, 0),
            "statx": raw(332, AT_FDCWD, name, 0, 0xfff, space),
            "readlink": raw(89, name, space, 4096),
            "truncate": raw(76, name, 0), "rename": raw(82, name, stolen),
            "renameat2": raw(316, AT_FDCWD, name, AT_FDCWD, stolen, 0),
            "link": raw(86, name, stolen), "unlink": raw(87, name),
            "linkat": raw(265, AT_FDCWD, name, AT_FDCWD, stolen, 0x400),
            "chmod": raw(90, name, 0o777), "chown": raw(92, name, os.getuid(), -1),
            "utimensat": raw(280, AT_FDCWD, name, None, 0),
            "getxattr": raw(191, name, b"user.x", space, 100),
            "setxattr": raw(188, name, b"user.x", b"x", 1, 0),
            "name_to_handle_at": raw(303, AT_FDCWD, name, space, space, 0),
            "open_by_handle_at": raw(304, root, space, os.O_RDONLY),
            "io_uring_setup": raw("io_uring_setup", 4, space), "uselib": raw(134, name),
            "execve": in_child(raw, 59, name, None, None), "swapon": raw("swapon", name, 0),
            "acct": raw("acct", name), "inotify": raw(254, 0, name, 0xfff),
            "open_tree": raw("open_tree", AT_FDCWD, name, 0)}


def spellings():
    secret = HOST["secret"]
    yield from (secret, "/" + secret, "/./" + secret, secret.replace("/", "//"), "/tmp/.." + secret,
                "/proc/self/root" + secret, "/proc/thread-self/root" + secret,
                "/proc/%d/root%s" % (os.getppid(), secret), "/dev/fd/../.." + secret,
                "/proc/self/cwd/" + "../" * 30 + secret[1:], "../" * 30 + secret[1:])
    chain = TMP + "/chain%d" % os.getpid()
    os.makedirs(chain, exist_ok=True)
    for n in range(8):
        target = secret if n == 0 else "%s/%d" % (chain, n - 1)
        if not os.path.lexists("%s/%d" % (chain, n)):
            os.symlink(target, "%s/%d" % (chain, n))
    yield chain + "/7"


def attack():
    """On a link of its own it may do what concerns the link alone."""
    saw = {}
    for n, path in enumerate(spellings()):
        own = path.startswith(TMP + "/chain")
        for call, word in calls(path.encode()).items():
            if own and call in ("lstat", "readlink", "rename", "renameat2", "link", "unlink"):
                continue
            if HOST["secret"] not in path and not own and call in ("unlink", "rename", "renameat2"):
                continue
            if call in ("truncate", "creat", "unlink", "rename", "renameat2", "open rw", "chmod",
                        "chown", "setxattr", "utimensat", "link", "linkat", "swapon", "acct") \
                    and HOST["level"] is None:
                continue    # without the wall they would hurt
            if HOST["level"] == "landlock" and call in NOT_CLAIMED:
                continue
            saw["%s of spelling %d" % (call, n)] = word
    return saw


def twin():
    path = TMP + "/own"
    write(path, b"mine")
    return raw("open", path.encode(), os.O_RDONLY) if read(path) == b"mine" else "lost"
