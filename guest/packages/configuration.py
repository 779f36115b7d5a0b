"""Prints how pip is configured on this machine, as JSON; runs outside of the sandbox.

It is given to the interpreter that the user has chosen, and only asks that interpreter's own pip.
"""
import ast
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
from urllib.parse import urlsplit

WORDS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index", "proxy",
         "client-cert")
ORDER = ("global", "install", ":env:")
# Networks in which an organization may have an index; no form of another address, such as a mapped
# one, is in them.
OWN = [ipaddress.ip_network(n) for n in (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")]
# The metadata of clouds that have it there.
METADATA = [ipaddress.ip_network(n) for n in (
    "100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128")]


def read_pip():
    """pip's settings by name, or None if there is no pip."""
    done = subprocess.run([sys.executable, "-I", "-m", "pip", "config", "list"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, universal_newlines=True)
    if done.returncode != 0:
        return None
    found = {}
    for line in done.stdout.splitlines():
        key, equals, value = line.partition("=")
        section, dot, name = key.rpartition(".")
        if equals and section in ORDER and name in WORDS:
            try:
                found[ORDER.index(section), name] = ast.literal_eval(value)
            except (SyntaxError, ValueError):
                pass
    return {name: value for (section, name), value in sorted(found.items())}


def default_index():
    """The index that pip itself has, and where that keeps its files."""
    try:
        from pip._internal.models.index import PyPI
        return PyPI.simple_url, [PyPI.file_storage_domain]
    except (ImportError, AttributeError):
        return None, []


def destination(url):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = "[%s]" % parts.hostname if ":" in parts.hostname else parts.hostname
    return "%s:%d" % (host, parts.port or (443 if parts.scheme == "https" else 80))


def own_addresses(allow):
    """Addresses of an index in this network, which a rule for its name does not open.

    An answer for the name must not lead the build to this machine or to a cloud's metadata.
    """
    found = set()
    for place in allow:
        name, colon, port = place.rpartition(":")
        try:
            answers = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue    # the build will say so
        for answer in answers:
            address = ipaddress.ip_address(answer[4][0].partition("%")[0])
            if (any(address in network for network in OWN)
                    and not any(address in network for network in METADATA)):
                found.add(("[%s]:%s" if address.version == 6 else "%s:%s") % (address, port))
    return sorted(found)


def main():
    pip = read_pip()
    uv = shutil.which("uv")
    if pip is None and uv is None:
        return {"error": "neither pip nor uv is installed for '%s'" % sys.executable}
    settings = pip or {}
    own = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") if uv else None
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    index, storage = wanted or own or settings.get("index-url"), []
    no_index = wanted == "none" or (not wanted and settings.get("no-index") in ("1", "true", "yes"))
    if not index and not no_index:
        index, storage = default_index()
        if not index:
            return {"error": "no package index is known: configure pip's index-url, or give "
                             "--package-index URL"}
    indexes = [] if no_index else [index] + settings.get("extra-index-url", "").split()
    links = settings.get("find-links", "").split()
    allow = []
    for url in indexes + [link for link in links if "://" in link]:
        parts = urlsplit(url)
        if parts.username or parts.password:
            return {"error": "the URL of a package index has a password, which a sandbox must not "
                             "see: download the wheels with pip, and give their directory as "
                             "--find-links with --package-index none"}
        if not destination(url):
            return {"error": "a package index must have an http or https URL"}
        allow.append(destination(url))
    if settings.get("client-cert") and indexes:
        return {"error": "pip is configured with a client certificate, which a sandbox must not "
                         "see: download the wheels with pip, and give their directory as "
                         "--find-links with --package-index none"}
    allow = sorted(set(allow)) + ["%s:443" % host for host in storage]
    cert = settings.get("cert") or os.environ.get("SSL_CERT_FILE") or ""
    return {
        "uv": os.path.realpath(uv) if uv else None,
        "indexes": indexes,
        "allow": allow + own_addresses(allow),
        "trusted": settings.get("trusted-host", "").split(),
        "cert": os.path.realpath(cert) if cert and os.path.isfile(cert) else None,
        "links": [os.path.realpath(link) for link in links
                  if "://" not in link and os.path.isdir(link)]
        + ([] if no_index else [link for link in links if "://" in link]),
    }


print(json.dumps(main()))
