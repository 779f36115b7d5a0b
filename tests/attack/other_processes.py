# attack: reads memory and environment of other processes through /proc
# rows: 34
# expect: DENY(ENOENT|EACCES|EPERM|ESRCH)
# isolation: full light landlock
# unconfined: safe


def attack():
    """At once: a keeper that is not small yet would show what it holds."""
    saw = {}
    for pid in {1, os.getppid(), HOST["pid"], HOST["parent"]}:
        for name in ("fd", "mem", "environ", "maps", "stack", "root", "map_files", "ns/mnt", "fd/0",
                     "fd/1", "fd/3"):
            path = "/proc/%d/%s" % (pid, name)
            listing = name in ("fd", "root", "map_files")
            how = (os.readlink if name.startswith(("ns/", "fd/")) else os.listdir if listing
                   else read)
            saw[path] = seen(how, path)
            if saw[path] == "EIO":      # mem, opened: at address 0 there is nothing
                saw[path] = "success"
    return saw


def twin():
    return seen(read, "/proc/self/maps" if has_own_proc() else "/proc/meminfo")
