# attack: goes to the host's root by way of /proc: root, cwd and fd of itself and of process 1
# rows: 10
# expect: DENY(ENOENT|EACCES|EPERM|ENOTDIR)
# isolation: full light landlock
# unconfined: safe


def attack():
    paths = ["/proc/%s/%s" % (pid, link) + HOST["secret"] for pid in ("self", "1", "thread-self")
             for link in ("root", "cwd", "root/proc/1/root", "root/..")]
    paths += ["/proc/%d/root" % HOST["pid"], "/proc/%d/cwd" % HOST["parent"]]
    paths += ["/proc/%s/root/etc/shadow" % pid for pid in ("self", "1")]
    paths += ["/proc/%s/fd/%d/../../../../..%s" % (pid, fd, HOST["secret"])
              for pid in ("self", "1") for fd in range(10)]
    return {path: seen(os.listdir if os.path.isdir(path) else read, path) for path in paths}


def twin():
    return seen(os.listdir, "/proc/self/root/usr")
