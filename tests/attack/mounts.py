# attack: remounts the read-only root, binds over it, unmounts it, mounts proc; old and new
#     interface
# rows: 15
# expect: DENY(EPERM|EINVAL|ENOSYS|EBADF|EROFS)
# isolation: full light landlock
# unconfined: unsafe


AT_FDCWD = -100


def attack():
    usr, tmp = ctypes.c_char_p(b"/usr"), ctypes.c_char_p(b"/tmp")
    attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)      # clear MOUNT_ATTR_RDONLY
    return {"remount": raw("mount", b"", usr, None, 0x20 | 0x1000, None),
            "bind": raw("mount", b"/tmp", usr, None, 0x1000, None),
            "move": raw("mount", b"/tmp", usr, None, 0x2000, None),
            "shared": raw("mount", None, b"/", None, 0x4000 | 0x100000, None),
            "umount2": raw("umount2", usr, 2),
            "umount2 /tmp": raw("umount2", tmp, 2),
            "umount2 /proc": raw("umount2", b"/proc", 2),
            "proc": raw("mount", b"proc", tmp, b"proc", 0, None),
            "tmpfs": raw("mount", b"tmpfs", tmp, b"tmpfs", 0, None),
            "open_tree": raw("open_tree", AT_FDCWD, b"/", 1),
            "fsopen": raw("fsopen", b"proc", 0),
            "fsmount": raw("fsmount", -1, 0, 0),
            "move_mount": raw("move_mount", AT_FDCWD, b"/tmp", AT_FDCWD, b"/usr", 0),
            "mount_setattr": raw("mount_setattr", AT_FDCWD, b"/", 0x8000, attributes, 32)}


def twin():
    return seen(write, TMP + "/not-a-mount")
