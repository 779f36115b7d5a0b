# attack: with a loopback network: reaches the host's services and what lies beyond, changes the
#     network, listens to it
# rows: 69 72
# expect: DENY(ENETUNREACH|EACCES|EPERM|ECONNREFUSED|EAFNOSUPPORT|ENOSYS|EINVAL|EROFS|ENOENT)
# isolation: full light
# settings: --loopback yes
# unconfined: unsafe
import fcntl
import struct

SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916


def connect(address):
    s = socket.socket()
    s.settimeout(1)
    s.connect(address)


def change(number):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, number, struct.pack("16sH22x", b"lo", 0))


def attack():
    saw = {name: seen(connect, address) for name, address in
           (("the host's loopback", ("127.0.0.1", HOST["tcp"])), ("any", ("0.0.0.0", HOST["tcp"])),
            ("metadata", ("169.254.169.254", 80)), ("beyond", ("192.0.2.1", 80)))}
    saw["take it down"] = seen(change, SIOCSIFFLAGS)
    saw["its address"] = seen(change, SIOCSIFADDR)
    for name, family, kind in (("packets", 17, socket.SOCK_RAW),
                               ("raw", socket.AF_INET, socket.SOCK_RAW),
                               ("netlink", 16, socket.SOCK_RAW)):
        saw[name] = seen(socket.socket, family, kind)
    saw["buffers"] = seen(write, "/proc/sys/net/ipv4/tcp_rmem", b"4096 65536 33554432")
    return saw


def twin():
    """Its own programs meet there, and what a connection holds is bounded."""
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        a.listen(1)
        b.connect(a.getsockname())
        c = a.accept()[0]
        b.setblocking(False)
        held = 0
        try:
            while held < 1 << 20:
                held += b.send(bytes(65536))
        except BlockingIOError:
            pass
        c.close()
    return "success" if HOST["level"] is None or held < 1 << 20 else "%d bytes" % held
