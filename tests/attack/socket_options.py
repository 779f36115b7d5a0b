# attack: sets every socket option there could be: those that load programs into the kernel come
#     from a pool of all users
# rows: 113
# expect: DENY(EPERM|ENOSYS|all refused)
# isolation: full light landlock
# alike: the filter's list of options is one
# needs: seccomp
# unconfined: unsafe


SET = {1: {2, 6, 7, 8, 9, 10, 13, 15, 16, 18, 20, 21, 76, 83},
       6: {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 18, 25},
       0: {1, 2, 33, 34}, 41: {16, 18, 19, 26, 67}}   # what the list has, by level
GET_ONLY = {(1, 3), (1, 4), (1, 17), (1, 19), (1, 30), (1, 38), (1, 39), (1, 77), (6, 11), (6, 13)}


def attack():
    """A program is a single `ret`, and each is tried once: thousands have wedged a kernel. The
    other options get too few bytes to mean anything; without the list the kernel says so (EINVAL),
    and with it nobody is asked."""
    one, two = socket.socketpair()
    ret = (ctypes.c_uint64 * 1)(0x6 | 0xffff0000 << 32)
    program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(ret))
    saw = {}
    for name, number in {"filter": 26, "reuseport filter": 51}.items():
        saw[name] = raw(54, one.fileno(), 1, number, program, 16)
    for name, number in {"bpf": 50, "reuseport bpf": 52, "lock": 44, "zerocopy": 60,
                         "timestamping": 37}.items():
        saw[name] = raw(54, one.fileno(), 1, number, ctypes.byref(ctypes.c_int(-1)), 4)
    saw["ulp"] = raw(54, one.fileno(), 6, 31, b"tls", 4)
    expected = {"EPERM", "ENOSYS"}
    beyond = {(level, option): raw(54, one.fileno(), level, option, None, 0)
              for level in (*range(300), 0x10000)
              for option in range(128) if option not in SET.get(level, ())}
    saw["others"] = "all refused" if set(beyond.values()) <= expected else str(
        [(at, word) for at, word in beyond.items() if word not in expected][:5])
    asked = {(level, option): raw(55, one.fileno(), level, option, None, None)
             for level in range(300)
             for option in range(128) if option not in SET.get(level, ())
             and (level, option) not in GET_ONLY}
    saw["asked for"] = "all refused" if set(asked.values()) <= expected else str(
        [(at, word) for at, word in asked.items() if word not in expected][:5])
    return saw


def twin():
    """What the standard library sets, on TCP sockets where there are any."""
    import asyncio
    s = socket.socketpair()[0] if HOST["level"] == "landlock" else socket.socket()
    for option, value in ((socket.SO_REUSEADDR, 1), (socket.SO_KEEPALIVE, 1),
                          (socket.SO_RCVBUF, 65536),
                          (socket.SO_SNDBUF, 65536), (socket.SO_LINGER, struct.pack("ii", 1, 5)),
                          (socket.SO_RCVTIMEO, struct.pack("ll", 5, 0)), (socket.SO_BROADCAST, 1)):
        s.setsockopt(socket.SOL_SOCKET, option, value)
    if (s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        or not s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
        return "not set"
    one, two = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    if struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                          12))[1] != os.getuid():
        return "another peer"
    if socket.socket(fileno=two.detach()).family != socket.AF_UNIX:
        return "another family"
    if HOST["level"] == "landlock":
        return "success"
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8)
    six = socket.socket(socket.AF_INET6)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)

    async def serve():
        """The servers of asyncio, which set what they need."""
        async def echo(reader, writer):
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()
        server = await asyncio.start_server(echo, "0.0.0.0", 0, reuse_address=True, reuse_port=True)
        server.close()
        path = TMP + "/asyncio-%d" % os.getpid()
        local = await asyncio.start_unix_server(echo, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        local.close()
        return line
    return "success" if asyncio.run(serve()) == b"hello\n" else "it heard nothing"
