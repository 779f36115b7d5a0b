"""Limits of sandboxes by cgroup v2, on a kernel that has nothing else (scripts/check-vm)."""
import ctypes
import glob
import json
import os
import signal
import subprocess
import time

import pytest

DROSTE = "/droste/build/droste"
CGROUPS = "/sys/fs/cgroup"
LEVELS = ("full", "process")
MIB = 1 << 20

both = pytest.mark.parametrize("level", LEVELS)


def command(code, level, *words):
    return [DROSTE, "exec", "--json", "--isolation", level, "-c", code, *words]


def run(code, level, *words):
    """The result of a cell."""
    r = subprocess.run(command(code, level, *words), text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=120)
    assert r.stdout, r.stderr
    return json.loads(r.stdout)


def homes():
    """The directories of the hosts, wherever they are."""
    return glob.glob(CGROUPS + "/**/droste-*", recursive=True)


def read(*path):
    with open(os.path.join(*path)) as f:
        return f.read().strip()


def wait_for(what):
    for _ in range(2400):
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come true")


@pytest.fixture
def sleeping():
    """Starts hosts whose sandbox sleeps; gives the host and the directory of its sandbox."""
    hosts = []

    def start(level, *words):
        host = subprocess.Popen(command("import time; time.sleep(600)", level, *words),
                                stdout=subprocess.DEVNULL)
        hosts.append(host)

        def sandbox():
            found = glob.glob("%s/**/droste-%d-*/sandbox-*" % (CGROUPS, host.pid), recursive=True)
            return [f for f in found if len(read(f, "cgroup.procs").split()) >= 2]
        return host, wait_for(sandbox)[0]
    yield start
    for host in hosts:
        host.kill()
        host.wait()


# Children that have their memory at once: each keeps it until the last one has its own.
MANY = """
import os
has_it, tell = os.pipe()
wait, release = os.pipe()
def child():
    os.close(release)
    x = bytearray(%d << 20)
    for i in range(0, len(x), 4096): x[i] = 1
    os.write(tell, b"x")
    os.read(wait, 1)
    os._exit(0)
n = %d
for i in range(n):
    if os.fork() == 0: child()
for i in range(n): os.read(has_it, 1)
os.close(release)
while True:
    try: os.wait()
    except ChildProcessError: break
SUBMIT(done=True)
"""


@both
def test_processes_that_together_reach_the_memory_limit_are_killed_by_name(level):
    """Each is far below it. The reason says how much it is and what raises it."""
    r = run(MANY % (30, 6), level, "--memory", "96M")
    assert (r["status"], r["killed"], r["alive"]) == ("killed", "memory", False)
    assert r["error"]["type"] == "SandboxKilled"
    for part in ("as a whole", "memory", "96M", "--memory"):
        assert part in r["error"]["message"]
    assert 80 * MIB <= r["resources"]["memory_peak"] <= 96 * MIB


@both
def test_processes_below_the_memory_limit_are_left_alone(level):
    r = run(MANY % (10, 6), level, "--memory", "256M")
    assert r["status"] == "submitted" and r["killed"] is None


@both
def test_one_process_that_asks_for_too_much_gets_a_memory_error(level):
    """The session lives: nothing has been used that could not be had."""
    r = run("x = bytearray(200 << 20)", level, "--memory", "96M")
    assert (r["error"]["type"], r["alive"], r["killed"]) == ("MemoryError", True, None)


def test_files_in_tmp_are_memory_of_the_sandbox():
    code = "open('/tmp/x', 'wb').write(bytes(%d << 20)); SUBMIT(done=True)"
    words = ("--memory", "160M", "--tmp-size", "1G")
    assert run(code % 40, "full", *words)["status"] == "submitted"
    assert run("f = open('/tmp/x', 'wb')\nfor i in range(200): f.write(bytes(1 << 20))", "full",
               *words)["killed"] == "memory"


FORKS = """
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(600)
        n += 1
except OSError as e:
    SUBMIT(n=n, errno=e.errno)
"""


