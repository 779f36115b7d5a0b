"""Secrets and rules for https: the proxy ends TLS, puts the value in, and removes it from answers.

Clients are as they are; the server is at 127.0.0.2, which echoes what it gets.
"""
import base64
import contextlib
import gzip
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest

import droste

SERVER = "127.0.0.2"
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARIES = os.path.join(BUILD, "dspy", "bin", "python")
VALUE = "sk-live/0123+abcdefABCDEF"


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = []       # (port of the client, method, path, authorization)

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        authorization = self.headers.get("Authorization", "")
        self.seen.append((self.client_address[1], self.command, self.path, authorization))
        value = authorization.removeprefix("Bearer ")
        if self.path.startswith("/gzip"):
            self.answer(gzip.compress(value.encode()), ("Content-Encoding", "gzip"))
        elif self.path.startswith("/pieces"):
            self.pieces([value[:5], value[5:9], value[9:] + "!", "end"])
        elif self.path.startswith("/to"):
            self.send_response(302)
            self.send_header("Location", "/echo?" + value)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/close"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(value.encode())
            self.close_connection = True
        elif self.path == "/v1/chat/completions":
            self.stream(value)
        else:
            self.answer(json.dumps({
                "path": self.path, "body": body, "value": value, "headers": dict(self.headers),
                "base64": base64.b64encode(b"x" + value.encode()).decode()}).encode(),
                ("X-Echo", value))

    do_POST = do_PUT = do_GET

    def answer(self, body, *fields):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def pieces(self, pieces, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece.encode()))
            self.wfile.flush()
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def stream(self, value):
        self.pieces(['data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",'
                     '"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % word
                     for word in ("one", value, "two")] + ["data: [DONE]\n\n"],
                    "text/event-stream")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(context=None):
    server = http.server.ThreadingHTTPServer((SERVER, 0), Echo)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certify(place, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", place / "key.pem", "-out",
                    place / "cert.pem", "-days", "2", "-subj", "/CN=test", "-addext",
                    "subjectAltName=" + name], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "cert.pem", place / "key.pem")
    return context, str(place / "cert.pem")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(HOST:PORT of an https server, its certificate's file, HOST:PORT of an http server)"""
    context, cert = certify(tmp_path_factory.mktemp("secrets"), "IP:" + SERVER)
    with serving(context) as secure, serving() as plain:
        yield "%s:%d" % (SERVER, secure), cert, "%s:%d" % (SERVER, plain)


@pytest.fixture(scope="module")
def key():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", VALUE)
        yield


@pytest.fixture(scope="module", params=("full", "light"))
def interp(request, site, key):
    where, cert, plain = site
    with droste.Interpreter(allow_net=[where, plain], net_ca=cert, isolation=request.param,
                            secret="OPENAI_API_KEY for " + where) as made:
        try:
            made.start()
        except droste.UnsupportedError as e:
            pytest.skip("%s is not available here: %s" % (request.param, e))
        made.execute("""
import json, os, subprocess, urllib.request, urllib.error
HTTPS, HTTP = 'https://%s', 'http://%s'
KEY = os.environ['OPENAI_API_KEY']
def get(path, base=HTTPS, bearer=KEY, **fields):
    ask = urllib.request.Request(base + path, headers={'Authorization': 'Bearer ' + bearer,
                                                       **fields})
    try:
        answer = urllib.request.urlopen(ask)
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), dict(e.headers)
    return answer.status, answer.read().decode(), dict(answer.headers)
""" % (where, plain))
        yield made


def out(interp, code):
    result = interp.execute(code)
    assert result.error is None, result.error.traceback
    assert VALUE not in result.stdout and VALUE not in result.stderr
    return result.stdout


def last():
    return Echo.seen[-1][3]


def test_the_server_gets_the_value_and_the_code_gets_stars(interp):
    text = out(interp, "status, body, fields = get('/echo'); print(status, body, fields)")
    assert last() == "Bearer " + VALUE
    assert text.startswith("200") and text.count("*" * len(VALUE)) >= 3
    encoded = base64.b64encode(b"x" + VALUE.encode()).decode()
    assert encoded[4:20] not in text


def test_curl_gets_it_in(interp):
    assert "*" * len(VALUE) in out(interp, """
print(subprocess.run(["curl", "-sS", HTTPS + "/echo", "-H", "Authorization: Bearer " + KEY],
                     capture_output=True, text=True))""")
    assert last() == "Bearer " + VALUE


@pytest.mark.parametrize("code", [
    "get('/echo', X_Key=KEY, Cookie=KEY, bearer='none')", "get('/' + KEY, bearer='none')",
    "get('/?key=' + KEY, bearer='none')", "get('/', bearer=KEY + 'x')",
    "get('/', bearer='x' + KEY)",
    "urllib.request.urlopen(HTTPS + '/', KEY.encode()).read()",
    "get('/', base=HTTP)",                  # without TLS
])
def test_elsewhere_the_placeholder_stays_one(interp, code):
    Echo.seen.clear()
    out(interp, code)
    assert len(Echo.seen) == 1 and VALUE not in str(Echo.seen)
    out(interp, "get('/echo')")
    assert last() == "Bearer " + VALUE


def test_a_value_in_pieces_is_found(interp):
    stars = "*" * len(VALUE)
    assert out(interp, "print(get('/pieces')[1], get('/close')[1], get('/echo')[0])") == \
        "%s!end %s 200\n" % (stars, stars)


def test_a_redirect_does_not_tell_it(interp):
    assert "/echo?" + "*" * len(VALUE) in out(interp, "print(get('/to')[1])")


def test_compressed_answers_are_refused(interp):
    text = out(interp, "print(get('/gzip', **{'Accept-Encoding': 'gzip'})[:2])")
    assert text.startswith("(502") and "compressed" in text


def test_parts_of_an_answer_cannot_be_asked_for(interp):
    assert "'Range'" not in out(interp, "print(get('/echo', Range='bytes=0-9')[1])")
    assert "Range" in out(interp, "print(get('/echo', base=HTTP, Range='bytes=0-9')[1])")


def test_the_value_is_nowhere_in_the_guest(interp):
    """Not in its memory, its variables, its arguments, its files."""
    out(interp, "get('/echo')")
    found = out(interp, r"""
import re
needle = %r[::-1].encode()[::-1]
hits = 0
for line in open("/proc/self/maps"):
    span = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
    if not span or "[v" in line:
        continue
    with open("/proc/self/mem", "rb") as memory:
        try:
            memory.seek(int(span[1], 16))
            data = memory.read(int(span[2], 16) - int(span[1], 16))
        except (OSError, ValueError):
            continue
    hits += data.count(bytes(b ^ 1 for b in bytes(b ^ 1 for b in KEY.encode())))
print(hits > 0, [n for n, v in os.environ.items() if "sk-live" in v])
""" % "unused")
    assert found == "True []\n"


def test_forks_have_the_same_placeholder_and_no_value(interp):
    with interp.fork() as fork:
        assert out(fork, "print(KEY == os.environ['OPENAI_API_KEY'], get('/echo')[0])") == \
            "True 200\n"
    assert last() == "Bearer " + VALUE


def test_sessions_have_different_placeholders(site, key):
    where, cert, _ = site
    texts = set()
    for _ in range(2):
        with droste.Interpreter(allow_net=where, net_ca=cert,
                                secret="OPENAI_API_KEY for " + where) as interp:
            texts.add(out(interp, "import os; print(os.environ['OPENAI_API_KEY'])"))
    assert len(texts) == 2 and all(text.startswith("placeholder-") for text in texts)


def test_a_connection_is_kept(interp):
    Echo.seen.clear()
    assert out(interp, """
import http.client, ssl
host, port = HTTPS[8:].split(":")
def connect():
    made = http.client.HTTPSConnection("127.0.0.1", 3128, context=ssl.create_default_context())
    made.set_tunnel(host, int(port))
    return made
kept = connect()
sizes = []
for i in range(5):
    kept.request("POST" if i % 2 else "GET", "/echo", b"x" * 100000 if i % 2 else None,
                 {"Authorization": "Bearer " + KEY})
    sizes.append(len(kept.getresponse().read()) > 100000)
print(sizes)
""") == "[False, True, False, True, False]\n"
    assert len({row[0] for row in Echo.seen}) == 1 and len(Echo.seen) == 5


def test_another_host_or_name_within_the_tunnel_is_refused(interp):
    assert out(interp, """
def ask(host=None, name=None, first=b"GET /echo HTTP/1.1\\r\\n", protocols=None):
    import socket, ssl
    s = socket.create_connection(("127.0.0.1", 3128), 60)
    target = HTTPS[8:].encode()
    s.sendall(b"CONNECT " + target + b" HTTP/1.1\\r\\nHost: " + target + b"\\r\\n\\r\\n")
    s.recv(1000)
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    try:
        s = context.wrap_socket(s, server_hostname=name)
        s.sendall(first + b"Host: " + (host or target) + b"\\r\\n\\r\\n")
        return s.recv(1000).split()[1].decode()
    except ssl.SSLError as e:
        return e.reason or "alert 120"
print(ask(), ask(host=b"example.com"), ask(name="example.com"),
      ask(first=b"GET https://example.com/ HTTP/1.1\\r\\n"),
      ask(first=b"CONNECT example.com:443 HTTP/1.1\\r\\n"), ask(protocols=["h2"]),
      ask(protocols=["h2", "http/1.1"]))
""") == "200 400 TLSV1_UNRECOGNIZED_NAME 400 405 alert 120 200\n"


def test_a_server_without_a_trusted_certificate_gets_nothing(key, site, tmp_path):
    where, cert, _ = site
    Echo.seen.clear()
    context, other = certify(tmp_path, "IP:127.0.0.9")      # another name
    for ca, port in ((None, where), (other, None)):
        with serving(context) as own:
            at = port or "%s:%d" % (SERVER, own)
            with droste.Interpreter(allow_net=at, net_ca=ca,
                                    secret="OPENAI_API_KEY for " + at) as interp:
                text = out(interp, """
import os, urllib.request, urllib.error
try:
    urllib.request.urlopen(urllib.request.Request("https://%s/", headers={
        "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}))
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
""" % at)
                assert text.startswith("502") and "certificate is not accepted" in text
    assert Echo.seen == []


def test_methods_and_paths_of_https(site):
    where, cert, _ = site
    with droste.Interpreter(allow_net="GET https://%s/open/**" % where, net_ca=cert) as interp:
        assert out(interp, """
import urllib.request, urllib.error, subprocess
def ask(path, data=None):
    try:
        return urllib.request.urlopen("https://%s" + path, data).status
    except urllib.error.HTTPError as e:
        return e.code
print(ask("/open/x"), ask("/open/x?y"), ask("/open/x", b"z"), ask("/closed"), ask("/open/../x"),
      subprocess.run(["curl", "-s", "--socks5-hostname", "127.0.0.1:3128", "https://%s/closed",
                      "-o", "/dev/null", "-w", "%%{http_code}"], capture_output=True).stdout)
""" % (where, where)) == "200 200 403 403 403 b'403'\n"


def test_queries_and_basic_authentication(site, monkeypatch):
    where, cert, plain = site
    monkeypatch.setenv("ONE", VALUE)
    monkeypatch.setenv("TWO", VALUE + "2")
    with droste.Interpreter(allow_net=[where, plain], net_ca=cert, secret=[
            "ONE for %s query key" % where, "TWO for http://%s basic git" % plain]) as interp:
        out(interp, """
import os, subprocess, urllib.request
urllib.request.urlopen("https://%s/q?key=" + os.environ["ONE"]).read()
subprocess.run(["curl", "-s", "-u", "git:" + os.environ["TWO"], "http://%s/b"])
""" % (where, plain))
    assert Echo.seen[-2][2] == "/q?key=sk-live%2F0123%2BabcdefABCDEF"
    assert base64.b64decode(last().split()[1]).decode() == "git:" + VALUE + "2"


def test_git_authenticates_with_a_secret(site, monkeypatch):
    """As CI does, with a header, and as people do, with a password that a helper gives."""
    where, cert, _ = site
    monkeypatch.setenv("TOKEN", VALUE)
    with droste.Interpreter(allow_net=where, net_ca=cert, secret=[
            "TOKEN for %s basic x-access-token" % where, "TOKEN for " + where]) as interp:
        for words in ("'-c', 'http.extraHeader=Authorization: Bearer ' + TOKEN",
                      "'-c', 'http.extraHeader=Authorization: Basic ' + base64.b64encode("
                      "('x-access-token:' + TOKEN).encode()).decode()"):
            Echo.seen.clear()
            out(interp, """
import base64, os, subprocess
TOKEN = os.environ["TOKEN"]
subprocess.run(["git", %s, "ls-remote", "https://%s/a.git"], capture_output=True)
""" % (words, where))
            kind, _, value = last().partition(" ")
            plain = "x-access-token:" + VALUE
            assert value == (VALUE if kind == "Bearer" else
                             base64.b64encode(plain.encode()).decode()), Echo.seen


@pytest.mark.parametrize("client", ["requests", "httpx", "openai", "aiohttp"])
def test_a_client_of_python(site, key, client):
    where, cert, _ = site
    if not os.path.exists(LIBRARIES):
        pytest.skip("there is no %s: scripts/setup dspy" % LIBRARIES)
    code = {
        "requests": "print(requests.get(URL + '/echo', headers=BEARER).status_code)",
        "httpx": "print(httpx.get(URL + '/echo', headers=BEARER).status_code)",
        "openai": """
client = openai.OpenAI(base_url=URL + "/v1", max_retries=0)
print([piece.choices[0].delta.content for piece in client.chat.completions.create(
    model="m", stream=True, messages=[{"role": "user", "content": "?"}])])""",
        "aiohttp": """
import asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(URL + "/echo", headers=BEARER) as answer:
            print(answer.status)
asyncio.run(main())"""}[client]
    with droste.Interpreter(allow_net=where, net_ca=cert, python=LIBRARIES,
                            secret="OPENAI_API_KEY for " + where) as interp:
        text = out(interp, "import os, %s\nURL = 'https://%s'\nBEARER = {'Authorization': 'Bearer '"
                   " + os.environ['OPENAI_API_KEY']}\n%s" % (client, where, code))
    expected = "['one', '%s', 'two']\n" % ("*" * len(VALUE)) if client == "openai" else "200\n"
    assert text == expected and last() == "Bearer " + VALUE


def test_sources(site, tmp_path, monkeypatch):
    """The environment, under another name, and as it is when a session opens; a file, a command, a
    descriptor."""
    where, cert, _ = site
    (tmp_path / "key").write_text(VALUE + "-file\n")
    monkeypatch.setenv("OTHER", VALUE + "-other")
    reading, writing = os.pipe()
    os.write(writing, (VALUE + "-fd\n").encode())
    os.close(writing)
    for source, expected in (("=env:OTHER", "-other"), ("=env:OTHER", "-changed"),
                             ("=@%s/key" % tmp_path, "-file"),
                             ("=!printf %s-command" % VALUE, "-command"),
                             ("=fd:%d" % reading, "-fd")):
        with droste.Interpreter(allow_net=where, net_ca=cert,
                                secret="K%s for %s" % (source, where)) as interp:
            out(interp, """
import os, urllib.request
urllib.request.urlopen(urllib.request.Request("https://%s/", headers={
    "Authorization": "Bearer " + os.environ["K"]})).read()""" % where)
            assert last() == "Bearer " + VALUE + expected
        monkeypatch.setenv("OTHER", VALUE + "-changed")
    os.close(reading)


@pytest.mark.parametrize("secret, word", [
    ("K for a.example", "K is not set"), ("K=@/nonexistent for a.example", "nonexistent"),
    ("K=!exit 3 for a.example", "command failed"), ("K=!echo short for a.example", "5 bytes"),
    ("K=fd:999 for a.example", "descriptor"), ("K=%s for a.example" % VALUE, "never the value"),
    ("K for b.example", "--allow-net b.example:443"), (VALUE, "no destination")])
def test_a_wrong_secret_names_itself_and_not_its_value(secret, word, monkeypatch):
    if "b.example" in secret:
        monkeypatch.setenv("K", VALUE)
    with pytest.raises(droste.Error, match=word) as raised, \
            droste.Interpreter(allow_net="a.example:443", secret=secret) as interp:
        interp.start()
    assert VALUE not in str(raised.value)


def test_levels_that_cannot_keep_it_refuse_it(key):
    for more in ({"isolation": "process"}, {"isolation": "landlock"}, {"env": "modal"}):
        with pytest.raises(droste.UnsupportedError), \
                droste.Interpreter(allow_net="a.example:443", secret="OPENAI_API_KEY for a.example",
                                   **more) as interp:
            interp.start()


def test_the_server_that_is_silent_is_refused_in_time(key):
    with socket.create_server((SERVER, 0)) as silent:
        where = "%s:%d" % (SERVER, silent.getsockname()[1])
        with droste.Interpreter(allow_net=where, net_timeout=0.5,
                                secret="OPENAI_API_KEY for " + where) as interp:
            assert out(interp, """
import urllib.request, urllib.error
try:
    urllib.request.urlopen("https://%s/")
except urllib.error.HTTPError as e:
    print(e.code)
""" % where) == "504\n"
