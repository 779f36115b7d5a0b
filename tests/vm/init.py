#!/usr/bin/python3 -B
"""The first process of the machine that scripts/check-vm boots: mounts, runs the tests, powers off.

The kernel's own root cannot be pivoted away from, so the same directory is mounted over it first.
"""
import ctypes
import os
import subprocess

USER = 1000
CGROUPS = "/sys/fs/cgroup"
ONCE = "test_env_local"  # hundreds of sandboxes: minutes where QEMU translates
MS_BIND, MS_MOVE = 4096, 8192
POWER_OFF = 0x4321FEDC

libc = ctypes.CDLL(None, use_errno=True)


def mount(kind, at, flags=0, data=None, source=b"none"):
    os.makedirs(at, exist_ok=True)
    if libc.mount(source, at.encode(), kind and kind.encode(), flags, data) < 0:
        raise OSError(ctypes.get_errno(), "mount " + at)


def take_root():
    mount(None, "/new", MS_BIND, source=b"/")
    os.chdir("/new")
    mount(None, "/", MS_MOVE, source=b".")
    os.chroot(".")
    os.chdir("/")


def furnish():
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("devtmpfs", "/dev")
    mount("tmpfs", "/dev/shm", data=b"mode=1777")
    mount("tmpfs", "/tmp", data=b"mode=1777")
    mount("tmpfs", "/home", data=b"mode=777")
    mount("cgroup2", CGROUPS, data=b"nsdelegate,memory_recursiveprot")
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        os.dup2(os.open("/dev/console", flags), descriptor)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def delegate():
    """A cgroup of the user's, and one below it for its processes, as systemd makes them."""
    top, below = CGROUPS + "/user", CGROUPS + "/user/session"
    write(CGROUPS + "/cgroup.subtree_control", "+memory +pids +cpu")
    os.makedirs(below)
    for place in (top, below):
        os.chown(place, USER, USER)
        for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
            os.chown(os.path.join(place, name), USER, USER)
    return below


def become(user, cgroup):
    def prepare():
        write(cgroup + "/cgroup.procs", str(os.getpid()))
        if user:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
    return prepare


def run(title, command, user, cgroup, **more):
    print("== " + title, flush=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/home", "LANG": "C.UTF-8",
                   "DROSTE_HOME": "/home/%d" % user, "DROSTE_DATABASE": "none", **more}
    subprocess.run(command, env=environment, cwd="/droste", stdin=subprocess.DEVNULL,
                   preexec_fn=become(user, cgroup))


def run_all(who, user, cgroup):
    run("limits, " + who, ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "-rs", "--color=no",
                           "-p",
                           "no:cacheprovider", "/droste/tests/vm"], user, cgroup)
    for name in sorted(os.listdir("/droste/build/tests")):
        if user and name == ONCE:
            continue
        run("%s, %s" % (name, who), ["/droste/build/tests/" + name], user, cgroup,
            CMOCKA_MESSAGE_OUTPUT="TAP", DROSTE_TEST_ISOLATION="full")


def run_for_all():
    run_all("root", 0, CGROUPS)
    run_all("ordinary user", USER, delegate())
    print("== end", flush=True)


def reap_until_the_end_of(work):
    """Runs it in a child, and reaps meanwhile what dead hosts leave: a process holds its filters
    until then."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    while os.wait()[0] != child:
        pass


if os.getpid() == 1:
    try:
        take_root()
        furnish()
        reap_until_the_end_of(run_for_all)
    finally:
        libc.sync()
        libc.reboot(POWER_OFF)
