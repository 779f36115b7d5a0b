"""The files of a sandbox, packed into the memory of a session that is about to become a template.

pack() is executed in that session, unpack() in one that has started from the template. Only what
lies on the file system of the root is packed, and nothing that is mounted in it.
"""
import io
import os
import sys
import tarfile

PACKED = "_droste_files"
XATTR = "SCHILY.xattr."


def walk():
    """Yields the paths below the root."""
    device = os.lstat("/").st_dev
    for place, directories, files in os.walk("/"):
        here = []
        for name in directories + files:
            path = os.path.join(place, name)
            try:
                if os.lstat(path).st_dev == device:
                    here.append(name)
                    yield path
            except FileNotFoundError:
                pass        # it was removed meanwhile
        directories[:] = [name for name in directories if name in here]


def attributes(path):
    """The extended attributes that a user may set."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}
    return {XATTR + name: os.fsdecode(os.getxattr(path, name, follow_symlinks=False))
            for name in names if name.startswith("user.")}


def add(tar, path):
    entry = tar.gettarinfo(path)
    if entry is None:       # a socket
        return
    entry.pax_headers = attributes(path)
    if not entry.isreg():
        tar.addfile(entry)
        return
    with open(path, "rb") as file:
        tar.addfile(entry, file)


def own_memory():
    """Bytes of this process that no other shares."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_Dirty"))


def check_room(limit):
    """Refuses what would exceed the sandbox's memory, and end the session.

    The files are there, packed, and in the template, and what the session has is there twice.
    """
    files = 0
    for path in walk():
        try:
            files += os.lstat(path).st_blocks * 512
        except FileNotFoundError:
            pass
    needed = 3 * files + 2 * own_memory()
    if needed > limit:
        raise MemoryError("a snapshot needs %d MiB for files and variables, more than the memory "
                          "of the sandbox; remove some, or raise --memory" % (needed >> 20))


def pack(limit):
    if limit:
        check_room(limit)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in walk():
            try:
                add(tar, path)
            except FileNotFoundError:
                pass
    setattr(sys, PACKED, data)


def drop():
    sys.__dict__.pop(PACKED, None)


def clear(kept):
    """Removes what a new sandbox has and the packed one had not."""
    for path in sorted(walk(), reverse=True):
        try:
            if not os.path.isdir(path) or os.path.islink(path):
                os.unlink(path)
            elif path[1:] not in kept:
                os.rmdir(path)
        except OSError:
            pass


def unpack(variables):
    os.environ.update(variables)
    data = sys.__dict__.pop(PACKED)
    data.seek(0)
    with tarfile.open(fileobj=data) as tar:
        entries = tar.getmembers()
        clear({entry.name for entry in entries})
        tar.extraction_filter = lambda entry, path: entry   # links may lead anywhere in a sandbox
        tar.extractall("/")
        for entry in entries:
            for name, value in entry.pax_headers.items():
                if name.startswith(XATTR):
                    os.setxattr("/" + entry.name, name[len(XATTR):], os.fsencode(value),
                                follow_symlinks=False)
