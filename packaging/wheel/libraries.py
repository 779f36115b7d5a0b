"""The libraries that a wheel contains, built static from Debian's sources.

Each library is a row of LIBRARIES: its source package, the libraries it needs, and the commands
that build and install it with only the features that Droste uses. Each is installed in a directory
of its own below BUILD/wheel, whose name has the version of the source and a digest of everything
else that determines the result; a directory that exists is used as it is. Sources come from where
apt on this machine gets its packages. The compiler is Zig's clang, a package of the Python index:
it has the headers and symbol versions of every glibc, for both architectures.
"""
from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

GLIBC = "2.28"
ARCHITECTURES = ("x86_64", "aarch64")
ZIG = "ziglang==0.17.1"
#: Absolute paths stay out of the binaries, so that two checkouts build the same bytes.
FLAGS = (
    "-O2 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -fstack-protector-strong "
    "-fno-sanitize=undefined -g0 -ffile-prefix-map={work}=.")

#: Zig's linker is LLD, which meson 1.0 would recognise. Zig hands a text on standard input to clang
#: itself, which knows no version of glibc.
COMPILER = """case " $* " in
*' -Wl,--version '*) echo 'LLD (compatible with GNU linkers)'; exit ;;
*' - '*) exec '{zig}' cc -target {arch}-linux-gnu "$@" ;;
esac
exec '{zig}' cc -target {arch}-linux-gnu.{glibc} "$@"
"""

CONFIGURE = ("./configure --host={arch}-linux-gnu --prefix={prefix} --disable-shared "
             "--enable-static ")
CMAKE = ("cmake -S . -B objects -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={arch} "
         "-DCMAKE_C_COMPILER=\"$(command -v $CC)\" -DCMAKE_AR=\"$(command -v $AR)\" "
         "-DCMAKE_RANLIB=\"$(command -v $RANLIB)\" "
         "-DCMAKE_INSTALL_PREFIX={prefix} -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=None "
         "-DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF ")
NINJA = "ninja -C objects install"
MAKE = "make -j{jobs}"


@dataclass(frozen=True)
class Library:
    """One row: `source` is Debian's name of the source package, `licence` an SPDX expression.
    `texts` are files of the source with a licence that Debian's copyright file only names."""
    source: str
    licence: str
    commands: List[str]
    needs: List[str]
    texts: Tuple[str, ...] = ()


