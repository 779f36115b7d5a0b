"""Egress by permission, `allow_net`: clients as they are, against servers of this machine.

The servers are at 127.0.0.2, which rules list by address: `no_proxy` has 127.0.0.1.
"""
import contextlib
import hashlib
import http.server
import os
import random
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import zipfile

import pytest

import droste

SERVER = "127.0.0.2"
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARIES = os.path.join(BUILD, "dspy", "bin", "python")


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files; echoes what is posted; streams; redirects."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/chat/completions":
            self.stream()
            return
        self.answer(hashlib.sha256(body).hexdigest().encode())

    do_PUT = do_POST

    def do_GET(self):
        if self.path == "/host":
            self.answer(self.headers["Host"].encode())
        elif self.path == "/headers":
            self.answer(str(self.headers).encode())
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", "http://" + self.path[4:])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/bytes/"):
            self.answer(bytes(int(self.path[7:])))
        else:
            super().do_GET()

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self):
        """A model's answer, in pieces; the second comes only after the client has had the first."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in ("one", "two"):
            data = ('data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",'
                    '"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % word).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_wheel(directory):
    """A package without contents worth mentioning, and an index of one."""
    place = directory / "simple" / "tiny"
    place.mkdir(parents=True)
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place / name, "w") as wheel:
        wheel.writestr("tiny.py", "VALUE = 42\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL",
                       "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
                       "Tag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    (place / "index.html").write_text('<a href="%s">%s</a>' % (name, name))


def make_repository(directory):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(directory)}

    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                       env=env, cwd=directory / "work", capture_output=True)

    (directory / "work").mkdir()
    git("init", "-q")
    (directory / "work" / "file").write_text("contents\n")
    git("add", "file")
    git("commit", "-qm", "first")
    git("clone", "-q", "--bare", ".", str(directory / "repo.git"))
    git("--git-dir", str(directory / "repo.git"), "update-server-info")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(the port of HTTP, the port of HTTPS, the certificate's file)"""
    place = tmp_path_factory.mktemp("site")
    make_wheel(place)
    make_repository(place)
    (place / "hello").write_text("hello\n")
    cert, key = place / "cert.pem", place / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days",
                    "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:" + SERVER],
                   check=True, capture_output=True)
    os.chmod(place, 0o755)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)

    class OfSite(Files):
        def __init__(self, *args):
            super().__init__(*args, directory=str(place))

    secure = Server((SERVER, 0), OfSite)
    secure.socket = tls.wrap_socket(secure.socket, server_side=True)
    with serving(Server((SERVER, 0), OfSite)) as plain, serving(secure) as port:
        yield plain, port, str(cert)


def addresses(site):
    """Code that binds HTTP and HTTPS."""
    return "HTTP, HTTPS = 'http://%s:%d', 'https://%s:%d'" % (SERVER, site[0], SERVER, site[1])


