# attack: meets a sibling over the loopback of the network namespace that they share
# expect: DENY(ENETUNREACH|EADDRNOTAVAIL|EPERM|EACCES|EAFNOSUPPORT)
# isolation: full
# unconfined: safe


def meet(family, kind, address):
    """Both ends are in this sandbox: what cannot reach itself reaches no sibling."""
    with socket.socket(family, kind) as a, socket.socket(family, kind) as b:
        a.bind((address, 0))
        if kind == socket.SOCK_STREAM:
            a.listen(1)
            b.connect(a.getsockname())
        else:
            b.sendto(b"x", a.getsockname())


def attack():
    saw = {}
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            saw["%s %s" % (address, kind.name)] = seen(meet, family, kind, address)
    return saw


def twin():
    """Within a sandbox processes speak over sockets of the file system."""
    path = TMP + "/own%d" % os.getpid()
    with socket.socket(socket.AF_UNIX) as a, socket.socket(socket.AF_UNIX) as b:
        a.bind(path)
        a.listen(1)
        word = seen(b.connect, path)
    os.unlink(path)
    return word
