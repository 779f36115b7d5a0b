# attack: opens sockets of protocols for which the kernel would load modules: SCTP, MPTCP, DCCP,
#     L2TP, SMC, ICMP
# rows: 38
# expect: DENY(ENOSYS)
# expect @landlock: DENY(EPERM)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


PROTOCOLS = {"sctp": (1, 132), "sctp in packets": (5, 132), "mptcp": (1, 262), "dccp": (6, 33),
             "smc": (1, 256),
             "udplite": (2, 136), "l2tp": (2, 115), "icmp": (2, 1), "tcp in datagrams": (2, 6)}


def attack():
    """The kernel's own answer would be another one, whether it has the protocol or not."""
    return {"%s %s" % (name, family.name): raw("socket", family, *numbers)
            for name, numbers in PROTOCOLS.items()
            for family in (socket.AF_INET, socket.AF_INET6)}


def twin():
    """TCP and UDP by their names are sockets as ever; among the host's files there are pairs
    alone."""
    if HOST["level"] == "landlock":
        return seen(socket.socketpair)
    words = {seen(socket.socket, family, kind, number)
             for family in (socket.AF_INET, socket.AF_INET6)
             for kind, number in ((1, 0), (1, 6), (2, 0), (2, 17))}
    return "success" if words == {"success"} else str(words)
