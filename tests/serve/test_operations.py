"""What the one that runs a server needs: HTTPS, sockets and messages of a manager, a check."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import pytest

from server_process import DROSTE, ROOT, WAIT, Server, until
from test_keys import create


def certificate(directory, name):
    """A self-signed certificate and its key, for `name`."""
    paths = [str(directory / (name + end)) for end in (".pem", ".key")]
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", paths[1], "-out", paths[0], "-days", "2", "-subj", "/CN=" + name,
         "-addext", "subjectAltName=DNS:%s,IP:127.0.0.1" % name], capture_output=True)
    if done.returncode != 0:
        pytest.skip("openssl cannot make a certificate: %s" % done.stderr.decode()[-200:])
    return paths


class SecureServer(Server):
    """A server with HTTPS."""

    def ask_over_tls(self, path, trusted, headers=None, method="GET", body=None, version=None):
        context = ssl.create_default_context(cafile=trusted)
        if version:
            context.minimum_version = context.maximum_version = version
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT,
                                                 context=context)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_https(tmp_path, workers):
    """With keys, large bodies in both directions and a new certificate after SIGHUP; plain HTTP
    and old versions get nothing."""
    paths, key = certificate(tmp_path, "one"), create(tmp_path, "k")
    server = SecureServer(tmp_path, "--tls-cert", paths[0], "--tls-key", paths[1], workers=workers)
    headers = {"X-API-Key": key}
    try:
        assert server.address.startswith("https://127.0.0.1:")
        assert server.ask_over_tls("/health", paths[0])[0] == 200
        assert server.ask_over_tls("/v1/sandboxes", paths[0])[0] == 401
        for _ in range(4):
            status, body = server.ask_over_tls("/v1/sandboxes", paths[0], headers, "POST", "{}")
            assert status == 201
            files = "/v1/sandboxes/%s/files?path=/tmp/a" % json.loads(body)["id"]
            data = os.urandom(3000000)
            assert server.ask_over_tls(files, paths[0], headers, "PUT", data)[0] == 204
            assert server.ask_over_tls(files, paths[0], headers) == (200, data)
        large = {**headers, "Content-Length": "10000000"}
        refused = server.ask_over_tls("/v1/sandboxes", paths[0], large, "POST")
        assert refused[0] == 413   # before the body has come
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.ask("GET", "/health")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            server.ask_over_tls("/health", paths[0], version=ssl.TLSVersion.TLSv1_1)
        fresh = certificate(tmp_path, "two")
        for old, new in zip(paths, fresh):
            os.replace(new, old)
        server.process.send_signal(signal.SIGHUP)

        def is_new():
            try:
                return server.ask_over_tls("/health", paths[0])[0] == 200
            except ssl.SSLError:
                return False
        until(is_new)
        (tmp_path / "one.pem").write_text("nonsense")
        server.process.send_signal(signal.SIGHUP)
        # The old one stays in force; nothing here trusts it any more.
        with pytest.raises(ssl.SSLError):
            server.ask_over_tls("/health", "/etc/ssl/certs/ca-certificates.crt")
    finally:
        assert server.stop() == 0


def check(home, *flags):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "DROSTE_HOME": str(home / "data")}
    return subprocess.run([DROSTE, "serve", "--check", *flags], capture_output=True, text=True,
                          timeout=WAIT, env=env)


def test_a_check_names_what_is_wrong(tmp_path):
    """Before a service is restarted; the address may be in use by it."""
    (one, one_key), (_, other_key) = certificate(tmp_path, "one"), certificate(tmp_path, "two")
    server = Server(tmp_path)
    try:
        done = check(tmp_path, "--listen", "127.0.0.1:%d" % server.port, "--tls-cert", one,
                     "--tls-key", one_key, "--audit-log", str(tmp_path / "audit"))
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    finally:
        assert server.stop() == 0
    (tmp_path / "bad.json").write_text("{")
    for flags, what in [(["--tls-cert", one, "--tls-key", other_key], "is not that of"),
                        (["--tls-cert", one_key, "--tls-key", one_key], "the certificate in"),
                        (["--tls-cert", one], "belong together"),
                        (["--tls-cert", "/none", "--tls-key", one_key], "/none"),
                        (["--listen", "0.0.0.0:1"], "loopback"),
                        (["--listen", "x"], "not an address"),
                        (["--keys", str(tmp_path / "bad.json")], "bad.json"),
                        (["--audit-log", "/none/a"], "/none/a"),
                        (["--python", "/none/python"], "/none/python")]:
        done = check(tmp_path, *flags)
        assert done.returncode != 0 and what in done.stderr, (flags, done.stderr)


def activated(tmp_path, listening, *flags, count="1", notify=None):
    """Starts a server with a socket as descriptor 3, as systemd does."""
    program = ("import os, sys\nos.dup2(int(sys.argv[1]), 3)\nos.set_inheritable(3, True)\n"
               "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2])\n"
               "os.execv(sys.argv[3], sys.argv[3:])\n")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if notify:
        env["NOTIFY_SOCKET"] = notify
    return subprocess.Popen(
        [sys.executable, "-c", program, str(listening.fileno()), count, DROSTE, "serve", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        pass_fds=[listening.fileno()])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_manager_gives_the_socket_and_is_told(tmp_path, workers):
    """A client that came before the server is served; the socket stays the manager's."""
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(tmp_path / "notify"))
    notified.settimeout(WAIT)
    with socket.create_server(("127.0.0.1", 0)) as listening, \
            socket.create_connection(listening.getsockname(), timeout=WAIT) as early:
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        process = activated(tmp_path, listening, "--workers", workers,
                            notify=str(tmp_path / "notify"))
        assert notified.recv(100) == b"READY=1"
        address = "http://127.0.0.1:%d\n" % listening.getsockname()[1]
        assert process.stdout.readline() == address
        assert early.recv(1000).startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)
        assert notified.recv(100) == b"STOPPING=1"
        assert process.wait(WAIT) == 0
        process.communicate()
        # Connections wait for the next server, as at a restart.
        socket.create_connection(listening.getsockname(), timeout=WAIT).close()
    notified.close()


