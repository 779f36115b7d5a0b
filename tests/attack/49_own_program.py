# attack: runs a program of its own from a memory file; it may, and reaches no more than before
# expect: CONTAIN(ENOENT|EACCES|confined)
# isolation: full
# unconfined: safe


def run_from_memory(*words):
    """(exit status, output) of a copy of cat that is in no file system."""
    fd = os.memfd_create("own", 0)
    with open("/usr/bin/cat", "rb") as f:
        os.write(fd, f.read())
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        arguments = (ctypes.c_char_p * (len(words) + 2))(b"own", *[w.encode() for w in words], None)
        libc.syscall(ctypes.c_long(NR["execveat"]), fd, b"", arguments, None, 0x1000)
        os._exit(111)
    os.close(writer)
    said = os.read(reader, 4000)
    os.close(reader)
    os.close(fd)
    return os.waitpid(pid, 0)[1] >> 8, said


def attack():
    status, said = run_from_memory(HOST["secret"])
    word = "success" if status == 0 else "ENOENT" if b"No such file" in said else "EACCES"
    _, status_file = run_from_memory("/proc/self/status")
    facts = dict(line.split(":\t", 1) for line in status_file.decode().splitlines() if ":\t" in line)
    held = facts.get("NoNewPrivs") == "1" and facts.get("Seccomp") == "2" and int(facts["CapEff"], 16) == 0
    return {"secret": word, "status": "confined" if held else "free"}


def twin():
    return "success" if run_from_memory("/etc/passwd")[0] == 0 else "denied"
