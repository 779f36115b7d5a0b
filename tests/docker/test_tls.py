"""--env docker against a daemon with TLS. In a file of its own, since each file has one worker and
this daemon takes as long as many tests of the other."""
import re
import shutil
import subprocess

import pytest

from own_daemon import a_daemon, parsed, wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Of a CA, of a server at 127.0.0.1, and of a client."""
    place = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca-key.pem", "-out",
            "ca.pem", "-subj", "/CN=ca",
            "-days", "2")
    for name, more in (("server", "subjectAltName=IP:127.0.0.1"),
                       ("client", "extendedKeyUsage=clientAuth")):
        (place / (name + ".ext")).write_text(more)
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", name + "-key.pem", "-out",
                name + ".csr", "-subj", "/CN=" + name)
        openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
                "-CAcreateserial", "-out",
                name + ".pem", "-days", "2", "-extfile", name + ".ext")
    shutil.copy(place / "client.pem", place / "cert.pem")
    shutil.copy(place / "client-key.pem", place / "key.pem")
    return place


@pytest.fixture(scope="module")
def secured(certificates):
    c = str(certificates)
    with a_daemon("--host", "tcp://127.0.0.1:0", "--tlsverify", "--tlscacert", c + "/ca.pem",
                  "--tlscert", c + "/server.pem", "--tlskey", c + "/server-key.pem") as own:
        found = wait_until(lambda: re.search(r"API listen on (127\.0\.0\.1:\d+)", own.log()))
        own.tcp = "tcp://" + found[1]
        yield own


def test_tls(program, secured, certificates, tmp_path):
    """A daemon with TLS on both sides; without the right certificates no connection succeeds."""
    tls = dict(DOCKER_HOST=secured.tcp, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=str(certificates))
    assert parsed(program.cell("print(3)", **tls))["stdout"] == "3\n"
    result = program.cell("1", **{**tls, "DOCKER_CERT_PATH": str(tmp_path)})
    assert result.returncode == 2 and "DOCKER_CERT_PATH" in result.stdout + result.stderr
    for name in ("cert.pem", "key.pem"):
        shutil.copy(certificates / name, tmp_path / name)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "x.pem",
                    "-out", "ca.pem", "-subj",
                    "/CN=somebody else"], cwd=tmp_path, check=True, capture_output=True)
    result = program.cell("1", **{**tls, "DOCKER_CERT_PATH": str(tmp_path)})
    assert result.returncode == 4 and "certificate" in result.stdout + result.stderr
