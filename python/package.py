"""Writes the Python distributions, for pip (PEP 517), `make python` and `make wheel`.

Metadata is that of pyproject.toml. A wheel has the package, libdroste and the `droste` command. pip
builds these with the libraries of this machine (scripts/setup), for this machine;
packaging/wheel/make-wheel builds them for all machines. Members are sorted and have one date, so
that equal contents are equal files.
"""
import base64
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = "libdroste.so.0"
#: the date of all members, unless SOURCE_DATE_EPOCH says another; zip begins in 1980
EPOCH = max(int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800")), 315532800)


class Bundled(NamedTuple):
    """A library that is linked into a wheel's binaries."""
    name: str
    version: str
    licence: str        # an SPDX expression
    copyright: str      # a file with the texts


class Member(NamedTuple):
    name: str
    data: bytes
    mode: int = 0o644


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def text_of(*path: str) -> str:
    return read(os.path.join(ROOT, *path)).decode()


def version() -> str:
    return re.search(r"version: '([^']+)'", text_of("meson.build")).group(1)


# -- metadata

def project(path: str = "pyproject.toml") -> dict:
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib     # Python 3.9 and 3.10; pyproject.toml requires it there
    return tomllib.loads(text_of(path))["project"]


def metadata(about: dict, bundled: Iterable[Bundled] = ()) -> str:
    """METADATA (core metadata 2.4), of a [project] table."""
    licence = " AND ".join(dict.fromkeys([about["license"], *(
        "(%s)" % one.licence if " AND " in one.licence else one.licence for one in bundled)]))
    lines = ["Metadata-Version: 2.4", "Name: " + about["name"], "Version: " + version(),
             "Summary: " + about["description"]]
    lines += ["Author: " + author["name"] for author in about["authors"]]
    lines += ["Keywords: " + ",".join(about["keywords"]), "License-Expression: " + licence]
    lines += ["License-File: " + name for name, _ in licences(about, bundled)]
    lines += ["Classifier: " + each for each in about["classifiers"]]
    lines += ["Requires-Python: " + about["requires-python"]]
    lines += ["Requires-Dist: " + each.replace("VERSION", version())
              for each in about.get("dependencies", [])]
    for extra, wanted in about.get("optional-dependencies", {}).items():
        lines += ["Provides-Extra: " + extra,
                  *("Requires-Dist: %s; extra == '%s'" % (one, extra) for one in wanted)]
    return "\n".join(lines + ["Description-Content-Type: text/markdown", "",
                              text_of(about["readme"])])


def entry_points(about: dict) -> str:
    """entry_points.txt, of a [project] table."""
    groups = {"console_scripts": about.get("scripts", {}), **about.get("entry-points", {})}
    return "\n".join("[%s]\n%s" % (group, "".join("%s = %s\n" % pair for pair in named.items()))
                     for group, named in groups.items() if named)


def licences(about: dict, bundled: Iterable[Bundled]) -> List[Tuple[str, str]]:
    """(name below dist-info/licenses, path) of each text."""
    own = [(name, os.path.join(ROOT, name)) for name in about["license-files"]]
    return own + [("bundled/%s.txt" % one.name, one.copyright) for one in bundled]


def bill_of_materials(bundled: Iterable[Bundled]) -> bytes:
    """What is inside the binaries, for scanners (PEP 770): CycloneDX."""
    parts = [{"type": "library", "name": one.name, "version": one.version,
              "purl": "pkg:deb/debian/%s@%s" % (one.name, one.version),
              "licenses": [{"expression": one.licence}]} for one in bundled]
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
                       "components": parts}, indent=1).encode()


# -- wheels

def write_zip(path: str, members: Iterable[Member]) -> None:
    date = time.gmtime(EPOCH)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for member in members:
            info = zipfile.ZipInfo(member.name, date)
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | member.mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.data)


def record_line(member: Member) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d" % (member.name, digest, len(member.data))


def write_distribution(directory: str, about: dict, tag: str, contents: Iterable[Member],
                       bundled: Iterable[Bundled] = ()) -> str:
    """Writes a wheel; returns its name."""
    stem = "%s-%s" % (about["name"].replace("-", "_"), version())
    info = stem + ".dist-info/"
    pure = "true" if tag.endswith("-any") else "false"
    members = [*contents, Member(info + "METADATA", metadata(about, bundled).encode()),
               Member(info + "WHEEL",
                      ("Wheel-Version: 1.0\nGenerator: droste (%s)\nRoot-Is-Purelib: %s\nTag: %s\n"
                       % (version(), pure, tag)).encode())]
    members += [Member(info + "licenses/" + name, read(path))
                for name, path in licences(about, bundled)]
    if bundled:
        members.append(Member(info + "sboms/libraries.cdx.json", bill_of_materials(bundled)))
    if about.get("scripts") or about.get("entry-points"):
        members.append(Member(info + "entry_points.txt", entry_points(about).encode()))
    members.sort()
    # The specification asks for dist-info at the end, so that tools find it quickly.
    members.sort(key=lambda member: ".dist-info/" in member.name)
    lines = [*map(record_line, members), info + "RECORD,,"]
    name = "%s-%s.whl" % (stem, tag)
    write_zip(os.path.join(directory, name),
              [*members, Member(info + "RECORD", ("\n".join(lines) + "\n").encode())])
    return name


