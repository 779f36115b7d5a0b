"""unpack.py: files that the host sends, become a directory (src/volume/pack.h). No code of the user's runs meanwhile."""

PACK = struct.Struct("<BxHIQq")
PACK_DIRECTORY, PACK_FILE, PACK_LINK, PACK_END = 1, 2, 3, 4


def unpack_files(fd, top):
    """All that comes; what is there already of the same names is replaced."""
    def read(count):
        data = bytearray()
        while len(data) < count:
            piece = os.read(fd, min(count - len(data), 1 << 20))
            if not piece:
                raise OSError("the files ended in the middle")
            data += piece
        return bytes(data)

    top = os.fsencode(top)
    os.makedirs(top, exist_ok=True)
    times = []          # of directories: what is put into one changes its own
    while True:
        kind, mode, length, size, changed = PACK.unpack(read(PACK.size))
        if kind == PACK_END:
            break
        path = os.path.join(top, read(length))
        if kind == PACK_DIRECTORY:
            os.makedirs(path, exist_ok=True)
            times.append((path, mode, changed))
            continue
        if os.path.lexists(path):
            os.unlink(path)
        if kind == PACK_LINK:
            os.symlink(read(size), path)
            continue
        with open(path, "xb") as file:
            while size > 0:
                piece = read(min(size, 1 << 20))
                file.write(piece)
                size -= len(piece)
        os.chmod(path, mode)
        os.utime(path, (changed, changed))
    for path, mode, changed in reversed(times):
        os.chmod(path, mode | 0o700)
        os.utime(path, (changed, changed))