@pytest.fixture(scope="module", params=("full", "light"))
def interp(request, site):
    plain, secure, cert = site
    with droste.Interpreter(allow_net=["%s:%d" % (SERVER, plain), "%s:%d" % (SERVER, secure)],
                            isolation=request.param, read=[cert], tmp_size="128M",
                            env_var={name: cert for name in (
                                "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                "GIT_SSL_CAINFO")}) as made:
        try:
            made.start()
        except droste.UnsupportedError as e:
            pytest.skip("%s is not available here: %s" % (request.param, e))
        made.execute("import hashlib, subprocess, urllib.request, urllib.error\n"
                     + addresses(site))
        yield made


@pytest.fixture(scope="module")
def libraries(site):
    if not os.path.exists(LIBRARIES):
        pytest.skip("there is no %s: scripts/setup dspy" % LIBRARIES)
    plain, secure, cert = site
    with droste.Interpreter(allow_net=["%s:%d" % (SERVER, plain), "%s:%d" % (SERVER, secure)],
                            python=LIBRARIES, read=[cert],
                            env_var={"SSL_CERT_FILE": cert, "REQUESTS_CA_BUNDLE": cert}) as made:
        made.execute(addresses(site))
        yield made


def out(interp, code):
    result = interp.execute(code)
    assert result.error is None, result.error.traceback
    return result.stdout


def test_urllib(interp):
    assert out(interp, """
for base in (HTTP, HTTPS):
    print(urllib.request.urlopen(base + "/hello").read())
    data = bytes(range(256)) * 4096
    print(urllib.request.urlopen(base + "/x", data).read().decode() ==
          hashlib.sha256(data).hexdigest())
""") == "b'hello\\n'\nTrue\n" * 2


def test_curl(interp):
    """Absolute form, CONNECT for https and on request, SOCKS with the name and with the address."""
    assert out(interp, """
socks = "127.0.0.1:3128"
for words in ([HTTP], [HTTPS], ["-p", HTTP], ["--socks5-hostname", socks, HTTP],
              ["--socks5", socks, HTTPS], ["-x", "http://" + socks, HTTP], ["--http2", HTTP]):
    words[-1] += "/hello"
    print(subprocess.run(["curl", "-sS", *words], capture_output=True, text=True))
""").count("stdout='hello\\n', stderr=''") == 7


def test_curl_sends_what_has_no_length(interp):
    assert "'%s'" % hashlib.sha256(b"x" * 300000).hexdigest() in out(interp, """
print(subprocess.run(["curl", "-sS", "-T", "-", HTTP + "/x"], input="x" * 300000,
                     capture_output=True, text=True))
""")


def test_git_over_https(interp):
    assert out(interp, """
print(subprocess.run(["git", "clone", "-q", HTTPS + "/repo.git", "/tmp/clone"],
                     capture_output=True, text=True).stderr)
print(open("/tmp/clone/file").read())
""") == "\ncontents\n\n"


def test_pip(libraries):
    assert out(libraries, """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir",
                       "--disable-pip-version-check", "--target", "/tmp/got",
                       "--index-url", HTTPS + "/simple", "tiny"], capture_output=True, text=True)
sys.path.append("/tmp/got")
print(done.stderr)
import tiny
print(tiny.VALUE)
""") == "\n42\n"


@pytest.fixture(scope="module")
def ended(site):
    """Where the proxy ends TLS, for a rule with paths."""
    _, secure, cert = site
    if not os.path.exists(LIBRARIES):
        pytest.skip("there is no %s: scripts/setup dspy" % LIBRARIES)
    rules = ["GET https://%s:%d/%s/**" % (SERVER, secure, at) for at in ("repo.git", "simple")]
    with droste.Interpreter(allow_net=rules, net_ca=cert, python=LIBRARIES) as made:
        made.execute("import subprocess, sys\n" + addresses(site))
        yield made


def test_git_where_tls_ends(ended):
    """Over many requests of one connection; what no rule allows is refused within it."""
    assert out(ended, """
for at, name in (("/repo.git", "clone"), ("/other.git", "other")):
    done = subprocess.run(["git", "clone", "-q", HTTPS + at, "/tmp/" + name],
                          capture_output=True, text=True)
    print(done.returncode, "403" in done.stderr)
print(open("/tmp/clone/file").read())
""") == "0 False\n128 True\ncontents\n\n"


def test_pip_where_tls_ends(ended):
    assert out(ended, """
for index, name in (("/simple", "tiny"), ("/other", "other")):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--retries", "0",
         "--disable-pip-version-check", "--target", "/tmp/got", "--index-url", HTTPS + index, name],
        capture_output=True, text=True)
    print(done.returncode, done.stderr.count("certificate"))
sys.path.append("/tmp/got")
import tiny
print(tiny.VALUE)
""") == "0 0\n1 0\n42\n"


@pytest.mark.parametrize("client", ["requests", "httpx"])
def test_a_client_of_python(libraries, client):
    assert out(libraries, """
import %s as client
for base in (HTTP, HTTPS):
    with client.%s() as session:
        print([session.get(base + "/hello").text for _ in range(3)], session.post(
            base + "/x", data=b"y" * 100000).text[:8])
""" % (client, "Session" if client == "requests" else "Client")) == \
        "['hello\\n', 'hello\\n', 'hello\\n'] %s\n" % \
        hashlib.sha256(b"y" * 100000).hexdigest()[:8] * 2


def test_aiohttp(libraries):
    assert out(libraries, """
import aiohttp, asyncio, ssl
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async def get(base):
            async with session.get(base + "/hello") as answer:
                return await answer.text()
        return await asyncio.gather(*[get(base) for base in (HTTP, HTTPS) for _ in range(20)])
print(set(await main()))
""") == "{'hello\\n'}\n"


def test_openai_streams(libraries):
    assert out(libraries, """
import openai
for base in (HTTP, HTTPS):
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(model="m", stream=True,
                                            messages=[{"role": "user", "content": "?"}])
    print([piece.choices[0].delta.content for piece in answer])
""") == "['one', 'two']\n" * 2


def test_commands_have_it_too(interp, site):
    done = interp.commands.run(["curl", "-sS", "http://%s:%d/hello" % (SERVER, site[0])])
    assert (done.stdout, done.stderr) == ("hello\n", "")


def test_forks_have_it_too(interp):
    with interp.fork() as fork:
        assert out(fork, "print(urllib.request.urlopen(HTTP + '/hello').read())") == "b'hello\\n'\n"


def test_what_is_not_listed_is_refused(interp, site):
    text = out(interp, """
for url in ("http://%s:1/", "https://example.com/", "http://127.0.0.3/", "http://169.254.169.254/"):
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as e:
        print(e.code, e.read().decode())
    except urllib.error.URLError as e:
        print(e.reason)
""" % SERVER)
    assert text.count("not allowed by --allow-net") == 3 and "Tunnel connection failed: 403" in text


def test_a_redirect_is_another_request(interp, site):
    """To what is listed, it is followed; to metadata or to this machine it is refused."""
    assert out(interp, """
def follow(where):
    try:
        return urllib.request.urlopen(HTTP + "/to/" + where).status
    except urllib.error.HTTPError as e:
        return e.code
print(follow("%s:%d/hello"), follow("169.254.169.254/latest/"), follow("[::ffff:169.254.169.254]/"))
""" % (SERVER, site[0])) == "200 403 403\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file of hosts of its own")
def test_a_name_of_a_private_address_is_refused(site, tmp_path):
    """Rebinding: the name is allowed, its address is not, unless a rule lists that, too."""
    hosts, code = tmp_path / "hosts", tmp_path / "code.py"
    hosts.write_text("%s rebound.example\n::ffff:127.0.0.1 mapped.example\n" % SERVER)
    code.write_text("""
import urllib.request, urllib.error
for name in ("rebound", "mapped"):
    try:
        print(urllib.request.urlopen("http://%%s.example:%d/hello" %% name).read())
    except urllib.error.HTTPError as e:
        print(e.code, e.read().decode())
""" % site[0])

    def run(*rules):
        words = [word for rule in rules for word in ("--allow-net", rule)]
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts,
             os.path.join(BUILD, "droste"), "exec", *words, code], capture_output=True, text=True,
            env={**os.environ, "HOME": str(tmp_path)}, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    refused = run("*.example:*")
    assert refused.count("403") == 2 and refused.count("a loopback address") == 2, refused
    assert run("*.example:*", "%s:%d" % (SERVER, site[0])).startswith("b'hello\\n'\n403")


class Names(socketserver.ThreadingUDPServer):
    """A name server: `known` has addresses; names that begin with "held" wait for `released`."""
    daemon_threads = True

    def __init__(self):
        self.address = "127.77.%d.%d" % (random.randrange(256), random.randrange(1, 255))
        super().__init__((self.address, 53), self.Query)
        self.zone, self.asked, self.released = {}, [], threading.Event()

    class Query(socketserver.BaseRequestHandler):
        def handle(self):
            query, wire = self.request
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            name, question = ".".join(labels), query[12:at + 5]
            self.server.asked.append(name)
            if name.startswith("held"):
                self.server.released.wait(60)
            found = self.server.zone.get(name) if question[-4:-2] == b"\0\1" else None
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(found) if found else b""
            flags = b"\x81\x80" if name in self.server.zone else b"\x81\x83"
            wire.sendto(query[:2] + flags + b"\0\1\0" + bytes([len(answer) > 0]) + bytes(4)
                        + question + answer, self.client_address)


NAMES_PROGRAM = """
import os, select, sys
import droste
fetch = '''
import os, socket, time, urllib.request, urllib.error
def fetch(name):
    try:
        print(urllib.request.urlopen("http://%%s.example:%d/hello" %% name).read().decode().strip())
    except urllib.error.HTTPError as e:
        print(e.code, e.read().decode().strip())
'''
hold = r'''
proxy = urllib.request.urlsplit(os.environ["http_proxy"])
sockets = [socket.create_connection((proxy.hostname, proxy.port)) for _ in range(6)]
for i, s in enumerate(sockets):
    name = b"held%%d.example:80" %% i
    s.sendall(b"CONNECT " + name + b" HTTP/1.1\\r\\nHost: " + name + b"\\r\\n\\r\\n")
'''
rules = ["*.example:*", "%s:%d"]
with droste.Interpreter(allow_net=rules) as holder, droste.Interpreter(allow_net=rules) as other:
    for sandbox in (holder, other):
        sandbox.execute(fetch)
    assert holder.execute(hold).error is None
    while not select.select([sys.stdin], [], [], 0)[0]:  # the proxy works while a cell runs
        holder.execute("time.sleep(0.01)")
    sys.stdin.readline()
    holder.execute("for s in sockets: s.close()")
    print(other.execute("fetch('whole'); fetch('short')").stdout, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a name server of its own")
def test_names_are_absolute_and_lookups_bounded(site, tmp_path):
    """The search list of the host is not used. A sandbox whose names are not answered has two
    lookups, also if it closes the connections, and others still resolve theirs."""
    names = Names()
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver %s\nsearch corp.example\noptions ndots:5 timeout:30\n"
                        % names.address)
    names.zone = {"whole.example": SERVER, "short.example.corp.example": SERVER}
    with serving(names), subprocess.Popen(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"',
             resolver, sys.executable, "-c", NAMES_PROGRAM % (site[0], SERVER, site[0])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "HOME": str(tmp_path),
                 "PYTHONPATH": os.path.dirname(os.path.dirname(droste.__file__))}) as done:
        while len(names.asked) < 2 and done.poll() is None:
            time.sleep(0.01)
        done.stdin.write("\n")
        done.stdin.flush()
        printed = [done.stdout.readline() for _ in range(2)]
        names.released.set()
        done.communicate()
    assert done.returncode == 0
    assert printed == ["hello\n", "502 droste: the name was not found\n"]
    held = {name for name in names.asked if name.startswith("held")}
    assert set(names.asked) - held == {"whole.example", "short.example"}
    assert len(held) == 2, held


def test_its_own_servers_are_reached_directly(interp):
    assert out(interp, """
import http.server, threading
own = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=own.handle_request, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%d/" % own.server_address[1]).status)
""") == "200\n"


def test_many_at_once(interp):
    """More than may be open at once: the others wait."""
    assert out(interp, """
from concurrent.futures import ThreadPoolExecutor
def get(i):
    return urllib.request.urlopen(HTTP + "/bytes/%d" % (i * 1000)).read() == bytes(i * 1000)
with ThreadPoolExecutor(60) as pool:
    print(all(pool.map(get, range(120))))
""") == "True\n"


def test_limits(site):
    """Of bytes and of requests; each refusal says which."""
    where = "%s:%d" % (SERVER, site[0])
    get = """
import urllib.request, urllib.error
def get(n):
    try:
        return len(urllib.request.urlopen("http://%s/bytes/%%d" %% n).read())
    except urllib.error.HTTPError as e:
        return e.read().decode()
    except Exception as e:
        return type(e).__name__
""" % where
    with droste.Interpreter(allow_net=where, max_net_requests=2) as interp:
        assert out(interp, get + "print(get(1), get(2))") == "1 2\n"
        assert "as many requests as it may" in out(interp, "print(get(3))")
    with droste.Interpreter(allow_net=where, max_net_bytes="100K") as interp:
        assert out(interp, get + "print(get(1000), get(1000000))") == "1000 IncompleteRead\n"
        assert "as many bytes as it may" in out(interp, "print(get(1))")


def test_a_request_takes_as_long_as_it_may():
    with socket.create_server((SERVER, 0)) as silent, droste.Interpreter(
            allow_net="%s:%d" % (SERVER, silent.getsockname()[1]), net_timeout=0.3) as interp:
        error = interp.execute("import urllib.request\nurllib.request.urlopen('http://%s:%d/')"
                               % (SERVER, silent.getsockname()[1])).error
        assert error.type in ("RemoteDisconnected", "ConnectionResetError"), error


def test_methods_and_paths(site):
    where = "http://%s:%d" % (SERVER, site[0])
    with droste.Interpreter(allow_net=["GET " + where + "/hello", where + "/x/**"]) as interp:
        assert out(interp, """
import urllib.request, urllib.error, http.client
def ask(path, data=None):
    try:
        return urllib.request.urlopen("%s" + path, data).status
    except urllib.error.HTTPError as e:
        return e.code
print(ask("/hello"), ask("/x/y", b"z"), ask("/hello", b"z"), ask("/host"), ask("/x/../host"))
tunnel = http.client.HTTPConnection("127.0.0.1", 3128)
tunnel.set_tunnel("%s", %d)
try:
    tunnel.connect()
except OSError as e:
    print(e)
""" % (where, SERVER, site[0])) == "200 200 403 403 403\n" \
            "Tunnel connection failed: 403 Forbidden by allow-net\n"


class Quiet(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read() + b"!")


def test_a_tunnel_has_half_an_end():
    """The server answers after the client's end of file."""
    socketserver.ThreadingTCPServer.daemon_threads = True
    with serving(socketserver.ThreadingTCPServer((SERVER, 0), Quiet)) as port, \
            droste.Interpreter(allow_net="%s:%d" % (SERVER, port)) as interp:
        assert out(interp, """
import socket
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT %s:%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".replace(b"Host: x", b"Host: %s"))
head = s.recv(1000)
s.sendall(b"data" * 100000)
s.shutdown(socket.SHUT_WR)
data = b""
while piece := s.recv(65536):
    data += piece
print(head[:12], data == b"data" * 100000 + b"!")
""" % (SERVER, port, SERVER)) == "b'HTTP/1.1 200' True\n"


def test_a_wrong_rule_names_itself():
    for rule, word in (("ftp://a.example/b", "https"),
                       ("localhost:80", "127.0.0.1:8000"), ("a.example", "port"),
                       ("127.1:80", "odd form")):
        with pytest.raises(droste.Error, match=word), \
                droste.Interpreter(allow_net=rule) as interp:
            interp.start()


def test_it_is_refused_where_there_is_no_namespace():
    for more in ({"isolation": "process"}, {"isolation": "landlock"}, {"env": "modal"}):
        with pytest.raises(droste.UnsupportedError, match="allow-net"), \
                droste.Interpreter(allow_net="a.example:443", **more) as interp:
            interp.start()


def test_none_is_none():
    with droste.Interpreter(allow_net="none") as interp:
        assert out(interp, "import os; print(os.environ.get('HTTP_PROXY'))") == "None\n"


def test_curl_and_git_are_here():
    """So that the tests above do not pass without them."""
    assert shutil.which("curl") and shutil.which("git")