def modules(package: str, suffixes: Tuple[str, ...] = (".py", ".typed", ".pyi")) -> List[Member]:
    """The files of a package below python/, as members."""
    top = os.path.join(ROOT, "python", package)
    paths = glob.glob(os.path.join(top, "**"), recursive=True)
    return [Member(os.path.relpath(path, os.path.dirname(top)), read(path))
            for path in sorted(paths) if path.endswith(suffixes)]


def launcher() -> List[Member]:
    return [Member("_droste_command.py", read(os.path.join(ROOT, "python", "_droste_command.py")))]


def write_wheel(directory: str, build: str, tag: str, bundled: Iterable[Bundled] = ()) -> str:
    """Writes the wheel of what was built in the directory `build`."""
    binaries = [Member("droste/lib/" + LIBRARY, read(os.path.join(build, LIBRARY)), 0o755),
                Member("droste/bin/droste", read(os.path.join(build, "droste")), 0o755),
                # Not imported: pip compiles it, for zygotes (src/env/local/zygote_boot.c).
                Member("droste/lib/droste_guest.py", read(os.path.join(build, "src", "guest.py")))]
    return write_distribution(directory, project(), tag,
                              [*modules("droste"), *launcher(), *binaries], list(bundled))


def write_client(directory: str) -> str:
    """Writes the wheel without the library and the command: a client of servers, for any machine.

    pip prefers the wheel of a platform where there is one.
    """
    about = {name: value for name, value in project().items() if name != "scripts"}
    about["classifiers"] = ["Operating System :: OS Independent" if "Operating System" in each
                            else each for each in about["classifiers"]]
    return write_distribution(directory, about, "py3-none-any", modules("droste"))


def write_compat(directory: str) -> str:
    """Writes droste-compat, which has nothing but modules."""
    place = os.path.join(ROOT, "python", "compat")
    members = [Member(name, read(os.path.join(place, name))) for name in sorted(os.listdir(place))
               if name.endswith((".py", ".pth"))]
    return write_distribution(directory, project("python/compat/pyproject.toml"), "py3-none-any",
                              members)


# -- with the libraries of this machine

def build_here() -> str:
    """Builds libdroste and the command where they are not up to date; returns their directory."""
    directory = os.path.join(ROOT, os.environ.get("BUILD", "build"))
    path = "/usr/bin:" + os.environ.get("PATH", "")     # the tools that scripts/setup installs
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "PYTHONHOME")}
    targets = (["droste", "libdroste.so." + version()]
               if os.path.exists(os.path.join(directory, "build.ninja")) else [])
    subprocess.run([os.path.join(ROOT, "scripts", "build"), directory, "--buildtype=release", "--",
                    *targets],
                   cwd=ROOT, check=True, env={**environment, "PATH": path})
    return directory


def tag_here() -> str:
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


# -- what pip calls

def build_wheel(wheel_directory: str, config_settings: Optional[Dict[str, str]] = None,
                metadata_directory: Optional[str] = None) -> str:
    return write_wheel(wheel_directory, build_here(), tag_here())


def build_editable(wheel_directory: str, config_settings: Optional[Dict[str, str]] = None,
                   metadata_directory: Optional[str] = None) -> str:
    """The package stays where it is, and finds the library in the checkout's build directory."""
    build_here()
    return write_distribution(wheel_directory, project(), tag_here(), [
        Member("droste.pth", (os.path.join(ROOT, "python") + "\n").encode())])


def sources() -> List[str]:
    """The files of a source distribution: those in git, or in the unpacked distribution."""
    if os.path.exists(os.path.join(ROOT, "PKG-INFO")):
        names = [os.path.relpath(os.path.join(place, name), ROOT)
                 for place, _, files in os.walk(ROOT) for name in files]
        return sorted(name for name in names if not re.search(
            r"^(build[-/]|dist/|PKG-INFO$|\.(cache|hypothesis|pytest_cache)/)|\.pyc$", name))
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT,
                            check=True, capture_output=True).stdout
    names = [name.decode() for name in listed.split(b"\0") if name]
    return sorted(name for name in names if os.path.lexists(os.path.join(ROOT, name)))


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, str]] = None) -> str:
    stem = "droste-%s" % version()
    name = stem + ".tar.gz"

    def alike(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime, info.mode = EPOCH, 0o755 if info.mode & 0o100 else 0o644
        return info

    with open(os.path.join(sdist_directory, name),
              "wb") as file, gzip.GzipFile("", "wb", 9, file, EPOCH) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        about = metadata(project()).encode()
        info = tarfile.TarInfo(stem + "/PKG-INFO")
        info.size = len(about)
        archive.addfile(alike(info), io.BytesIO(about))
        for path in sources():
            archive.add(os.path.join(ROOT, path), "%s/%s" % (stem, path), recursive=False,
                        filter=alike)
    return name


# -- what `make python` calls

def main() -> None:
    """Makes an environment with the package in it."""
    environment = sys.argv[1]
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages",
                    environment], check=True)
    python = os.path.join(environment, "bin", "python3")
    place = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           check=True,
                           capture_output=True, text=True).stdout.strip()
    wheel = os.path.join(environment, build_wheel(environment))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    os.chmod(os.path.join(place, "droste", "bin", "droste"), 0o755)
    command = os.path.join(environment, "bin", "droste")
    with open(command, "w") as file:
        file.write("#!%s\nimport _droste_command\n_droste_command.main()\n"
                   % os.path.abspath(python))
    os.chmod(command, 0o755)
    print("%s: %s -c 'import droste'" % (os.path.basename(wheel), python))


if __name__ == "__main__":
    main()
