# attack: makes programs of its own that would run as their owner or with capabilities, by every
#     call that sets modes
# rows: 19
# expect: INERT(unchanged|EPERM|EACCES|ENOTSUP|EINVAL)
# isolation: full light landlock
# unconfined: unsafe


LOOK = "import os; print(*os.getresuid(), *os.getresgid())"


def make(path, how):
    """A copy of the interpreter with both bits, in a sandbox where that can be had."""
    with open("/usr/bin/python3", "rb") as f:
        program = f.read()
    old = os.umask(0)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o6755 if how == "open" else 0o755)
    os.umask(old)
    with os.fdopen(fd, "wb") as f:
        f.write(program)
    if how == "chmod":
        os.chmod(path, 0o6755)
    if how == "capabilities":       # all of them, permitted and effective: struct vfs_cap_data
        set_attribute(path, "security.capability",
                      struct.pack("<5I", 0x02000001, 0xffffffff, 0, 0xffffffff, 0))


def run(how):
    import subprocess
    path = "%s/program-%s" % (TMP, how)
    try:
        make(path, how)
    except OSError as e:
        return errno.errorcode[e.errno]
    done = subprocess.run([path, "-I", "-c", LOOK], capture_output=True, text=True)
    now = " ".join(map(str, (*os.getresuid(), *os.getresgid())))
    return "unchanged" if done.stdout.strip() == now else done.stdout + done.stderr[-200:]


def attack():
    """The guest owns the file itself; the other attack shows that the bits have no effect on files
    of another owner."""
    return {how: run(how) for how in ("open", "chmod", "capabilities")}


def twin():
    """A program of its own runs, as it is."""
    return "success" if run("plain") == "unchanged" else "did not run"
