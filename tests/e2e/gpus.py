"""A machine with NVIDIA's GPUs, as far as sandboxes see one, for one command of the tests.

The command runs in a mount namespace of its own, as root. /dev has device files there that do what
/dev/null does, the directory of system libraries has a libcuda that is compiled here, and
ld.so.cache, which ldconfig writes, knows it. Droste finds all of them where it would on a real
machine.
"""
import os
import subprocess

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1", "nvidia-modeset",
           "other0")

# /dev has mounts of its own (pts, shm), which move to the new one.
SCRIPT = r"""
set -e
place=$1; shift
mount --make-rprivate /
mkdir "$place/dev" "$place/changes" "$place/work"
mount -t tmpfs -o mode=755 none "$place/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$place/dev/"
mkdir "$place/dev/shm" "$place/dev/pts" "$place/dev/nvidia-caps"
chmod 1777 "$place/dev/shm"
for name in $DEVICES; do mknod -m 666 "$place/dev/$name" c 1 3; done
mknod -m 444 "$place/dev/nvidia-caps/nvidia-cap1" c 1 3
eval "$CHANGE"
mount --bind "$place/dev" /dev
mount -t tmpfs -o mode=755 none "$place/changes"
mkdir "$place/changes/upper" "$place/changes/work"
cp -a "$place"/lib/. "$place/changes/upper/"
mount -t overlay -o "lowerdir=$LIBRARIES,upperdir=$place/changes/upper,workdir=$place/changes/work" \
    none "$LIBRARIES"
/sbin/ldconfig -C "$place/ld.so.cache"
mount --bind "$place/ld.so.cache" /etc/ld.so.cache
exec "$@"
"""


def missing():
    """Why this machine cannot make one; None: it can."""
    if os.getuid() != 0:
        return "needs root"
    if not os.path.isdir(LIBRARIES):
        return "needs " + LIBRARIES
    return None


def make_driver(place):
    """Compiles the libraries of a driver into the directory `place`/lib."""
    os.makedirs(place / "lib")
    for name, code in (("cuda", "int cuInit(unsigned flags) { return 40 + (int)flags; }"),
                       ("nvidia-ml", "int nvmlInit_v2(void) { return 0; }")):
        full, soname = "lib%s.so.535.1" % name, "lib%s.so.1" % name
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname," + soname, "-x", "c", "-", "-o",
                        str(place / "lib" / full)], input=code, text=True, check=True)
        os.symlink(full, place / "lib" / soname)
    os.symlink("libcuda.so.1", place / "lib" / "libcuda.so")


def run(place, command, change="", **options):
    """Runs the command on it. `change`: shell commands that change $place/dev first."""
    environment = {**os.environ, "DEVICES": " ".join(DEVICES), "LIBRARIES": LIBRARIES,
                   "CHANGE": change, **options.pop("env", {})}
    return subprocess.run(["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(place), *command],
                          text=True, capture_output=True, timeout=60, env=environment, **options)


