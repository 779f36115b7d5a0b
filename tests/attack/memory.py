# attack: asks for more memory than there is: at once, slowly, as files in /tmp and /dev/shm, as
#     many maps
# rows: 54
# expect: DENY(MemoryError|ENOSPC|ENOMEM)
# isolation: full light landlock
# isolation files: full light
# variants: bytearray slowly files maps
# settings: --memory 200M --tmp-size 16M
# unconfined: unsafe


def slowly():
    kept = []
    while len(kept) < 2000:
        kept.append(bytearray(b"x" * (1 << 20)))


def fill(directory):
    with open(directory + "/big", "wb", 0) as f:
        try:
            for _ in range(2000):
                f.write(bytes(1 << 20))
        finally:
            os.unlink(directory + "/big")


def maps():
    import mmap
    kept = [mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(1000)]


def attack(kind):
    if kind == "bytearray":
        return seen(bytearray, 10 ** 12)
    if kind == "files":
        return {d: seen(fill, d) for d in ("/tmp", "/dev/shm")}
    return seen({"slowly": slowly, "maps": maps}[kind])


def twin():
    return seen(bytearray, 20 << 20)
