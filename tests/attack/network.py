# attack: reaches out: TCP, UDP, ICMP, DNS, IPv6
# rows: 68
# expect: DENY(ENETUNREACH|EPERM|EACCES|EAFNOSUPPORT|gaierror|EADDRNOTAVAIL|EPROTONOSUPPORT|ENOSYS)
# isolation: full light landlock
# unconfined: safe


def udp(family, address):
    socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", address)


def tcp(address):
    s = socket.socket()
    s.settimeout(3)
    s.connect(address)


def attack():
    saw = {"tcp": seen(tcp, ("192.0.2.1", 80)) if HOST["level"] else "-",
           "udp": seen(udp, socket.AF_INET, ("192.0.2.1", 53)),
           "broadcast": seen(udp, socket.AF_INET, ("255.255.255.255", 53)),
           "udp6": seen(udp, socket.AF_INET6, ("2001:db8::1", 53)),
           "icmp": seen(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 1),
           "raw icmp": seen(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
           "host's udp": seen(udp, socket.AF_INET, ("127.0.0.1", HOST["udp"]))}
    if HOST["level"]:
        saw["dns"] = seen(socket.getaddrinfo, "example.com", 80)
    return saw


def twin():
    """Its own pipes and socket pairs, and names of the file of hosts."""
    one, two = socket.socketpair()
    one.send(b"x")
    return seen(two.recv, 1)
