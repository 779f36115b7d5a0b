# attack: dies with much memory so that a core file is written
# expect: DENY(none)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    def crash():
        import resource
        limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(10)
    os.chdir(TMP)
    pid = os.fork()
    if pid == 0:
        crash()
    _, status = os.waitpid(pid, 0)
    if os.WCOREDUMP(status):
        return "success"
    return "none" if os.WTERMSIG(status) == signal.SIGSEGV else "?"


def twin():
    """A child may crash, and this process goes on."""
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return "success" if os.waitpid(pid, 0)[1] else "it did not crash"
