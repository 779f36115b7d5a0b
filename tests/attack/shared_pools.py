# attack: takes from what the kernel keeps for all users of the machine: pipes' sizes, merged pages,
#     huge pages, notes, filters
# rows: 114
# expect: DENY(EPERM|ENOSYS|bounded)
# isolation: full light landlock
# alike: the filter's lists are the same
# needs: seccomp
# unconfined: unsafe


def pipes():
    """A pipe of a mebibyte: the kernel counts their pages by user (fs.pipe-user-pages-soft)."""
    import fcntl
    reader, writer = os.pipe()
    saw = seen(fcntl.fcntl, writer, 1031, 1 << 20)
    return "bounded" if saw == "success" and fcntl.fcntl(writer, 1032) <= 65536 else saw


def attack():
    reader, writer = os.pipe()
    place = ctypes.create_string_buffer(1 << 16)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(place), 4096)
    page = (ctypes.addressof(place) + 4095) & ~4095
    ret = (ctypes.c_uint64 * 1)(0x6 | 0x7fff0000 << 32)
    program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(ret))
    return {"pipe's size": pipes(), "vmsplice": raw(278, writer, vector, 1, 0),
            "tee": raw(276, reader, writer, 1, 2),
            "notes in a pipe": raw(293, place, 0o200), "merged pages": raw(28, page, 4096, 12),
            "paged out": raw(28, page, 4096, 21),
            "huge pages": raw("mmap", 0, 2 << 20, 3, 0x40022, -1, 0),
            "huge file": raw("memfd_create", b"x", 4), "all processors": raw(324, 1, 0, 0),
            "interrupts": raw(324, 2, 0, 0), "own filter": in_child(raw, "seccomp", 1, 0, program),
            "own filter, prctl": in_child(raw, "prctl", 22, 2, program, 0, 0),
            "names of maps": raw("prctl", 0x53564d41, 0, page, 4096, b"x"),
            "aio": raw(206, 8, place),
            "lease": raw(72, reader, 1024, 0), "notes of files": raw(72, reader, 1026, 1),
            "clone, parent": raw("clone", 0x8000 | 17, None, None, None, None),
            "clone, io": raw("clone", 0x80000000 | 17, None, None, None, None)}


def fork_and_share():
    import mmap
    import multiprocessing
    import subprocess
    shared = mmap.mmap(-1, 4096)
    if subprocess.run(["/bin/sh", "-c", "exit 3"], stdin=subprocess.DEVNULL).returncode != 3:
        return "no subprocess"
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: (shared.__setitem__(0, 7), theirs.send("x")))
    child.start()
    heard = ours.recv()
    child.join()
    return None if heard == "x" and shared[0] == 7 else "nothing shared"


def files_and_locks():
    import fcntl
    import sqlite3
    import tempfile
    with tempfile.NamedTemporaryFile() as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        fcntl.lockf(f, fcntl.LOCK_EX)
        fcntl.fcntl(f, fcntl.F_SETFD, fcntl.fcntl(f, fcntl.F_GETFD))
    with sqlite3.connect(TMP + "/base-%d" % os.getpid()) as base:
        base.execute("create table t (x)")
        base.execute("insert into t values (1)")
        if base.execute("select sum(x) from t").fetchall() != [(1,)]:
            return "no rows"
    reader, writer = os.pipe()
    if fcntl.fcntl(writer, 1031, 4096) != 4096 or os.isatty(reader):
        return "no pipe"
    return None


def wait_for_things():
    import asyncio
    import select
    import selectors
    import threading

    async def run():
        process = await asyncio.create_subprocess_exec("/bin/cat", stdin=-1, stdout=-1)
        out, _ = await process.communicate(b"hello")
        return (out, await asyncio.to_thread(threading.get_ident) if sys.version_info >= (3, 9)
                else 1)
    one, two = socket.socketpair()
    two.send(b"x")
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        if not selector.select(5) or select.select([one], [], [], 5)[0] != [one]:
            return "nothing to read"
    return None if asyncio.run(run())[0] == b"hello" else "no subprocess in asyncio"


def packages():
    """Where the interpreter has them: numpy asks for huge pages, for large arrays."""
    try:
        import numpy
        import pandas
    except ImportError:
        return None
    array = numpy.ones(4 << 20)
    frame = pandas.DataFrame({"a": [1, 2, 1], "b": [1.0, 2.0, 3.0]})
    return (None if array.sum() == 4 << 20 and frame.groupby("a").b.sum()[1] == 4
            else "numbers are wrong")


def twin():
    """What the standard library and the usual packages do with the same calls."""
    return next(filter(None, (part() for part in (fork_and_share, files_and_locks, wait_for_things,
                                                  packages))), "success")
