# attack: overwrites the host's program through /proc/self/exe (CVE-2019-5736)
# rows: 12
# expect: DENY(EROFS|ETXTBSY|EACCES|EPERM|ENOENT|ELOOP)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    saw = {path: seen(append, path) for path in
           ("/proc/self/exe", "/proc/1/exe", "/proc/%d/exe" % os.getppid(), sys.executable,
            HOST["droste"])}
    fd = os.open(sys.executable, os.O_RDONLY)
    saw["fd"] = seen(append, "/proc/self/fd/%d" % fd)
    saw["O_PATH"] = seen(append, "/proc/self/fd/%d" % os.open("/proc/self/exe", os.O_PATH))
    saw["chmod"] = seen(os.chmod, "/proc/self/exe", 0o777)
    return saw


def twin():
    """It may run what is there, and write to a copy."""
    import shutil
    mine = shutil.copyfile(sys.executable, TMP + "/exe%d" % os.getpid())
    return seen(append, mine)
