# attack: sends and asks for urgent data over UNIX sockets (CVE-2025-38236), also to the host
# rows: 38
# expect: DENY(EPERM)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


MSG_OOB = 1


def message(text):
    """A struct msghdr; all that it points to is kept beside it."""
    held = ctypes.create_string_buffer(text, 64)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(held), max(len(text), 1))
    header = (ctypes.c_uint64 * 8)(0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0)
    return header, held, vector


def every_call(fd, other, flags):
    sent, got, many = message(b"x"), message(b""), message(b"x")
    space = ctypes.create_string_buffer(8)
    return {"sendto": raw("sendto", fd, b"x", 1, flags, None, 0),
            "sendmsg": raw("sendmsg", fd, sent[0], flags),
            "sendmmsg": raw("sendmmsg", fd, many[0], 1, flags),
            "recvfrom": raw("recvfrom", other, space, 1, flags, None, None),
            "recvmsg": raw("recvmsg", other, got[0], flags),
            "recvmmsg": raw("recvmmsg", other, message(b"")[0], 1, flags, None)}


def attack():
    one, two = socket.socketpair()
    saw = every_call(one.fileno(), two.fileno(), MSG_OOB)
    saw["with others"] = raw("sendto", one.fileno(), b"x", 1, MSG_OOB | 0x4040, None, 0)
    saw["to the host"] = raw("sendto", 3, b"x", 1, MSG_OOB, None, 0)
    return saw


def twin():
    """The same calls, of what is not urgent: three are sent and three received."""
    one, two = socket.socketpair()
    words = set(every_call(one.fileno(), two.fileno(), 0).values())
    return "success" if words == {"success"} else str(words)
