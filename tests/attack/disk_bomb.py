# attack: fills /tmp and /dev/shm: by writing, by allocating, with holes, with files that have no
#     name
# rows: 23
# expect: DENY(ENOSPC|EDQUOT|EFBIG)
# isolation: full light
# isolation allocated: full light landlock
# isolation hole: full light landlock
# variants: written allocated hole nameless shm
# settings: --tmp-size 16M --file-size 1G
# unconfined: unsafe


def fill(fd):
    for _ in range(4000):
        os.write(fd, bytes(1 << 20))


def attack(kind):
    path = ("/dev/shm" if kind == "shm" else TMP) + "/big"
    if kind == "nameless":
        fd = os.open(TMP, os.O_TMPFILE | os.O_RDWR, 0o600)
    else:
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        os.unlink(path)
    try:
        if kind == "allocated":
            return seen(os.posix_fallocate, fd, 0, 4 << 30)
        if kind == "hole":
            return seen(os.ftruncate, fd, 1 << 50)
        return seen(fill, fd)
    finally:
        os.close(fd)


def twin():
    return seen(write, TMP + "/small", bytes(1 << 20))