@both
def test_processes_are_counted_and_refused(level):
    """In `process` too, where no rlimit can do it. The session lives."""
    r = run(FORKS, level, "--processes", "20")
    assert r["submit"]["errno"] == 11 and 10 <= r["submit"]["n"] <= 20
    assert r["alive"] is True and r["killed"] is None


THREADS = """
import threading, time
for i in range(500):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


@both
def test_threads_are_counted_and_refused(level):
    r = run(THREADS, level, "--processes", "20")
    assert r["error"]["type"] == "RuntimeError" and "can't start new thread" in r["error"][
        "message"]
    assert r["alive"] is True


@both
def test_the_limits_are_those_that_were_asked_for(level, sleeping):
    _, sandbox = sleeping(level, "--memory", "96M", "--processes", "33", "--cpus", "0.5")
    assert read(sandbox, "memory.max") == str(96 * MIB)
    assert read(sandbox, "memory.oom.group") == "1"
    assert read(sandbox, "pids.max") == "33"
    assert read(sandbox, "cpu.max") == "50000 100000"
    if os.path.exists(sandbox + "/memory.swap.max"):
        assert read(sandbox, "memory.swap.max") == "0"


@both
def test_without_cpus_the_share_is_not_limited(level, sleeping):
    _, sandbox = sleeping(level)
    assert not os.path.exists(sandbox + "/cpu.max") or read(sandbox, "cpu.max").startswith("max")


@both
def test_keeper_and_worker_are_in_it_and_the_zygote_is_beside_it(level, sleeping):
    _, sandbox = sleeping(level)
    inside = read(sandbox, "cgroup.procs").split()
    beside = read(os.path.dirname(sandbox), "zygotes/cgroup.procs").split()
    # the zygote, and its standby
    assert len(inside) == 2 and 1 <= len(beside) <= 2 and not set(beside) & set(inside)
    parents = {read("/proc/%s/stat" % pid).rsplit(")", 1)[1].split()[1] for pid in inside}
    assert set(beside) & parents


@both
def test_usage_is_reported_while_it_lives(level):
    r = run("x = bytearray(50 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nsum(range(10**6))",
            level)
    assert r["alive"] is True
    assert 50 * MIB <= r["resources"]["memory_peak"] <= 150 * MIB
    assert 0 < r["resources"]["cpu_seconds"] < 60


@both
def test_the_result_says_what_enforces_each_limit(level):
    limits = run("pass", level, "--cpus", "1.5", "--cpu-time", "9")["resources"]["limits"]
    by = {name: limit["by"] for name, limit in limits.items()}
    assert by.pop("tmp-size", "mount") == "mount"
    assert by == {"memory": "cgroup", "processes": "cgroup", "cpus": "cgroup", "cpu-time": "rlimit",
                  "open-files": "rlimit", "file-size": "rlimit", "output-limit": "host"}
    assert limits["cpus"]["value"] == 1.5 and limits["cpu-time"]["value"] == 9


@both
def test_a_killed_sandbox_leaves_nothing(level):
    run("import os; os._exit(3)", level)
    run("while True: pass", level, "--timeout", "0.5")
    run("import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(600)", level)
    assert homes() == []


@both
def test_what_a_killed_host_left_is_removed_by_the_next(level, sleeping):
    """And what belongs to a host that lives is not."""
    dead, left = sleeping(level)
    living, used = sleeping(level)
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    # Its zygote, which stands beside the sandbox, ends last.
    wait_for(lambda: "populated 0" in read(os.path.dirname(left), "cgroup.events"))
    assert os.path.isdir(left)
    run("pass", level)
    assert not os.path.exists(os.path.dirname(left))
    assert len(read(used, "cgroup.procs").split()) == 2 and living.poll() is None


@both
def test_one_of_many_that_reaches_its_limit_takes_no_other_along(level):
    hosts = [subprocess.Popen(command(MANY % (30 if i == 3 else 5, 6), level, "--memory", "96M"),
                              stdout=subprocess.PIPE, text=True) for i in range(4)]
    killed = [json.loads(h.communicate(timeout=300)[0])["killed"] for h in hosts]
    assert killed == ["memory" if i == 3 else None for i in range(4)]
    assert homes() == []


@both
def test_processor_time_is_limited_by_name(level):
    r = run("while True: pass", level, "--cpu-time", "1")
    assert (r["status"], r["killed"], r["alive"]) == ("killed", "cpu time", False)
    assert "1 s" in r["error"]["message"] and "--cpu-time" in r["error"]["message"]


def test_doctor_says_that_they_can_be_had():
    r = subprocess.run([DROSTE, "doctor", "--json"], text=True, stdout=subprocess.PIPE)
    check = {c["name"]: c for c in json.loads(r.stdout)["checks"]}["cgroup v2"]
    assert check["state"] == "ok" and "as a whole" in check["text"]
    assert homes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_tree_that_is_mounted_read_only_is_reported_so():
    """As most containers have it."""
    def remount():
        libc = ctypes.CDLL(None)
        new_namespace, private, bind, read_only = 0x20000, 0x44000, 4096, 4096 | 32 | 1
        at = CGROUPS.encode()
        if (libc.unshare(new_namespace) or libc.mount(None, b"/", None, private, None)
                or libc.mount(at, at, None, bind, None)
                or libc.mount(None, at, None, read_only, None)):
            raise OSError("cannot remount")
    r = subprocess.run([DROSTE, "doctor", "--json"], text=True, stdout=subprocess.PIPE,
                       preexec_fn=remount)
    check = {c["name"]: c for c in json.loads(r.stdout)["checks"]}["cgroup v2"]
    assert check["state"] == "note" and "mounted read-only" in check["text"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a cgroup")
def test_without_a_cgroup_of_ones_own_the_host_and_rlimits_are_left():
    """`cpus`, which no rlimit can do, is refused and says why."""
    def become():
        os.setgroups([])
        os.setresgid(2000, 2000, 2000)
        os.setresuid(2000, 2000, 2000)
    environment = {**os.environ, "DROSTE_HOME": "/tmp/2000"}
    plain = subprocess.run(command("pass", "full"), text=True, stdout=subprocess.PIPE,
                           preexec_fn=become, env=environment)
    assert json.loads(plain.stdout)["resources"]["limits"]["memory"]["by"] == "host"
    asked = subprocess.run(command("pass", "full", "--cpus", "1"), text=True, env=environment,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=become)
    assert asked.returncode == 4 and "--cpus needs a cgroup" in asked.stderr
    assert "systemd-run --user --scope" in asked.stderr


CRASH = ("import os\npid = os.fork()\nif pid == 0:\n    %s\n    os.kill(os.getpid(), 11)\n"
         "SUBMIT(os.waitpid(pid, 0)[1] & 127)")
LOWER = ("import resource\n    try: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
         "    except OSError: pass")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root says what is done with crashes")
@pytest.mark.parametrize("first", ["pass", LOWER], ids=["plain", "with the limit lowered"])
def test_a_crash_in_a_sandbox_starts_no_program_on_the_host(tmp_path, first):
    """core_pattern may be a program, which the kernel runs as root for each crash, limit of 0 or
    not. Crashes outside of a sandbox, before and after, are its twins: they are handled, and
    nothing between them."""
    handler, handled = tmp_path / "handler", tmp_path / "handled"
    handler.write_text("#!/bin/sh\necho $1 >> %s\nexec cat > /dev/null\n" % handled)
    handler.chmod(0o755)
    old = read("/proc/sys/kernel/core_pattern")

    def crash_outside(count):
        subprocess.run(["/bin/sh", "-c", "ulimit -c 0; kill -SEGV $$"])
        wait_for(lambda: handled.exists() and handled.read_text().count("\n") >= count)
    try:
        with open("/proc/sys/kernel/core_pattern", "w") as f:
            f.write("|%s %%s" % handler)
        crash_outside(1)
        assert run(CRASH % first, "full")["submit"] == {"output": 11}
        crash_outside(2)
        assert handled.read_text().split() == ["11", "11"]
    finally:
        with open("/proc/sys/kernel/core_pattern", "w") as f:
            f.write(old)
