"""A Docker daemon of the tests' own: its files, its socket and its network are nobody else's.

    with Daemon() as daemon: ... daemon.environment ...     # DOCKER_HOST and DROSTE_TEST_IMAGE
    python3 tests/docker_daemon.py COMMAND...               # runs a command beside one

Needs root and dockerd; `missing()` says what is not there. The image is scripts/docker-image's:
Debian with Python.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMAGE = "droste-test:latest"
TAR = os.path.join(ROOT, os.environ.get("BUILD", "build"), "docker-image.tar")
START_SECONDS = 180


def missing():
    """Why there can be no daemon here; "" where there can."""
    if os.geteuid() != 0:
        return "needs root, to start a Docker daemon"
    if not shutil.which("dockerd"):
        return "needs dockerd: apt-get install docker.io"
    if not os.path.exists(TAR) and not shutil.which("debootstrap"):
        return "needs debootstrap, to make an image"
    return ""


def make_image():
    if not os.path.exists(TAR):
        subprocess.run([os.path.join(ROOT, "scripts", "docker-image"), TAR], check=True)
    return TAR


class Daemon:
    def __init__(self, *options):
        self.dir = tempfile.mkdtemp(prefix="dockerd-", dir="/tmp")     # a socket's path is short
        self.host = "unix://%s/s" % self.dir
        self.options = options
        self.process = None

    @property
    def environment(self):
        return {"DOCKER_HOST": self.host, "DROSTE_TEST_IMAGE": IMAGE}

    def start(self):
        pidfile = os.path.join(self.dir, "pid")
        self.end_leftovers("containerd\0")     # of one that was killed: the next would wait for it
        for left in (pidfile, self.dir + "/exec/containerd/containerd.pid"):
            if os.path.exists(left):
                os.unlink(left)
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", "--host", self.host, "--data-root", self.dir + "/data", "--exec-root",
                 self.dir + "/exec", "--pidfile", pidfile, "--bridge", "none", "--iptables=false",
                 "--ip6tables=false", *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + START_SECONDS
        while self.docker("version", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("dockerd does not start:\n" + self.log())
            time.sleep(0.1)
        if not self.docker("images", "-q", IMAGE).stdout.strip():
            self.docker("import", make_image(), IMAGE)
        return self

    def docker(self, *words, check=True):
        """The CLI, for what a user would do with it."""
        return subprocess.run(["docker", "--host", self.host, *words], check=check, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def containers(self):
        """All there are, running or not, as `docker inspect` shows them."""
        ids = self.docker("ps", "-aq").stdout.split()
        found = self.docker("inspect", *ids, check=False).stdout if ids else "[]"
        return json.loads(found or "[]")

    def log(self):
        with open(os.path.join(self.dir, "log"), errors="replace") as file:
            return file.read()[-3000:]

    def kill(self):
        """As the kernel's out-of-memory killer would: what it started goes on."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def close(self):
        self.stop()
        self.end_leftovers()
        with open("/proc/self/mounts") as mounts:
            below = [line.split()[1] for line in mounts if line.split()[1].startswith(self.dir)]
        for place in sorted(below, reverse=True):
            subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def end_leftovers(self, name="containerd"):
        """Of a daemon that was killed: containerd, and its shims with what they hold."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    words = file.read()
                if self.dir.encode() in words and name.encode() in words:
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error):
        self.close()


if __name__ == "__main__":
    if missing():
        sys.exit("docker_daemon.py: " + missing())
    with Daemon() as own:
        sys.exit(subprocess.call(sys.argv[1:], env={**os.environ, **own.environment}))
