# attack: watches what others do with the shared /usr and with devices: inotify, dnotify, fanotify,
#     leases, handles
# rows: 28
# expect: DENY(EPERM|EACCES|ENOSYS|EINVAL|nothing|EAGAIN)
# isolation: full light landlock
# unconfined: unsafe


def inotify():
    fd = libc.inotify_init1(0o4000)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    try:
        for path in (b"/usr/bin", b"/usr/lib", b"/dev", b"/proc"):
            libc.inotify_add_watch(fd, path, 0xfff)
        time.sleep(0.3)     # whatever else happens on this machine meanwhile
        os.read(fd, 4096)
        return "success"
    except BlockingIOError:
        return "nothing"
    finally:
        os.close(fd)


def attack():
    import fcntl
    fd = os.open("/usr/bin/env", os.O_RDONLY)
    return {"inotify": inotify(), "fanotify_init": raw(300, 0, 0),
            "dnotify": seen(fcntl.fcntl, os.open("/usr/bin", os.O_RDONLY), 0x402, 0x80000001),
            "lease": seen(fcntl.fcntl, fd, 1024, fcntl.F_RDLCK),
            "name_to_handle_at": raw(303, -100, b"/usr/bin/env", None, None, 0)}


def twin():
    return seen(os.listdir, "/usr/bin")
