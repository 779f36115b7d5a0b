# attack: smuggles a second request through the proxy, or another target than the one it decided
#     about
# rows: 132 133 134 135 136 137 138 139 140 141 142 143
# expect: INERT(400|403|405|431|505|closed|one)
# isolation: full light
# settings: --allow-net 127.0.0.2:* --allow-net "GET http://127.0.0.3:*/open/**"
# unconfined: unsafe
PROXY = ("127.0.0.1", 3128)


def say(*pieces, pause=0.0):
    """Everything that the proxy answers to these bytes."""
    with socket.create_connection(PROXY, 5) as s:
        reply = b""
        try:
            for piece in pieces:
                s.sendall(piece)
                time.sleep(pause)
            while data := s.recv(65536):
                reply += data
        except OSError:
            pass
    return reply


def word(reply):
    """The proxy's refusal; or what the server has read: `one` request, or more."""
    if not reply.startswith(b"HTTP/1.1 "):
        return "closed"
    status = reply.split()[1].decode()
    if status != "200":
        return status
    return "one" if reply.count(b"HTTP/1.1") == 2 and b"/closed" not in reply else "success"


def attack():
    where = b"127.0.0.3:%d" % HOST["server_port"]
    free = b"127.0.0.2:%d" % HOST["server_port"]
    canary = b"127.0.0.1:%d" % HOST["tcp"]
    line = b"GET http://" + where + b"/open/x HTTP/1.1\r\n"
    host = b"Host: " + where + b"\r\n"
    second = b"GET http://" + where + b"/closed HTTP/1.1\r\n" + host + b"\r\n"
    tries = {
        "132 two lengths": host + b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + second,
        "132 equal lengths": host + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + second,
        "132 a list of lengths": host + b"Content-Length: 0, 40\r\n\r\n" + second,
        "132 a signed length": host + b"Content-Length: +0\r\n\r\n" + second,
        "133 both": host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                    + second,
        "133 identity": host + b"Transfer-Encoding: identity\r\n\r\n" + second,
        "133 twice": host + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + second,
        "133 a tab": host + b"Transfer-Encoding:\tchunked\x0b\r\n\r\n0\r\n\r\n" + second,
        "133 a space before the colon": host + b"Transfer-Encoding : chunked\r\n\r\n" + second,
        "134 extension": host + b"Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n" + second,
        "134 a bare LF": host + b"Transfer-Encoding: chunked\r\n\r\n0\n\n" + second,
        "134 trailers": host + b"Transfer-Encoding: chunked\r\n\r\n0\r\nHost: x\r\n\r\n" + second,
        "134 too large": host + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n"
                         + second,
        "135 a bare LF": host + b"X: y\n\n" + second,
        "135 a bare CR": host + b"X: y\r\r" + second + b"\r\n\r\n",
        "135 folded": host + b"X: y\r\n Host: z\r\n\r\n",
        "135 a NUL": host + b"X: \0\r\n\r\n",
        "136 two hosts": host + b"Host: " + canary + b"\r\n\r\n",
        "136 another host": b"Host: " + canary + b"\r\n\r\n",
        "136 no host": b"\r\n",
        "137 pipelined": host + b"\r\n" + second,
        "138 hidden": host + b"Connection: Host, Content-Length\r\nContent-Length: 0\r\n\r\n",
        "139 upgrade": host + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + second,
        "139 h2c": host + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                          b"HTTP2-Settings: AAMAAABk\r\n\r\n" + second,
    }
    saw = {name: word(say(line + rest)) for name, rest in tries.items()}
    for name, target in (("a CR", b"/open/x\rHost:"), ("a LF", b"/open/x\nHost:"),
                         ("a space", b"/open/x HTTP/1.1\tX"), ("a tab", b"/open/\tx"),
                         ("a fragment", b"/open/x#/closed"), ("a NUL", b"/open/\0")):
        saw["140 path with " + name] = word(say(
            b"GET http://" + where + target + b" HTTP/1.1\r\n" + host + b"\r\n"))
    for name, authority in (("a user", b"127.0.0.2@" + canary), ("two", free + b"@" + canary),
                            ("a backslash", free + b"\\@" + canary), ("a slash", b"/" + canary),
                            ("a question", canary + b"?@" + free),
                            ("a comma", free + b"," + canary)):
        saw["141 authority with " + name] = word(say(
            b"GET http://" + authority + b"/ HTTP/1.1\r\nHost: " + free + b"\r\n\r\n"))
    saw["142 a CONNECT to another host"] = word(say(
        b"CONNECT " + free + b" HTTP/1.1\r\nHost: " + canary + b"\r\n\r\n"))
    saw["142 a CONNECT with a body"] = word(say(
        b"CONNECT " + free + b" HTTP/1.1\r\nHost: " + free + b"\r\nContent-Length: 9\r\n\r\n"))
    saw["142 a CONNECT with a path"] = word(say(
        b"CONNECT " + free + b"/x HTTP/1.1\r\nHost: " + free + b"\r\n\r\n"))
    saw["143 HTTP/2"] = word(say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)))
    saw["143 HTTP/0.9"] = word(say(b"GET http://" + where + b"/open/x\r\n\r\n"))
    saw["143 TLS"] = word(say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"))
    saw["143 SOCKS 4"] = word(say(b"\4\1\0\x50\x7f\0\0\1\0\r\n\r\n"))
    saw["143 a long head"] = word(say(line + host + b"X: " + b"y" * 40000 + b"\r\n\r\n"))
    saw["143 many fields"] = word(say(line + host + b"X: y\r\n" * 200 + b"\r\n"))
    saw["143 TRACE"] = word(say(
        b"TRACE http://" + free + b"/ HTTP/1.1\r\nHost: " + free + b"\r\n\r\n"))
    return saw


def twin():
    """A request that is as it should be passes, also in pieces, and with chunks."""
    if HOST["level"] is None:
        with socket.create_connection(("127.0.0.2", HOST["server_port"]), 5):
            return "success"
    where = b"127.0.0.3:%d" % HOST["server_port"]
    free = b"127.0.0.2:%d" % HOST["server_port"]
    head = b"GET http://" + where + b"/open/x HTTP/1.1\r\nHost: " + where + b"\r\n\r\n"
    post = b"POST http://" + free + b"/ HTTP/1.1\r\nHost: " + free + \
        b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    words = [word(say(head)), word(say(head[:9], head[9:40], head[40:], pause=0.02)),
             word(say(post))]
    return "success" if words == ["one"] * 3 else str(words)