def test_a_socket_of_a_manager_is_checked(tmp_path):
    """One, which listens, and on loopback unless there are keys; a file is not removed."""
    with socket.create_server(("0.0.0.0", 0)) as everywhere, socket.socket() as silent, \
            socket.socket(socket.AF_UNIX) as file:
        for listening, count, what in [(everywhere, "1", "loopback"), (silent, "1", "LISTEN_FDS"),
                                       (everywhere, "2", "LISTEN_FDS")]:
            process = activated(tmp_path, listening, count=count)
            _, why = process.communicate(timeout=WAIT)
            assert process.returncode == 2 and what in why
        path = tmp_path / "socket"
        file.bind(str(path))
        file.listen()
        process = activated(tmp_path, file)
        assert process.stdout.readline() == "unix:%s\n" % path
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT)
        assert process.returncode == 0 and path.exists()


def test_the_units_are_valid(tmp_path):
    """systemd reads them without a complaint."""
    verify = shutil.which("systemd-analyze")
    if not verify:
        pytest.skip("systemd-analyze is not installed")
    for name in ("droste.service", "droste.socket"):
        with open(os.path.join(ROOT, "packaging", "systemd", name)) as f:
            (tmp_path / name).write_text(f.read().replace("/usr/bin/droste", DROSTE))
    done = subprocess.run([verify, "verify", "--man=no", "--recursive-errors=no",
                           str(tmp_path / "droste.service"), str(tmp_path / "droste.socket")],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_measurement_that_is_killed_takes_its_server_with_it(tmp_path):
    """Its sandboxes would go on to use the machine."""
    bench = subprocess.Popen([DROSTE, "bench", "serve"], stdout=subprocess.DEVNULL,
                             env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})

    def servers():
        with open("/proc/%d/task/%d/children" % (bench.pid, bench.pid)) as f:
            return [pid for pid in f.read().split()
                    if b"serve\0--listen" in open("/proc/%s/cmdline" % pid, "rb").read()]

    def is_there(pid):
        try:
            with open("/proc/%s/stat" % pid) as f:
                return f.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False
    server, = until(servers)
    assert is_there(server)
    bench.kill()
    bench.wait(WAIT)
    until(lambda: not is_there(server))
