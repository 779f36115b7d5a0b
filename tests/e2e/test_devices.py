"""`--device nvidia`: what a sandbox has of the machine's GPUs, and what it has not."""
import json
import os
import tempfile

import pytest

import gpus
import roots
from droste_cli import DROSTE, droste

LOOK = """
import ctypes, fcntl, os
def tried(function, *words):
    try:
        return function(*words)
    except OSError as e:
        return type(e).__name__ if e.errno != 25 else "ENOTTY"
def opened(path):
    return tried(lambda: os.close(os.open(path, os.O_RDWR))) is None
def ioctl(path, command):
    with open(path, "rb+", buffering=0) as f:
        return tried(fcntl.ioctl, f, command, b"\\0" * 64)
def listed(path):
    return tried(os.listdir, path)
devices = sorted(n for n in listed("/dev") if "nvidia" in n or "other" in n)
"""

needs_machine = pytest.mark.skipif(bool(gpus.missing()), reason=str(gpus.missing()))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    place = tmp_path_factory.mktemp("driver")
    for directory in (place, *place.parents):       # users of sandboxes get here
        if str(directory) == tempfile.gettempdir():
            break
        os.chmod(directory, 0o755)
    gpus.make_driver(place)
    return place


@pytest.fixture
def run(driver, tmp_path):
    """Runs a cell on the machine with GPUs: what it submitted, or the complaint."""
    def start(code, *words, change="", command="exec"):
        place = tmp_path / ("machine%d" % len(os.listdir(tmp_path)))
        place.mkdir()
        os.symlink(driver / "lib", place / "lib")
        words = [DROSTE, command, "--json", *words, *(["-c", LOOK + code] if code else [])]
        out = gpus.run(place, words, change,
                       env={"DROSTE_HOME": str(place), "DROSTE_DATABASE": "none"})
        if not out.stdout:
            return out.stderr
        result = json.loads(out.stdout)
        return result.get("submit") or result
    return start


@needs_machine
@pytest.mark.parametrize("words", [["--isolation", "full"], ["--isolation", "light"],
                                   ["--root", "private"]], ids="-".join)
def test_code_opens_the_gpus_and_loads_the_driver(run, words):
    saw = run("""
SUBMIT(devices=devices, gpu=opened("/dev/nvidia0") and opened("/dev/nvidia1"),
       init=ctypes.CDLL("libcuda.so.1").cuInit(2), command=ioctl("/dev/nvidiactl", 0xC00846C8),
       memory=ioctl("/dev/nvidia-uvm", 0x30000001) + ioctl("/dev/nvidia-uvm", 37))
""", "--device", "nvidia", "--memory", "1G", *words)
    assert saw == {"devices": ["nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1", "nvidiactl"],
                   "gpu": True, "init": 42, "command": "ENOTTY", "memory": "ENOTTYENOTTY"}


@needs_machine
def test_only_the_gpus_that_are_named_are_there(run):
    saw = run("SUBMIT(devices=devices, one=opened('/dev/nvidia1'), other=opened('/dev/nvidia0'))",
              "--device", "nvidia:1")
    assert saw == {"devices": ["nvidia-uvm", "nvidia-uvm-tools", "nvidia1", "nvidiactl"],
                   "one": True, "other": False}


@needs_machine
@pytest.mark.parametrize("level", ["full", "light", "landlock"])
def test_without_permission_there_is_no_device_and_no_command_of_its_driver(run, level):
    saw = run("""
import errno
def refused(command):
    try:
        with open("/dev/null", "rb+", buffering=0) as f:
            fcntl.ioctl(f, command, b"")
    except OSError as e:
        return errno.errorcode[e.errno]
made = tried(os.mknod, "/tmp/nvidia0", 0o20666, os.makedev(1, 3))
SUBMIT(opens=[n for n in ("nvidiactl", "nvidia0", "nvidia-uvm", "other0") if opened("/dev/" + n)],
       made=made, refused=[refused(c) for c in (0xC00846C8, 0x30000001, 37)])
""", "--isolation", level)
    assert saw == {"opens": [], "made": "PermissionError", "refused": ["ENOSYS"] * 3}