LIBRARIES: Dict[str, Library] = {
    "zlib": Library("zlib", "Zlib", [
        "CHOST={arch}-linux-gnu ./configure --static --prefix={prefix}", MAKE + " libz.a",
        "make install"], []),
    "zstd": Library("libzstd", "BSD-3-Clause", [
        # No dictionaries, no formats from before 1.0: the record stores frames of its own.
        MAKE
        + " -C lib libzstd.a ZSTD_LEGACY_SUPPORT=0 ZSTD_LIB_DICTBUILDER=0 ZSTD_LIB_DEPRECATED=0",
        "make -C lib install-static install-includes install-pc PREFIX={prefix} "
        "ZSTD_LEGACY_SUPPORT=0 ZSTD_LIB_DICTBUILDER=0 ZSTD_LIB_DEPRECATED=0"], []),
    "json-c": Library("json-c", "MIT", [
        CMAKE
        + "-DBUILD_APPS=OFF -DBUILD_STATIC_LIBS=ON -DDISABLE_EXTRA_LIBS=ON -DDISABLE_WERROR=ON",
        NINJA], []),
    "libuv": Library("libuv1", "MIT AND BSD-2-Clause AND ISC", [
        CMAKE + "-DLIBUV_BUILD_TESTS=OFF", "ninja -C objects uv_a",
        "install -D -m 644 objects/libuv_a.a {prefix}/lib/libuv.a",
        "mkdir -p {prefix}/include {prefix}/lib/pkgconfig",
        "cp -r include/uv include/uv.h {prefix}/include/",
        "printf 'prefix=%s\\nName: libuv\\nDescription: event loop\\nVersion: {upstream}\\n"
        "Libs: -L${{prefix}}/lib -luv -lpthread -ldl -lrt\\nCflags: -I${{prefix}}/include\\n' "
        "{prefix} >{prefix}/lib/pkgconfig/libuv.pc"], []),
    "pcre2": Library("pcre2", "BSD-3-Clause", [
        CMAKE
        + "-DPCRE2_BUILD_PCRE2_8=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF "
          "-DPCRE2_SUPPORT_UNICODE=ON", NINJA], []),
    "libseccomp": Library("libseccomp", "LGPL-2.1-only", [
        "[ -x configure ] || ./autogen.sh", CONFIGURE, MAKE + " -C src install",
        "make -C include install", "make install-pkgconfDATA"], [], ("LICENSE",)),
    "sqlite": Library("sqlite3", "blessing", [
        "./configure --disable-tcl --disable-shared --disable-readline --host={arch}-linux-gnu "
        "--prefix={prefix}",
        # A tool of the build, which Debian's makefile compiles as a program of the target.
        "build-cc -o lemon tool/lemon.c && cp tool/lempar.c .", "make sqlite3.c sqlite3.h",
        "$CC $CFLAGS -DSQLITE_THREADSAFE=1 -DSQLITE_DQS=0 -DSQLITE_OMIT_LOAD_EXTENSION "
        "-DSQLITE_OMIT_DEPRECATED "
        "-DSQLITE_OMIT_SHARED_CACHE -DSQLITE_DEFAULT_MEMSTATUS=0 -c sqlite3.c -o sqlite3.o",
        "mkdir -p {prefix}/lib/pkgconfig {prefix}/include",
        "$AR rcs {prefix}/lib/libsqlite3.a sqlite3.o",
        "cp sqlite3.h {prefix}/include/", "make sqlite3.pc",
        "cp sqlite3.pc {prefix}/lib/pkgconfig/"], []),
    "openssl": Library("openssl", "Apache-2.0", [
        # Certificates are found at run time (net/connect_options.c); a machine's openssl.cnf is
        # written for its own version.
        "perl Configure linux-{arch} --prefix={prefix} --libdir=lib --openssldir=/etc/ssl "
        "no-shared no-tests no-engine no-dso "
        "no-legacy no-module no-autoload-config no-ui-console no-comp no-cms no-ts no-ct no-ocsp "
        "no-srp no-psk no-dtls no-ssl3 no-tls1 "
        "no-tls1_1 no-gost no-sm2 no-sm3 no-sm4 no-aria no-camellia no-seed no-idea no-cast no-bf "
        "no-rc2 no-rc4 no-md4 "
        "no-mdc2 no-rmd160 no-whirlpool no-blake2 no-siphash no-scrypt no-ec2m no-dsa no-cmp "
        "no-rfc3779 no-siv no-ocb no-srtp "
        "no-afalgeng no-devcryptoeng no-padlockeng",
        MAKE + " build_generated", MAKE + " build_libs", "make install_dev"], []),
    "curl": Library("curl", "curl", [
        CONFIGURE
        + "--with-openssl --with-zlib --without-brotli --without-zstd --without-libidn2 "
          "--without-libpsl --without-nghttp2 "
        "--without-librtmp --without-libssh2 --without-gssapi --disable-ftp --disable-file "
        "--disable-ldap --disable-ldaps --disable-rtsp "
        "--disable-dict --disable-telnet --disable-tftp --disable-pop3 --disable-imap "
        "--disable-smb --disable-smtp --disable-gopher "
        "--disable-mqtt --disable-manual --disable-ntlm --disable-kerberos-auth "
        "--disable-negotiate-auth --disable-aws --disable-cookies "
        "--disable-alt-svc --disable-hsts --disable-doh --disable-netrc --disable-libcurl-option "
        "--disable-tls-srp --disable-get-easy-options "
        "--enable-threaded-resolver --without-ca-bundle --without-ca-path --disable-debug "
        "--disable-dependency-tracking",
        MAKE + " -C lib install", "make -C include install", "make install-pkgconfigDATA",
        "sed -i 's/^Libs.private:.*/Requires.private: libssl libcrypto zlib/' "
        "{prefix}/lib/pkgconfig/libcurl.pc"], ["zlib", "openssl"]),
    "libarchive": Library("libarchive", "BSD-2-Clause", [
        # src/image reads tar, with the compressions of images.
        CMAKE
        + "-DENABLE_TEST=OFF -DENABLE_TAR=OFF -DENABLE_CPIO=OFF -DENABLE_CAT=OFF "
          "-DENABLE_UNZIP=OFF -DENABLE_ACL=OFF -DENABLE_XATTR=OFF -DENABLE_ICONV=OFF "
          "-DENABLE_OPENSSL=OFF -DENABLE_NETTLE=OFF -DENABLE_LIBB2=OFF -DENABLE_LIBXML2=OFF "
          "-DENABLE_EXPAT=OFF -DENABLE_LZMA=OFF -DENABLE_BZip2=OFF -DENABLE_LZ4=OFF "
          "-DENABLE_LZO=OFF -DENABLE_PCREPOSIX=OFF -DCMAKE_BUILD_TYPE=Release "
          "-DCMAKE_PREFIX_PATH=\"$(echo \"$LDFLAGS\" | sed 's/-L//g; s#/lib##g; s/ /;/g')\"",
        NINJA,
        "sed -i -e 's/^Requires.private:.*/Requires.private: zlib libzstd/' "
        "-e '/^Libs.private:/d' {prefix}/lib/pkgconfig/libarchive.pc"], ["zlib", "zstd"]),
    "ncurses": Library("ncurses", "X11", [
        # The common terminals are built in: a machine may have no description of any.
        CONFIGURE
        + "--without-cxx --without-cxx-binding --without-ada --without-manpages --without-progs "
          "--without-tests --without-debug "
        "--with-termlib=tinfo --disable-widec --enable-pc-files "
        "--with-pkg-config-libdir={prefix}/lib/pkgconfig --disable-stripping "
        "--with-fallbacks=xterm,xterm-256color,screen,screen-256color,tmux,tmux-256color,linux,"
        "vt100,vt220,dumb "
        "--with-default-terminfo-dir=/usr/share/terminfo "
        "--with-terminfo-dirs=/etc/terminfo:/lib/terminfo:/usr/share/terminfo --without-shared "
        "--enable-overwrite",
        MAKE + " -C include", MAKE + " -C ncurses", "make -C include install",
        "make -C ncurses install", "make -C misc install.libs"], []),
    "libedit": Library("libedit", "BSD-3-Clause", [
        CONFIGURE + "--disable-examples",
        # Debian's patches are newer than the generated files, which are right.
        MAKE + " -C src install ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:",
        "make install-pkgconfigDATA ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:",
        "sed -i 's/^Requires:.*/Requires.private: tinfo/' {prefix}/lib/pkgconfig/libedit.pc"],
                       ["ncurses"]),
    "libmicrohttpd": Library("libmicrohttpd", "LGPL-2.1-or-later", [
        # Debian's patches may be newer than the generated files, which are right.
        CONFIGURE + "--disable-https --disable-doc --disable-examples --disable-curl "
        "--disable-dauth --disable-bauth",
        MAKE + " -C src/include install ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:",
        MAKE + " -C src/microhttpd install ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:",
        "make install-pkgconfigDATA ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:"], [],
        ("COPYING",)),
}


