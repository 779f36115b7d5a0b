# attack: runs a program of its own from a memory file; it may, and reaches no more than before
# rows: 49
# expect: CONTAIN(ENOENT|EACCES|confined)
# isolation: full light landlock
# unconfined: safe


LOOK = """
import ctypes
libc = ctypes.CDLL(None)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
print(libc.prctl(39, 0, 0, 0, 0), libc.prctl(21), libc.capget(header, sets), any(sets))
"""


def run_from_memory(program, *words):
    """(exit status, output) of a copy of a program that is in no file system."""
    fd = os.memfd_create("own", 0)
    with open(program, "rb") as f:
        os.sendfile(fd, f.fileno(), 0, 1 << 30)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        words = [w.encode() for w in (program, *words)]
        arguments = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        libc.syscall(ctypes.c_long(NR["execveat"]), fd, b"", arguments, None, 0x1000)
        os._exit(111)
    os.close(writer)
    with open(reader, "rb") as f:
        output = f.read()
    os.close(fd)
    return os.waitpid(pid, 0)[1] >> 8, output


def attack():
    """No new privileges (39), a filter (21), no capabilities: as before."""
    status, output = run_from_memory("/usr/bin/cat", HOST["secret"])
    word = "success" if status == 0 else "ENOENT" if b"No such file" in output else "EACCES"
    held = run_from_memory(sys.executable, "-I", "-c",
                           LOOK)[1].split() == [b"1", b"2", b"0", b"False"]
    return {"secret": word, "status": "confined" if held else "free"}


def twin():
    return "success" if run_from_memory("/usr/bin/cat", "/usr/bin/env")[0] == 0 else "denied"
