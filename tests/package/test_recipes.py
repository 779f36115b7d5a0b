"""The recipes of other package managers: their syntax, and that they name this version and the
libraries of the build."""
import os
import re
import shutil

import pytest
from installed import DROSTE, ROOT, run

FORMULA = os.path.join(ROOT, "packaging", "homebrew", "droste.rb")
NIX = os.path.join(ROOT, "packaging", "nix", "default.nix")
#: a dependency of meson.build: its name for Homebrew, Nix and Debian, and in packaging/wheel; None:
#: portable builds do without
LIBRARIES = {
    "libuv": ("libuv", "libuv", "libuv1-dev", "libuv"),
    "libcurl": ("curl", "curl", "libcurl4-openssl-dev", "curl"),
    "json-c": ("json-c", "json_c", "libjson-c-dev", "json-c"),
    "sqlite3": ("sqlite", "sqlite", "libsqlite3-dev", "sqlite"),
    "libcrypto": ("openssl@3", "openssl", "libssl-dev", "openssl"),
    "libssl": ("openssl@3", "openssl", "libssl-dev", "openssl"),
    "libarchive": ("libarchive", "libarchive", "libarchive-dev", "libarchive"),
    "libzstd": ("zstd", "zstd", "libzstd-dev", "zstd"),
    "zlib": ("zlib", "zlib", "zlib1g-dev", "zlib"),
    "libpcre2-8": ("pcre2", "pcre2", "libpcre2-dev", "pcre2"),
    "libseccomp": ("libseccomp", "libseccomp", "libseccomp-dev", "libseccomp"),
    "libedit": ("libedit", "libedit", "libedit-dev", "libedit"),
    "libmicrohttpd": ("libmicrohttpd", "libmicrohttpd", "libmicrohttpd-dev", "libmicrohttpd"),
    "gnutls": ("gnutls", "gnutls", "libgnutls28-dev", None),
}
BROKEN = {"ruby": "class Droste < Formula\n", "nix": "{ pkgs }: pkgs.stdenv.mkDerivation {\n"}


def test_the_formula_is_ruby(tmp_path):
    """As ruby reads it; a formula without an end is refused."""
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    run("ruby", "-c", FORMULA)
    (tmp_path / "broken.rb").write_text(BROKEN["ruby"])
    run("ruby", "-c", tmp_path / "broken.rb", status=1)


def test_the_recipe_is_nix(tmp_path):
    """As nix-instantiate parses it; a recipe without an end is refused."""
    if not shutil.which("nix-instantiate"):
        pytest.skip("nix-bin is not installed")
    env = {**os.environ, "NIX_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    run("nix-instantiate", "--parse", NIX, env=env)
    (tmp_path / "broken.nix").write_text(BROKEN["nix"])
    run("nix-instantiate", "--parse", tmp_path / "broken.nix", env=env, status=1)


def test_versions_are_one():
    """meson.build, the changelog of Debian and the recipe of Nix."""
    version = run(DROSTE, "--version").split()[1]
    for path in (NIX, os.path.join(ROOT, "debian", "changelog")):
        with open(path) as file:
            text = file.read()
        assert re.search(r'version = "%s"|^droste \(%s\)' % ((re.escape(version),) * 2), text,
                         re.M), path


def test_recipes_have_the_libraries_of_the_build():
    """Those that meson.build looks for: no more, and no fewer."""
    def words(name, pattern):
        with open(os.path.join(ROOT, name)) as file:
            return set(re.findall(pattern, file.read(), re.M))

    assert words("meson.build", r"dependency\('([^']+)'") == set(LIBRARIES)
    brew, nix, debian, wheel = map(set, zip(*LIBRARIES.values()))
    assert words("packaging/homebrew/droste.rb", r'depends_on "([^"]+)"$') - {"python@3.13"} == brew
    assert words("packaging/nix/default.nix", r"^    (\w+)$") == nix
    assert words("debian/control", r"^ (lib\S+-dev|zlib1g-dev),$") == debian
    assert words("scripts/setup", r"(lib(?!c6)\S+-dev|zlib1g-dev)\b") - {
        "libcmocka-dev", "libclang-rt-14-dev"} == debian
    # ncurses is what libedit needs
    assert words("packaging/wheel/libraries.py", r'^    "(\S+)": Library\(') - {"ncurses"} == \
        wheel - {None}