class Failed(Exception):
    """A step did not work; the text says which, and what it printed."""


class Workshop:
    """The directory in which wheels are built, with the compiler."""

    def __init__(self, directory: str):
        self.directory = os.path.abspath(directory)
        self.sources = os.path.join(self.directory, "sources")
        self.log = os.path.join(self.directory, "log")
        os.makedirs(self.sources, exist_ok=True)
        self.zig = self.install_zig()

    # -- commands

    def run(self, command: List[str], environment: Optional[Dict[str, str]] = None,
            cwd: Optional[str] = None) -> str:
        done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        if done.returncode:
            raise Failed("%s\nexit status %d of: %s" % ("\n".join(done.stdout.splitlines()[-40:]),
                                                        done.returncode, " ".join(command)))
        return done.stdout

    # -- the compiler

    def install_zig(self) -> str:
        """The path of the compiler, from the Python index the first time."""
        place = os.path.join(self.directory, ZIG.replace("==", "-"))
        found = glob.glob(place + "/lib/python*/site-packages/ziglang/zig")
        if not found:
            print("Installing the compiler (%s)" % ZIG, flush=True)
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place + ".new", with_pip=True, clear=True)
            self.run([place + ".new/bin/python", "-m", "pip", "install", "-q",
                      "--disable-pip-version-check", ZIG])
            os.rename(place + ".new", place)
            found = glob.glob(place + "/lib/python*/site-packages/ziglang/zig")
        return found[0]

    def tools(self, arch: str) -> str:
        """A directory with `cc`, `ar`, `ranlib` for an architecture. Build systems find them in
        PATH, since some write the compiler's name into what they build."""
        place = os.path.join(self.directory, "tools", arch)
        os.makedirs(place, exist_ok=True)
        texts = {arch + "-cc": COMPILER.format(zig=self.zig, arch=arch, glibc=GLIBC),
                 "build-cc": "exec '%s' cc \"$@\"\n" % self.zig}
        texts.update(("%s-%s" % (arch, word), "exec '%s' %s \"$@\"\n" % (self.zig, word))
                     for word in ("ar", "ranlib"))
        for name, text in texts.items():
            path = os.path.join(place, name)
            if not os.path.exists(path) or open(path).read() != "#!/bin/sh\n" + text:
                with open(path + ".new", "w") as file:
                    file.write("#!/bin/sh\n" + text)
                os.chmod(path + ".new", 0o755)
                os.rename(path + ".new", path)
        return place

    def environment(self, arch: str, work: str, prefixes: List[str]) -> Dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "PATH": self.tools(arch) + ":/usr/bin:/bin:/usr/sbin:/sbin",
                "CC": arch + "-cc", "AR": arch + "-ar", "RANLIB": arch + "-ranlib",
                "BUILD_CC": "build-cc", "CC_FOR_BUILD": "build-cc",
                "CFLAGS": FLAGS.format(work=work),
                "CPPFLAGS": " ".join("-I%s/include" % p for p in prefixes),
                "LDFLAGS": " ".join("-L%s/lib" % p for p in prefixes),
                "PKG_CONFIG_LIBDIR": ":".join(p + "/lib/pkgconfig" for p in prefixes),
                "LC_ALL": "C.UTF-8",
                "SOURCE_DATE_EPOCH": "1577836800", "ZERO_AR_DATE": "1",
                "ZIG_GLOBAL_CACHE_DIR": os.path.join(self.directory, "zig-cache"),
                "ZIG_LOCAL_CACHE_DIR": os.path.join(self.directory, "zig-cache")}

    # -- sources

    def apt(self, *words: str) -> str:
        """apt with its own lists, which have the sources of the repositories of this machine."""
        state = os.path.join(self.sources, "apt")
        listed = os.path.join(state, "sources.list")
        options = ["-q", "-o", "Dir::State::lists=%s/lists" % state, "-o",
                   "Dir::Etc::sourcelist=" + listed,
                   "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::Cache=%s/cache" % state,
                   "-o", "APT::Sandbox::User=root"]
        if not os.path.exists(listed):
            for name in ("lists/partial", "cache/archives/partial"):
                os.makedirs(os.path.join(state, name), exist_ok=True)
            found = self.run(["apt-get", "indextargets", "--format",
                              "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)",
                              "Created-By: Packages"])
            lines = ["deb-src " + line.rsplit(" ", 1)[0]
                     for line in dict.fromkeys(found.splitlines()) if line.endswith(" main Debian")]
            if not lines:
                raise Failed(
                    "apt's sources name no Debian repository: libraries are built from Debian's "
                    "source packages")
            with open(listed + ".new", "w") as file:
                file.write("\n".join(lines) + "\n")
            self.run(["apt-get", *options, "-o", "Dir::Etc::sourcelist=" + listed + ".new",
                      "update"])
            os.rename(listed + ".new", listed)
        return self.run([words[0], *options, *words[1:]], cwd=self.sources)

    def fetch(self, name: str) -> str:
        """The path of a library's .dsc: the one on disk, otherwise the newest available."""
        source = LIBRARIES[name].source
        there = glob.glob(os.path.join(self.sources, "fetched", source, "*.dsc"))
        if there:
            return there[0]
        versions = re.findall(r"^\s*%s +\| +(\S+) \|" % re.escape(source),
                              self.apt("apt-cache", "madison", source), re.MULTILINE)
        why = "apt knows no source package %s" % source
        for version in dict.fromkeys(versions):
            place = os.path.join(self.sources, "fetched", source)
            shutil.rmtree(place + ".new", ignore_errors=True)
            os.makedirs(place + ".new")
            try:
                self.apt("apt-get", "source", "--download-only", "%s=%s" % (source, version))
            except Failed as e:     # a mirror may list a version that it does not have yet
                why = str(e)
                continue
            for path in glob.glob(os.path.join(self.sources, source + "_*")):
                os.rename(path, os.path.join(place + ".new", os.path.basename(path)))
            shutil.rmtree(place, ignore_errors=True)
            os.rename(place + ".new", place)
            return self.fetch(name)
        raise Failed(why)

    def version(self, name: str) -> str:
        with open(self.fetch(name), errors="replace") as file:
            return re.search(r"^Version: (?:\d+:)?(\S+)", file.read(), re.MULTILINE).group(1)

    # -- libraries

    def prefix(self, name: str, arch: str) -> str:
        """Where a library is installed: named for its version and all inputs of its build."""
        row = LIBRARIES[name]
        content = repr((row.commands, FLAGS, GLIBC, ZIG, *row.texts,
                        [os.path.basename(self.prefix(n, arch)) for n in row.needs]))
        return os.path.join(self.directory, arch, "%s-%s-%s" % (
            name, self.version(name), hashlib.sha256(content.encode()).hexdigest()[:12]))

    def build(self, name: str, arch: str) -> str:
        """Builds a library where it is not built yet; returns its prefix."""
        row = LIBRARIES[name]
        prefixes = [self.build(needed, arch) for needed in row.needs]
        prefix = self.prefix(name, arch)
        if os.path.isdir(prefix):
            return prefix
        print("Building %s %s for %s" % (name, self.version(name), arch), flush=True)
        work = os.path.join(self.directory, arch, "work", name)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(os.path.dirname(work), exist_ok=True)
        self.run(["dpkg-source", "--no-check", "-x", self.fetch(name), work])
        install = work + ".installed"
        shutil.rmtree(install, ignore_errors=True)
        words = {"arch": arch, "prefix": install, "jobs": str(os.cpu_count() or 1),
                 "upstream": self.version(name).split("-")[0]}
        environment = self.environment(arch, work, prefixes)
        for command in row.commands:
            self.run(["sh", "-c", command.format(**words)], environment, cwd=work)
        self.take_licence(name, work, install)
        for path in glob.glob(install + "/lib/pkgconfig/*.pc"):
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(text.replace(install, prefix))
        os.rename(install, prefix)
        shutil.rmtree(work)
        return prefix

    def take_licence(self, name: str, work: str, install: str) -> None:
        """Debian's copyright file has the licences of all files of a source package, but says of a
        long one only where Debian has its text."""
        with open(os.path.join(install, "copyright"), "wb") as out:
            for path in ("debian/copyright", *LIBRARIES[name].texts):
                with open(os.path.join(work, path), "rb") as file:
                    out.write(file.read().rstrip() + b"\n\n")

    def build_all(self, arch: str) -> List[str]:
        return [self.build(name, arch) for name in LIBRARIES]


def main() -> None:
    shop = Workshop(sys.argv[1])
    for arch in sys.argv[2:] or ARCHITECTURES:
        shop.build_all(arch)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit("libraries: %s" % e)
