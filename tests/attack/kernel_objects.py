# attack: has the kernel keep things that no limit of memory names: epolls, attributes, leases,
#     queues
# rows: 54
# expect: DENY(ELOOP|ENOSPC|EMFILE|ENOSYS|EPERM|EACCES|E2BIG|EINVAL|EOPNOTSUPP)
# isolation: full light landlock
# variants: epolls attributes leases queues
# settings: --open-files 200 --tmp-size 16M
# unconfined: unsafe


def epolls():
    """The kernel counts their watches for each user; a program that gets no more of them may
    end."""
    return {"epoll_create": raw(213, 1), "epoll_create1": raw(291, 0),
            "epoll_ctl": raw(233, 3, 1, 0, None),
            "epoll_wait": raw(232, 3, None, 1, 0),
            "epoll_pwait2": raw(441, 3, None, 1, None, None, 8)}


def attributes():
    """Extended attributes of files in memory are memory, too."""
    for file in range(100000):
        path = "%s/a%d" % (TMP, file)
        write(path)
        for n in range(64):
            set_attribute(path, "user.%d" % n, bytes(32 << 10))


def leases():
    import fcntl
    fd = os.open(TMP + "/leased", os.O_CREAT | os.O_RDONLY)
    fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)


def queues():
    """POSIX queues, watches of files and listeners for page faults, none of which a guest needs."""
    names = {"mq_open": (240, b"x", 0o102, 0o600, None), "inotify": (253,),
             "inotify_init1": (294, 0),
             "fanotify": (300, 0, 0), "userfaultfd": (323, 1), "memfd_secret": (447, 0),
             "io_uring": (425, 8, None)}
    return {name: raw(*arguments) for name, arguments in names.items()}


def attack(kind):
    if kind in ("queues", "epolls"):
        return queues() if kind == "queues" else epolls()
    return seen({"attributes": attributes, "leases": leases}[kind])


def twin():
    """What asyncio wants of an epoll, poll can do."""
    import asyncio

    async def talk():
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.sendall(b"hello\n")
        line = await reader.readline()
        writer.close()
        return line

    return "success" if asyncio.run(talk()) == b"hello\n" else "it heard nothing"