@needs_machine
@pytest.mark.parametrize("words", [[], ["--root", "private"]], ids="-".join)
def test_code_cannot_change_the_driver_or_make_more_devices(run, words):
    """Its own files it can change."""
    saw = run("""
library = next(l.split()[-1] for l in open("/proc/self/maps") if "libcuda.so" in l) \
    if ctypes.CDLL("libcuda.so.1") else None
def changed(function, *words):
    try:
        function(*words)
        return True
    except OSError:
        return False
tries = [changed(open, library, "r+b"), changed(os.unlink, library), changed(os.chmod, library, 0o777),
         changed(os.rename, library, library + "x"), changed(os.unlink, "/dev/nvidia0"),
         changed(os.chmod, "/dev/nvidia0", 0), changed(open, "/dev/nvidia2", "w"),
         changed(os.symlink, "/tmp/x", os.path.dirname(library) + "/libcuda.so.2")]
SUBMIT(tries=tries, own=changed(open, "/tmp/x", "w"),
       refused=tried(lambda: fcntl.ioctl(open("/dev/nvidia0"), 0x46FF)))
""", "--device", "nvidia", *words)
    assert saw == {"tries": [False] * 8, "own": True, "refused": "OSError"}


@needs_machine
def test_with_a_root_of_its_own_the_driver_is_there_for_its_loader(run, tmp_path_factory):
    root = tmp_path_factory.mktemp("rootfs") / "root"
    for directory in (root.parent, root.parent.parent):
        os.chmod(directory, 0o755)
    roots.make_root(str(root))
    look = """
import subprocess, sys
names = sorted(os.listdir("/run/nvidia/lib")) if os.path.isdir("/run/nvidia/lib") else None
below = "import ctypes; print(ctypes.CDLL('libcuda.so').cuInit(0))"
SUBMIT(devices=devices, names=names, init=tried(lambda: ctypes.CDLL("libcuda.so.1").cuInit(1)),
       below=subprocess.run([sys.executable, "-c", below], capture_output=True, text=True).stdout,
       written=tried(lambda: open("/run/nvidia/lib/libcuda.so.535.1", "r+b") and "written"))
"""
    saw = run(look, "--rootfs", str(root), "--device", "nvidia:0")
    assert saw == {"devices": ["nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidiactl"],
                   "names": ["libcuda.so", "libcuda.so.1", "libcuda.so.535.1", "libnvidia-ml.so.1",
                             "libnvidia-ml.so.535.1"],
                   "init": 41, "below": "40\n", "written": "PermissionError"}
    saw = run(look, "--rootfs", str(root))
    assert (saw["devices"], saw["names"], saw["init"]) == ([], None, "OSError")


REFUSED = {
    "no driver": ("rm $place/dev/nvidiactl", "nvidia", ["/dev/nvidiactl", "nvidia-smi"]),
    "no module": ("rm $place/dev/nvidia-uvm", "nvidia", ["nvidia-modprobe -u -c 0"]),
    "no such GPU": (":", "nvidia:0,5", ["/dev/nvidia5", "nvidia-smi -L"]),
    "not a device": ("rm $place/dev/nvidia0; touch $place/dev/nvidia0", "nvidia:0",
                     ["/dev/nvidia0"]),
    "not for all users": ("chmod 660 $place/dev/nvidia1", "nvidia:1",
                          ["/dev/nvidia1", "NVreg_DeviceFileMode"]),
    "no library": ("rm $place/lib; mkdir $place/lib", "nvidia", ["libcuda.so.1", "ldconfig"]),
}


@needs_machine
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_missing_is_named_with_what_to_do(run, case):
    change, device, words = REFUSED[case]
    said = run("pass", "--device", device, change=change)
    assert isinstance(said, str) and all(word in said for word in words), said


@needs_machine
def test_the_doctor_says_which_gpus_sandboxes_can_use(run):
    def state(change=""):
        checks = run(None, command="doctor", change=change)["checks"]
        return next((c["state"], c["text"]) for c in checks if c["name"] == "device nvidia")
    assert state() == ("ok", "2 GPUs, libraries in /lib/x86_64-linux-gnu")
    there, why = state("rm $place/dev/nvidia-uvm")
    assert there == "missing" and "nvidia-uvm" in why


@pytest.mark.parametrize("words, said", [
    (["--device", "nvidia", "--isolation", "landlock"], "full or light"),
    (["--device", "nvidia", "--isolation", "process"], "full or light"),
    (["--device", "nvidia", "--env", "e2b"], "--device"),
    (["--device", "nvidia", "--gpus", "all", "--env", "docker"], "exclude"),
    (["--device", "tpu"], "nvidia:N"), (["--device", "nvidia:"], "0 to 63"),
    (["--device", "nvidia:64"], "0 to 63"), (["--device", "nvidia:1,,2"], "0 to 63"),
    (["--device", "nvidia0"], "nvidia:N")],
    ids=lambda words: "-".join(words) if isinstance(words, list) else "")
def test_what_cannot_be_is_refused_by_name(words, said, tmp_path):
    out = droste(tmp_path, "exec", *words, "-c", "pass", E2B_API_KEY="e2b_" + "0" * 40)
    assert out.returncode != 0 and said in out.stderr, out.stderr
