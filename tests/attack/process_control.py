# attack: undoes what protects the process: dumpable, ptracer, securebits, no new privileges
# rows: 40
# expect: DENY(EPERM|EINVAL|ENOSYS|EACCES)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def attack():
    return {"no_new_privs off": raw("prctl", 38, 0, 0, 0, 0) if HOST["level"] else "success",
            "dumpable": raw("prctl", 4, 1, 0, 0, 0),
            "ptracer": raw("prctl", 0x59616d61, -1, 0, 0, 0),
            "mm": raw("prctl", 35, 1, 4096, 0, 0), "securebits": raw("prctl", 28, 0, 0, 0, 0)}


def twin():
    return raw("prctl", 15, b"name", 0, 0, 0)
