# attack: looks for the other volumes, and for what the host keeps beside its own: upwards, under
#     what covers them, by other roots
# rows: 2
# expect: DENY(ENOENT|EACCES|EPERM|EROFS|ENOTDIR|ENOSYS|EINVAL|EBUSY|covered)
# isolation: full light landlock
# volume: v
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    saw = {"limits": seen(read, here + "/../limits"),
           "beside": seen(read, here + "/../../v/limits"),
           "by its name": seen(read, HOST["place"] + "/volumes/v/limits"),
           "all": seen(os.listdir, HOST["place"] + "/volumes"),
           "lock": seen(append, here + "/../lock"),
           "snapshots": seen(os.mkdir, here + "/../snapshots/mine")}
    for root in ("", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/..", here + "/.."):
        try:
            found = os.listdir(root + "/dev/shm")
            saw["under " + root] = "covered" if "v" not in found else "the volumes"
        except OSError as e:
            saw["under " + root] = errno.errorcode[e.errno]
    saw["uncover"] = raw("umount2", b"/dev/shm", 2)
    saw["uncover its own"] = raw("umount2", here.encode(), 2)
    saw["tree"] = raw("open_tree", -100, here.encode(), 1)
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    saw["handle"] = raw(303, -100, here.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    saw["again"] = seen(read, "/dev/shm/v/limits")
    return saw


def twin():
    """Its own is there."""
    return seen(os.listdir, os.environ["DROSTE_VOLUME"])
