"""HTTPS with the libcurl and OpenSSL that are inside a wheel: they know no directory of
certificates of their own, and find those of the system. The server's certificate is signed by a
private authority.

Each test runs in a copy of this machine (scripts/in-root) in which the certificates are in one
place only, so it needs root.
"""
import os
import shutil
import subprocess
import zipfile

import pytest
from installed import ROOT
from test_wheel import HERE, wheel_of

PLACES = {
    "Debian": "/etc/ssl/certs/ca-certificates.crt",
    "Fedora": "/etc/pki/tls/certs/ca-bundle.crt",
    "openSUSE": "/etc/ssl/ca-bundle.pem",
    "CentOS": "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "Alpine": "/etc/ssl/cert.pem",
}
ASK = """
set -e
rm -rf /etc/ssl /etc/pki
mkdir -p "$(dirname "$1")"
cp "$2" "$1"
export DROSTE_DATABASE=none
exec /files/bin/droste run q --model scripted --base-url "$3"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0,
                                reason="another place for the certificates needs root")


@pytest.fixture
def ask(serve, tmp_path):
    """ask(place, trusted=True, variable=None): what a run says whose certificates are there."""
    server = serve(script=["```repl\nSUBMIT('tls')\n```"])
    with zipfile.ZipFile(wheel_of(HERE)) as archive:
        for name in ("lib/libdroste.so.0", "bin/droste"):
            path = tmp_path / "files" / name
            path.parent.mkdir(parents=True)
            path.write_bytes(archive.read("droste/" + name))
            path.chmod(0o755)
    shutil.copy(server.ca_file, tmp_path / "files" / "private.pem")

    def run(place, trusted=True, variable=None):
        source = "/files/private.pem" if trusted else "/files/public.pem"
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", tmp_path / "files" / "public.pem")
        script = ("export SSL_CERT_FILE=%s\n" % variable if variable else "") + ASK
        done = subprocess.run([os.path.join(ROOT, "scripts", "in-root"), "--bind",
                               str(tmp_path / "files"), "/files", "/",
                               "bash", "-c", script, "ask", place, source, server.tls_url],
                              capture_output=True, text=True, timeout=120)
        return done, server.stats()["requests"]
    return run


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_certificates_of_the_system_are_found(ask, place):
    """A private authority is trusted once it is in the system's file, wherever a distribution has
    that."""
    done, requests = ask(place)
    assert (done.returncode, done.stdout, requests) == (0, "tls\n", 1), done.stderr


@pytest.mark.parametrize("place", [PLACES["Debian"], PLACES["Fedora"]])
def test_other_authorities_are_not_trusted(ask, place):
    """With the public ones there, the private one is refused before a request is sent."""
    done, requests = ask(place, trusted=False)
    assert done.returncode == 1 and "--ca-file" in done.stderr and requests == 0, done.stderr


def test_no_certificates_are_no_trust(ask):
    """A system without any refuses every server."""
    done, requests = ask("/elsewhere/private.pem")
    assert done.returncode == 1 and "--ca-file" in done.stderr and requests == 0, done.stderr


def test_the_variable_names_a_file(ask):
    """SSL_CERT_FILE is used instead of the system's file."""
    done, requests = ask(PLACES["Debian"], trusted=False, variable="/files/private.pem")
    assert (done.returncode, done.stdout, requests) == (0, "tls\n", 1), done.stderr
