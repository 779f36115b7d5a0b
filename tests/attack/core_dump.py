# attack: dies so that a core file is written, or a program started on the host for it; sets the
#     limit for that first
# rows: 50
# expect: DENY(none|kept)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def crash():
    import resource
    highest = resource.getrlimit(resource.RLIMIT_CORE)[1]
    seen(resource.setrlimit, resource.RLIMIT_CORE, (highest, highest))
    os.kill(os.getpid(), signal.SIGSEGV)


def change(value):
    """With a limit of 1 the kernel neither writes a core file nor starts the program of
    core_pattern; with 0 it does start it (core(5)). tests/vm/test_limits.py has such a program."""
    import resource
    before = resource.getrlimit(resource.RLIMIT_CORE)
    both = (ctypes.c_uint64 * 2)(value, value)
    for call in ((302, 0, 4, both, None), (160, 4, both),
                 (302, os.getpid(), 4 | 1 << 32, both, None)):
        raw(*call)
    return ("kept" if resource.getrlimit(resource.RLIMIT_CORE) == before and before[0] < 2
            else "changed")


def attack():
    os.chdir(TMP)
    pid = os.fork()
    if pid == 0:
        crash()
    _, status = os.waitpid(pid, 0)
    return {"crash": "success" if os.WCOREDUMP(status) else "none"
            if os.WTERMSIG(status) == signal.SIGSEGV else "?",
            **{"to %d" % value: in_child(change, value) for value in (0, 2, 1 << 40)}}


def twin():
    """A child may crash, and this process goes on; and other limits may be lowered."""
    import resource
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        os.kill(os.getpid(), signal.SIGSEGV)
    return "success" if os.waitpid(pid, 0)[1] == signal.SIGSEGV else "it did not crash"
