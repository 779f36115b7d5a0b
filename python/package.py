"""Builds the Python package; pip calls this (PEP 517), and `make python`.

A wheel has the package, libdroste.so.0, and the shared libraries that it needs beyond the C library's
own: `ldd` says which, and libdroste looks for them beside itself (meson.build). Nothing is fetched: meson,
ninja and the libraries are those of this machine (scripts/setup).
"""
import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = "libdroste.so.0"
# Those of the C library, which every machine has, in the version that its kernel and loader go with.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libresolv|libgcc_s)[.-]")


def version():
    with open(os.path.join(ROOT, "meson.build")) as file:
        return re.search(r"version: '([^']+)'", file.read()).group(1)


def metadata():
    with open(os.path.join(ROOT, "docs", "python.md")) as page:
        about = page.read()
    return ("Metadata-Version: 2.1\nName: droste\nVersion: %s\n"
            "Summary: A runtime for Recursive Language Models: sandboxed Python sessions, models, budgets, records\n"
            "License: Apache-2.0\nRequires-Python: >=3.9\nClassifier: Typing :: Typed\n"
            "Provides-Extra: modal\nRequires-Dist: modal>=1.6; extra == 'modal'\n"
            "Description-Content-Type: text/markdown\n\n%s" % (version(), about))


def tag():
    return "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def needed(library):
    """The shared libraries that it needs, and those that these need: (name, path)."""
    said = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", said, re.MULTILINE):
        if not SYSTEM.match(name):
            yield name, path


def build_library():
    """The path of the library, built where it is not up to date."""
    directory = os.environ.get("BUILD", "build")
    directory = os.path.join(ROOT, directory)
    path = "/usr/bin:" + os.environ.get("PATH", "")     # the tools that scripts/setup installs
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    subprocess.run([os.path.join(ROOT, "scripts", "build"), directory, "--buildtype=release", "--", "libdroste.so." + version()
                    if os.path.exists(os.path.join(directory, "build.ninja")) else "all"],
                   cwd=ROOT, check=True, env={**environment, "PATH": path})
    return os.path.join(directory, LIBRARY)


def files():
    """(name in the wheel, path) of everything but the metadata."""
    package = os.path.join(ROOT, "python", "droste")
    for path in sorted(glob.glob(os.path.join(package, "**"), recursive=True)):
        if path.endswith((".py", ".typed")):
            yield "droste/" + os.path.relpath(path, package), path
    library = build_library()
    yield "droste/lib/" + LIBRARY, library
    for name, path in sorted(needed(library)):
        yield "droste/lib/" + name, path


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, info):
        self.record.append("%s/RECORD,," % info)
        self.zip.writestr("%s/RECORD" % info, "\n".join(self.record) + "\n")
        self.zip.close()


def write_wheel(directory, contents):
    name = "droste-%s-%s.whl" % (version(), tag())
    info = "droste-%s.dist-info" % version()
    wheel = Wheel(os.path.join(directory, name))
    for inside, data in contents:
        wheel.add(inside, data, 0o755 if ".so" in inside else 0o644)
    wheel.add(info + "/METADATA", metadata().encode())
    wheel.add(info + "/WHEEL", ("Wheel-Version: 1.0\nGenerator: droste\nRoot-Is-Purelib: false\nTag: %s\n" % tag()).encode())
    wheel.close(info)
    return name


def read(path):
    with open(path, "rb") as file:
        return file.read()


# -- what pip calls

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, ((name, read(path)) for name, path in files()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package stays where it is, and finds the library in the checkout's build directory."""
    build_library()
    return write_wheel(wheel_directory, [("droste.pth", (os.path.join(ROOT, "python") + "\n").encode())])


def build_sdist(sdist_directory, config_settings=None):
    """What is in git."""
    name = "droste-%s" % version()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz") as archive:
        for path in filter(None, listed):
            archive.add(os.path.join(ROOT, path.decode()), "%s/%s" % (name, path.decode()))
    return name + ".tar.gz"


def main():
    """An environment with the package in it."""
    environment = sys.argv[1]
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", environment], check=True)
    python = os.path.join(environment, "bin", "python3")
    place = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                           capture_output=True, text=True).stdout.strip()
    wheel = os.path.join(environment, build_wheel(environment))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    print("%s: %s/bin/python3 -c 'import droste'" % (os.path.basename(wheel), environment))


if __name__ == "__main__":
    main()
