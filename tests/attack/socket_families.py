# attack: opens sockets of families that reach into the kernel
# rows: 38
# expect: DENY(EAFNOSUPPORT|EPERM|EACCES|ENOSYS)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def attack():
    families = {"packet": (17, 3, 0), "netlink": (16, 3, 12), "netlink route": (16, 3, 0),
                "vsock": (40, 1, 0), "alg": (38, 5, 0), "key": (15, 3, 2), "raw": (2, 3, 255),
                "bluetooth": (31, 3, 0), "can": (29, 3, 1), "tipc": (30, 5, 0)}
    return {name: seen(socket.socket, *numbers) for name, numbers in families.items()}


def twin():
    return seen(socket.socketpair)
