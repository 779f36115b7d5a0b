# attack: reads memory and environment of other processes through /proc
# expect: DENY(ENOENT|EACCES|EPERM|ESRCH)
# isolation: full light landlock
# unconfined: safe


def attack():
    saw = {}
    for pid in {HOST["pid"], HOST["parent"], os.getppid(), 1}:
        for name in ("mem", "environ", "maps", "fd", "stack", "root", "map_files", "ns/mnt"):
            path = "/proc/%d/%s" % (pid, name)
            listing = name in ("fd", "root", "map_files")
            saw[path] = seen(os.readlink if name == "ns/mnt" else os.listdir if listing else read, path)
            if saw[path] == "EIO":      # mem, opened: at address 0 there is nothing
                saw[path] = "success"
    return saw


def twin():
    return seen(read, "/proc/self/maps")
