# attack: writes to read-only files by way of the page cache: shared maps, /proc/self/mem, splice
# rows: 51
# expect: DENY(EACCES|EPERM|EROFS|unchanged|EFAULT|EIO)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    import mmap
    path = "/usr/bin/env"
    before, saw = read(path), {}
    fd = os.open(path, os.O_RDONLY)
    saw["shared, writable"] = seen(mmap.mmap, fd, 0, mmap.MAP_SHARED,
                                   mmap.PROT_READ | mmap.PROT_WRITE)
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    saw["mprotect"] = ("success" if libc.mprotect(at, 4096, 3) == 0
                       else errno.errorcode[ctypes.get_errno()])
    saw["/proc/self/mem"] = seen(lambda: os.pwrite(os.open("/proc/self/mem", os.O_RDWR), b"X", at))
    reader, writer = os.pipe()      # Dirty Pipe: leave merge flags behind, splice a page in, write
    for _ in range(16):
        os.write(writer, b"x" * 4096)
        os.read(reader, 4096)
    os.splice(fd, writer, 1, offset_src=0) if hasattr(os, "splice") else None
    os.write(writer, b"Y")
    saw["splice"] = "unchanged" if read(path) == before else "success"
    return saw


def twin():
    """A private copy may be written to."""
    import mmap
    with open("/usr/bin/env", "rb") as f:
        mine = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    mine[0] = 88
    return "success" if mine[0] == 88 and read("/usr/bin/env")[:1] != b"X" else "not private"
