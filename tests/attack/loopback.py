# attack: meets a sibling over the loopback of the network namespace that they share
# rows: 72
# expect: DENY(ENETUNREACH|EADDRNOTAVAIL|EPERM|EACCES|EAFNOSUPPORT)
# isolation: full light landlock
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
    """Within a sandbox processes speak over sockets of the file system, or over pairs."""
    return connect_own(TMP + "/own%d" % os.getpid())
