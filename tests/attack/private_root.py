# attack: with a writable root: writes to system directories, to /proc and /dev, and to what lies
#     under them; takes mounts away, changes the root, makes devices, gets root's id
# rows: 14 15 17
# expect: DENY(EROFS|EACCES|EPERM|ENOENT|EBUSY|ENOSYS|EINVAL|EXDEV)
# isolation: full light
# settings: --root private
# unconfined: unsafe


def attack():
    library = os.path.dirname(os.__file__)
    saw = {path: seen(append, path) for path in
           ("/usr/x", "/bin/env", "/usr/bin/env", os.__file__, library + "/sitecustomize.py",
            "/etc/ld.so.cache", "/dev/x", "/dev/shm/../x", "/proc/self/oom_score_adj",
            "/proc/self/comm", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
            "/proc/self/uid_map")}
    usr = ctypes.c_char_p(b"/usr")
    saw["chmod"] = seen(os.chmod, "/usr/bin/env", 0o777)
    saw["replace /usr"] = seen(os.rename, "/usr", "/usr-before")
    saw["replace /proc"] = seen(os.rename, "/proc", "/proc-before")
    saw["replace /dev"] = seen(os.rename, "/dev", "/dev-before")
    saw["link"] = seen(os.link, "/usr/bin/env", "/tmp/env")
    saw["umount2"] = raw("umount2", usr, 2)
    saw["umount2 /proc"] = raw("umount2", b"/proc", 2)
    saw["remount"] = raw("mount", b"", usr, None, 0x20 | 0x1000, None)
    saw["pivot_root"] = raw("pivot_root", b"/tmp", b"/tmp")
    saw["chroot"] = raw("chroot", b"/tmp")
    saw["device"] = raw("mknod", b"/tmp/disk", 0o60666, 0xfe00)
    saw["root"] = raw("setuid", 0)
    return saw


def twin():
    """All else is the sandbox's own: files in /etc, new directories, homes. Outside it is a place
    of the driver's that is written to."""
    root = TMP + "/root" if HOST["level"] is None else ""
    paths = ["/home/user/x", "/workspace/a/x"]
    if not HOST["rootfs"]:      # its own directories are read-only
        paths += ["/etc/x", "/root/x", "/var/tmp/x"]
    for path in paths:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        append(root + path)
    os.rename(root + "/workspace", root + "/code")
    if HOST["level"] is not None and not HOST["rootfs"]:
        append("/etc/passwd")
    return seen(write, root + "/x")
