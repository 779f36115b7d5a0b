# attack: writes to /usr, to the standard library and to what Python runs at its start
# rows: 14
# expect: DENY(EROFS|EACCES|EPERM|ENOENT)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    library = os.path.dirname(os.__file__)
    saw = {path: seen(append, path) for path in
           ("/usr/x", "/usr/bin/x", "/usr/bin/env", os.__file__, library + "/sitecustomize.py",
            library + "/os.pyc", "/usr/lib/python3/dist-packages/x.pth", "/etc/passwd", "/etc/x",
            "/etc/ld.so.preload", "/etc/ld.so.cache", "/x", "/dev/x", "/lib64/x")}
    saw["chmod"] = seen(os.chmod, "/usr/bin/env", 0o777)
    saw["unlink"] = seen(os.unlink, "/usr/bin/env")
    saw["utime"] = seen(os.utime, "/usr/bin/env")
    saw["setxattr"] = seen(set_attribute, "/usr/bin/env", "user.x", b"x")
    return saw


def twin():
    read(os.__file__)
    return seen(write, TMP + "/sitecustomize.py")
