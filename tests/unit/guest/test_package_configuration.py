"""How the build of packages learns which index it may reach (guest/packages/configuration.py)."""
import importlib.util
import json
import pathlib
import socket
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "guest" / "packages" / "configuration.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is missing")


@pytest.fixture
def ask(tmp_path):
    """ask(index, configuration, **environment): what a host with this pip.conf would say."""
    def run(index="", configuration="", **environment):
        file = tmp_path / "pip.conf"
        file.write_text(configuration)
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(file)}
        done = subprocess.run([sys.executable, "-I", "-c", SCRIPT.read_text(), index],
                              env={**variables, **environment}, capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)
    return run


@pytest.mark.parametrize("url, allowed", [
    ("https://packages.invalid/simple", "packages.invalid:443"),
    ("http://packages.invalid/simple", "packages.invalid:80"),
    ("https://packages.invalid:8443/simple", "packages.invalid:8443"),
    ("http://[2001:db8::1]:81/", "[2001:db8::1]:81")])
def test_only_the_host_and_port_of_the_index_are_allowed(ask, url, allowed):
    found = ask(url)
    assert found["indexes"] == [url]
    assert allowed in found["allow"]
    assert all(place == allowed for place in found["allow"])


def test_none_allows_nothing(ask):
    found = ask("none", "[global]\nindex-url = https://packages.invalid/simple\n")
    assert (found["indexes"], found["allow"]) == ([], [])


def test_the_indexes_of_pips_configuration_are_allowed_and_what_install_says_wins(ask):
    found = ask("", "[global]\nindex-url = https://a.invalid/simple\n"
                "extra-index-url = https://b.invalid:444/simple\n"
                "[install]\nindex-url = https://c.invalid/simple\n")
    assert found["indexes"] == ["https://c.invalid/simple", "https://b.invalid:444/simple"]
    assert found["allow"] == ["b.invalid:444", "c.invalid:443"]


def test_a_variable_wins_over_the_file_and_the_setting_over_both(ask):
    file = "[global]\nindex-url = https://file.invalid/simple\n"
    variable = {"PIP_INDEX_URL": "https://variable.invalid/simple"}
    assert ask("", file, **variable)["allow"] == ["variable.invalid:443"]
    assert ask("https://own.invalid/", file, **variable)["allow"] == ["own.invalid:443"]


@pytest.mark.parametrize("url", [
    "https://user:secret@packages.invalid/simple", "https://token@packages.invalid/simple"])
def test_an_index_with_a_password_is_refused_and_its_password_not_repeated(ask, url):
    for found in (ask(url), ask("", "[global]\nindex-url = %s\n" % url),
                  ask("https://a.invalid/", "[global]\nextra-index-url = %s\n" % url)):
        assert "password" in found["error"] and "secret" not in json.dumps(found)


@pytest.mark.parametrize("url", ["ftp://a.invalid/", "file:///wheels", "a.invalid", "https:///x"])
def test_an_index_that_is_no_web_address_is_refused(ask, url):
    assert "http" in ask(url)["error"]


def test_a_client_certificate_is_refused_unless_no_index_is_used(ask):
    file = "[global]\nindex-url = https://a.invalid/\nclient-cert = /etc/cert.pem\n"
    assert "certificate" in ask("", file)["error"]
    assert "error" not in ask("none", file)


# ---- addresses of an index in a private network ----

@pytest.fixture(scope="module")
def configuration():
    """The script as a module, with its output dropped."""
    code = SCRIPT.read_text().replace("print(json.dumps(main()))", "")
    namespace = {}
    exec(compile(code, str(SCRIPT), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("address, rule", [
    ("10.1.2.3", "10.1.2.3:443"), ("172.16.0.1", "172.16.0.1:443"),
    ("192.168.7.7", "192.168.7.7:443"), ("fd00::7", "[fd00::7]:443"),
    ("100.64.0.9", "100.64.0.9:443")])
def test_a_private_address_of_a_named_index_is_allowed_with_its_port_alone(
        configuration, monkeypatch, address, rule):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [
        (family, socket.SOCK_STREAM, 6, "", (address, port))])
    assert configuration["own_addresses"](["packages.invalid:443"]) == [rule]


@pytest.mark.parametrize("address", [
    "127.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1",
    "203.0.114.7"])
def test_this_machine_and_the_metadata_of_clouds_are_never_allowed_by_a_name(
        configuration, monkeypatch, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [
        (family, socket.SOCK_STREAM, 6, "", (address, port))])
    assert configuration["own_addresses"](["packages.invalid:443"]) == []


@pytest.mark.parametrize("address", [
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1", "fd00:ec2::254", "100.100.100.200", "::7f00:1"])
def test_other_forms_of_those_addresses_are_not_allowed_either(
        configuration, monkeypatch, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [
        (family, socket.SOCK_STREAM, 6, "", (address, port))])
    assert configuration["own_addresses"](["packages.invalid:443"]) == []


def test_a_name_that_does_not_resolve_allows_nothing_more(configuration):
    assert configuration["own_addresses"](["packages.invalid:443", "nonsense"]) == []
