# attack: renames a directory out of the way and back to write what may not be written
# rows: 8
# expect: DENY(EROFS|EXDEV|EACCES|EPERM|EBUSY|ENOENT)
# expect @landlock: DENY(EROFS|EXDEV|EACCES|EPERM|EBUSY|ENOENT|EINVAL)
# isolation: full light landlock
# unconfined: safe


def attack():
    # outside, root must not do it to /usr
    here = "/usr" if HOST["level"] else HOST["home"] + "/a"
    if not HOST["level"]:
        os.mkdir(here)

    def dance():
        os.rename(here, here + "-c")
        write(here + "-c/droste-attack")
        os.rename(here + "-c", here)
        os.unlink(here + "/droste-attack")
    saw = {"dance": seen(dance)}
    if not HOST["level"]:
        os.rmdir(here)
        return saw
    for name in (HOST["home"], "/etc", "/dev", "/tmp", "/proc", "/usr/bin", "/usr/lib/python3"):
        saw[name] = seen(os.rename, name, name + "-c")
        saw[name + " to tmp"] = seen(os.rename, name, TMP + "/c")
    return saw


def twin():
    os.makedirs(TMP + "/a%d" % os.getpid())
    os.rename(TMP + "/a%d" % os.getpid(), TMP + "/c%d" % os.getpid())
    return seen(write, TMP + "/c%d/b" % os.getpid())
