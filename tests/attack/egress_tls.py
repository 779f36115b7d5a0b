# attack: in a tunnel where the proxy ends TLS for its rules, reaches another host, path or method
#     than the one that it decided about
# rows: 175 176 177 178 179 180 181 182 183 184 185 186 187 188 189 190
# expect: INERT(400|403|405|429|501|505|alert|closed|refused)
# isolation: full light
# settings: --allow-net "GET https://127.0.0.2:TELLER/plain/**" --net-ca PLACE/cert.pem
# unconfined: unsafe
import ssl
import warnings

warnings.simplefilter("ignore")


def where():
    return b"127.0.0.2:%d" % HOST["teller"]


def tunnel(through="connect"):
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    if through == "socks":
        s.sendall(b"\5\1\0")
        s.recv(2)
        s.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.2") + struct.pack(">H", HOST["teller"]))
    else:
        s.sendall(b"CONNECT " + where() + b" HTTP/1.1\r\nHost: " + where() + b"\r\n\r\n")
    s.recv(1000)
    return s


def say(data, name=None, protocols=None, newest=None, answers=1, through="connect"):
    """The status of the last of these answers, `alert`, or `closed`."""
    context = ssl.create_default_context()
    context.check_hostname = False
    if newest:
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    if protocols:
        context.set_alpn_protocols(protocols)
    reply = b""
    try:
        with context.wrap_socket(tunnel(through), server_hostname=name) as s:
            s.sendall(data)
            while reply.count(b"HTTP/1.1 ") < answers and (piece := s.recv(65536)):
                reply += piece
    except ssl.SSLError as e:
        return "closed" if "EOF" in str(e) else "alert"
    except OSError:
        return "closed"
    last = reply.split(b"HTTP/1.1 ")[-1][:3].decode()
    return "success" if last == "200" else last or "closed"


def bare(data):
    """What comes of bytes that are not TLS."""
    with tunnel() as s:
        try:
            s.sendall(data)
            reply = s.recv(1000)
        except OSError:
            reply = b""
    return "success" if b"200" in reply else "closed"


def attack():
    host = b"Host: " + where() + b"\r\n"
    line, end = b"GET /plain/x HTTP/1.1\r\n", b"\r\n"
    good, bad = line + host + end, b"GET /got HTTP/1.1\r\n" + host + end
    saw = {
        "175 another name in the handshake": say(good, name="example.com"),
        "175 a name like it": say(good, name="127.0.0.2.example.com"),
        "176 another Host": say(line + b"Host: example.com\r\n\r\n"),
        "176 another port": say(line + b"Host: 127.0.0.2:1\r\n\r\n"),
        "176 two Hosts": say(line + host + b"Host: example.com\r\n\r\n"),
        "176 no Host": say(line + end),
        "177 a whole URL": say(b"GET https://example.com/plain/x HTTP/1.1\r\n" + host + end),
        "177 one of plain HTTP": say(
            b"GET http://" + where() + b"/plain/x HTTP/1.1\r\n" + host + end),
        "178 a tunnel within": say(b"CONNECT " + where() + b" HTTP/1.1\r\n" + host + end),
        "179 HTTP/2 by negotiation": say(good, protocols=["h2"]),
        "180 HTTP/2 by prior knowledge": say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
        "181 another path": say(bad),
        "181 another path by dots": say(b"GET /plain/../got HTTP/1.1\r\n" + host + end),
        "181 encoded dots": say(b"GET /plain/%2e%2e/got HTTP/1.1\r\n" + host + end),
        "181 a backslash": say(b"GET /plain/..\\got HTTP/1.1\r\n" + host + end),
        "182 another method": say(b"POST /plain/x HTTP/1.1\r\n" + host
                                  + b"Content-Length: 0\r\n\r\n"),
        "182 TRACE": say(b"TRACE /plain/x HTTP/1.1\r\n" + host + end),
        "183 in the second request": say(good + bad, answers=2),
        "183 in the third request": say(good + good + bad, answers=3),
        "184 both lengths": say(line + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
                                              b"\r\n0\r\n\r\n" + bad, answers=2),
        "184 a bare LF": say(line + host + b"X: y\n\n" + bad, answers=2),
        "184 behind a body": say(line + host + b"Content-Length: 3\r\n\r\nabc" + bad, answers=2),
        "184 behind chunks": say(line + host + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
                                 b"\r\n" + bad, answers=2),
        "185 an upgrade": say(line + host + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                              + bad, answers=2),
        "186 TLS 1.1": say(good, newest=ssl.TLSVersion.TLSv1_1),
        "186 TLS 1.0": say(good, newest=ssl.TLSVersion.TLSv1),
        "187 plain HTTP": bare(good), "187 SSH": bare(b"SSH-2.0-OpenSSH_9.2\r\n"),
        "187 noise": bare(b"\x16\x03\x01" + bytes(range(256)) * 20),
        "188 over SOCKS": say(bad, through="socks"),
        "188 over SOCKS, another Host": say(line + b"Host: x\r\n\r\n", through="socks"),
        "189 a CR in the path": say(b"GET /plain/x\r/got HTTP/1.1\r\n" + host + end),
        "189 a field in the path": say(b"GET /plain/x\r\nHost: y HTTP/1.1\r\n" + host + end),
    }
    # Handshakes that never end, more than may be open at once, must not stop others.
    idle = [tunnel() for _ in range(20)]
    saw["190 beside idle handshakes"] = "refused" if say(good) == "success" else "success"
    for s in idle:
        s.close()
    return saw


def twin():
    """Requests that a rule allows pass, also several over one connection, and over SOCKS."""
    if HOST["level"] is None:
        with socket.create_connection(("127.0.0.2", HOST["teller"]), 5):
            return "success"
    good = b"GET /plain/x HTTP/1.1\r\nHost: " + where() + b"\r\n\r\n"
    words = [say(good), say(good * 3, answers=3), say(good, protocols=["h2", "http/1.1"]),
             say(good, through="socks"), say(good, newest=ssl.TLSVersion.TLSv1_2)]
    return "success" if words == ["success"] * 5 else str(words)
