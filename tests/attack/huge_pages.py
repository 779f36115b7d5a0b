# attack: takes pages out of the pool that the host keeps for others: huge ones, by mmap and by
#     memory files
# rows: 54
# expect: DENY(EPERM)
# isolation: full light landlock
# needs: seccomp
# unconfined: safe


HUGE_MAP, HUGE_FILE = 0x40000, 4


def attack():
    """The kernel would say ENOMEM where the pool is empty."""
    private, shared = 0x22 | HUGE_MAP, 0x21 | HUGE_MAP
    return {"private": raw("mmap", None, 2 << 20, 3, private, -1, 0),
            "shared": raw("mmap", None, 2 << 20, 3, shared, -1, 0),
            "of a gigabyte": raw("mmap", None, 1 << 30, 3, private | 30 << 26, -1, 0),
            "memory file": raw("memfd_create", b"x", HUGE_FILE),
            "sealed memory file": raw("memfd_create", b"x", HUGE_FILE | 2)}


def twin():
    """Memory and memory files of usual pages, and the advice to make them large where that costs
    nobody."""
    import mmap
    own = mmap.mmap(-1, 4 << 20)
    own.madvise(mmap.MADV_HUGEPAGE)
    own[0] = 1
    return raw("memfd_create", b"x", 0)
