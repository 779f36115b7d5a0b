# attack: reads the host's network, mounts and groups in its own directory of /proc, where it has no
#     namespaces of its own
# rows: 44
# expect: DENY(EACCES|ENOENT)
# isolation: landlock
# needs: landlock
# unconfined: safe


def attack():
    """By each name that the directory has, and its threads\' directories, which have all of it once
    more."""
    own = "/proc/%d" % os.getpid()
    thread = "%s/task/%d" % (own, os.getpid())
    files = ("net/tcp", "net/unix", "net/arp", "net/dev", "mounts", "mountinfo", "cgroup",
             "mountstats")
    saw = {at + "/" + file: seen(read, at + "/" + file) for file in files
           for at in ("/proc/self", "/proc/thread-self", own, thread)
           if HOST["level"] or os.path.exists(at + "/" + file)}
    saw["/proc/net"] = seen(read, "/proc/net/tcp")
    saw["/proc/mounts"] = seen(read, "/proc/mounts")
    return saw


def twin():
    """What tells of the process itself, and which threads and descriptors it has."""
    if not has_own_proc():
        return seen(read, "/proc/meminfo")
    words = {seen(read, "/proc/self/" + name)
             for name in ("status", "stat", "maps", "cmdline", "limits", "environ")}
    words |= {seen(os.listdir, "/proc/self/" + name) for name in ("fd", "task")}
    return "success" if words == {"success"} else str(words)
