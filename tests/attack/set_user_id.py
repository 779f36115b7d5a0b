# attack: becomes another user: setuid, and programs of the host that have the set-user-id bit
# rows: 48
# expect: DENY(EPERM|EINVAL|none|ENOSYS)
# isolation: full light landlock
# unconfined: safe


def through(program):
    """The effective user of a program with the bit: the owner of its directory in /proc."""
    import subprocess
    try:
        p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    except OSError as e:
        return "none"
    try:
        return "none" if os.stat("/proc/%d" % p.pid).st_uid == os.getuid() != 0 else "success"
    finally:
        p.kill()
        p.wait()


def attack():
    saw = {"setuid": in_child(raw, "setuid", 0)}
    for name, call in (("setgid", lambda: os.setgid(0)), ("setreuid", lambda: os.setreuid(0, 0)),
                       ("setgroups", lambda: os.setgroups([0])),
                       ("setresuid", lambda: os.setresuid(12345, 12345, 12345))):
        saw[name] = in_child(seen, call)
    for program in ("/usr/bin/passwd", "/usr/bin/su", "/usr/bin/mount", "/usr/bin/newgrp"):
        if os.path.exists(program):
            saw[program] = in_child(through, program)
    return saw


def twin():
    return seen(os.setuid, os.getuid())
