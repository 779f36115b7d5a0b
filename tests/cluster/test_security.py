"""Nodes at a NATS server that asks for TLS and credentials."""
import base64
import hashlib
import json
import os
import re
import subprocess

import pytest

from nodes import DROSTE, Nats, Node, Provider, free_port, get, has_nats, put

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
from cryptography.hazmat.primitives import serialization  # noqa: E402

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")

OPERATOR, ACCOUNT, USER, SEED = 14 << 3, 0, 20 << 3, 18 << 3   # the first letter: O, A, U, S


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc.to_bytes(2, "little")


def base32(data):
    return base64.b32encode(data + crc16(data)).decode().rstrip("=")


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    """An NKey."""

    def __init__(self, kind):
        raw = serialization.Encoding.Raw
        self.key = ed25519.Ed25519PrivateKey.generate()
        self.public = base32(bytes([kind]) + self.key.public_key().public_bytes(
            raw, serialization.PublicFormat.Raw))
        self.seed = base32(bytes([SEED | kind >> 5, (kind & 31) << 3]) + self.key.private_bytes(
            raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()))

    def sign(self, subject, kind, **claims):
        body = {"iat": 1, "iss": self.public, "sub": subject, "name": kind,
                "nats": {"type": kind, "version": 2, **claims}}
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode()
        text = "%s.%s" % (base64url(b'{"typ": "JWT", "alg": "ed25519-nkey"}'),
                          base64url(json.dumps(body).encode()))
        return "%s.%s" % (text, base64url(self.key.sign(text.encode())))


def write_credentials(path, account):
    user = Key(USER)
    jwt = account.sign(user.public, "user", subs=-1, data=-1, payload=-1)
    path.write_text("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n"
                    "-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n"
                    % (jwt, user.seed))


class SecureNats(Nats):
    """Its certificate is of an authority of its own, and its users have credentials."""

    def __init__(self, place):
        place.mkdir()
        self.ca, self.credentials = place / "server.pem", place / "user.creds"
        self.strangers = place / "stranger.creds"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", place / "server.key", "-out", self.ca],
            check=True, capture_output=True)
        operator, account, system = Key(OPERATOR), Key(ACCOUNT), Key(ACCOUNT)
        limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                  "conn": -1, "leaf": -1, "wildcards": True, "mem_storage": -1,
                  "disk_storage": -1, "streams": -1, "consumer": -1}
        write_credentials(self.credentials, account)
        write_credentials(self.strangers, Key(ACCOUNT))
        self.config = place / "nats.conf"
        self.config.write_text(
            "operator: %s\nresolver: MEMORY\nsystem_account: %s\n"
            "resolver_preload: { %s: %s, %s: %s }\n"
            "tls { cert_file: '%s', key_file: '%s' }\njetstream { store_dir: '%s' }\n"
            % (operator.sign(operator.public, "operator"), system.public,
               system.public, operator.sign(system.public, "account"), account.public,
               operator.sign(account.public, "account", limits=limits), self.ca,
               place / "server.key", place / "store"))
        super().__init__(place)
        self.url = self.url.replace("nats://", "tls://")

    def start(self):
        self.port = self.port or free_port()
        self.process = subprocess.Popen(
            ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", str(self.port), "-c",
             str(self.config)], stdout=subprocess.DEVNULL,
            stderr=open(os.path.join(self.place, "log"), "wb"))
        self.wait_until_open()


@pytest.fixture
def nats(tmp_path):
    nats = SecureNats(tmp_path / "nats")
    yield nats
    nats.kill()


def test_nodes_and_their_queue_use_tls_and_credentials(tmp_path, nats):
    provider, nodes = Provider(), []
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            nodes.append(Node(tmp_path / name, nats, provider, "--nats-ca", str(nats.ca),
                              "--nats-creds", str(nats.credentials)))
        put(nodes[:1], "run-1")
        assert get(nodes[1:], "run-1")["run"]["status"] == "answered"
        done = subprocess.run([DROSTE, "cluster", "doctor", "--join", nats.url, "--nats-ca",
                               str(nats.ca), "--nats-creds", str(nats.credentials)],
                              stdout=subprocess.PIPE, text=True)
        assert re.search(r"certificate +\w+ .*is valid for \d+ days", done.stdout), done
    finally:
        for node in nodes:
            node.kill()
        provider.close()


@pytest.mark.parametrize("flags, why", [
    (("ca",), "Authorization"), (("credentials",), "certificate"),
    (("ca", "strangers"), "Authorization")])
def test_a_node_without_authority_or_credentials_is_refused(tmp_path, nats, flags, why):
    words = []
    for flag in flags:
        words += ["--nats-ca" if flag == "ca" else "--nats-creds", str(getattr(nats, flag))]
    done = subprocess.run(
        [DROSTE, "serve", "--listen", "127.0.0.1:0", "--join", nats.url, *words],
        capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"})
    assert done.returncode != 0 and not done.stdout
    assert "NATS" in done.stderr and why in done.stderr
