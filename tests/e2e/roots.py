"""A small Linux system in a directory: this machine's Python, a shell, and what they need."""
import os
import shutil
import subprocess

PYTHON = "/usr/bin/python3"
PROGRAMS = (PYTHON, "/bin/sh", "/bin/ls", "/usr/bin/id", "/usr/bin/env", "/usr/bin/sleep")
LEFT_OUT = shutil.ignore_patterns("test", "idlelib", "__pycache__", "dist-packages", "tkinter",
                                  "ensurepip", "config-3*", "lib2to3", "pydoc_data",
                                  "sitecustomize.py")   # in Debian a link to a file in /etc


def library_of():
    return subprocess.run([PYTHON, "-I", "-c", "import os; print(os.path.dirname(os.__file__))"],
                          check=True, capture_output=True, text=True).stdout.strip()


def libraries(programs):
    """The shared libraries of these programs, and their loader, by their names here."""
    found = set()
    for program in programs:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        found |= {word for word in listing.split() if word.startswith("/")}
    return found


def put(root, path):
    target = root + os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(os.path.realpath(path), target)


def make_root(root):
    """Makes it; `root` does not exist yet."""
    library = library_of()
    modules = os.path.join(library, "lib-dynload")
    shutil.copytree(library, root + library, symlinks=True, ignore=LEFT_OUT)
    binaries = list(PROGRAMS) + [os.path.join(modules, name) for name in os.listdir(modules)]
    for path in [*PROGRAMS, *libraries(binaries)]:
        put(root, path)
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), os.path.join(root, name))
    for name in ("etc", "dev", "proc", "tmp", "home"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    with open(os.path.join(root, "etc", "passwd"), "w") as accounts:
        accounts.write("root:x:0:0:root:/root:/bin/sh\n")
    with open(os.path.join(root, "etc", "release-of-test"), "w") as release:
        release.write("made by the tests\n")
