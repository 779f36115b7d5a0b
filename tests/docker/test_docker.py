"""--env docker, as a user meets it: the same cells, other walls; what a daemon can do wrong, told
by its name."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

import docker_daemon
import droste_cli
from own_daemon import IMAGE, ROOT, Program, parsed, wait_until

SLEEP = "open('/tmp/here', 'w').close(); import time; time.sleep(600)"


# ---- the same session ----

def test_a_cell_runs_in_a_container(program):
    """Status, output, answer and the level of isolation are told as of a local sandbox."""
    cell = parsed(program.cell("import math; print('out'); SUBMIT(answer=math.factorial(15))"))
    assert cell["status"] == "submitted" and cell["submit"] == {"answer": 1307674368000}
    assert cell["stdout"] == "out\n" and cell["isolation"] == "container"


def test_a_large_context_goes_in_and_out(program, tmp_path):
    """20 MB each way, over the one stream; the machine's files are not the container's."""
    text = "line of text\n" * 1600000
    (tmp_path / "context.txt").write_text(text)
    result = program("exec", "--context", tmp_path / "context.txt", "--output-limit", "30M", "-c",
                     "import sys; sys.stdout.write(context.upper())")
    assert result.returncode == 0 and result.stdout == text.upper()


def test_a_run_saves_its_files(program, tmp_path):
    """Those that match, whole and under their paths; a FIFO is left out."""
    model = droste_cli.recording(tmp_path, """```repl
import os
os.makedirs("out/deep")
open("out/deep/b.bin", "wb").write(bytes(range(256)) * 4096)
open("out/a.txt", "w").write("hello")
os.mkfifo("out/fifo")
SUBMIT(answer=1)
```""")
    run = parsed(program("run", "--question", "q", "--model", model, "--json", "--artifacts",
                         "out/**", "--artifacts-dir", tmp_path / "saved"))
    assert [(one["name"], one["size"]) for one in run["artifacts"]] == [("out/a.txt", 5),
                                                                      ("out/deep/b.bin", 1 << 20)]
    assert (tmp_path / "saved/out/deep/b.bin").read_bytes() == bytes(range(256)) * 4096
    assert os.listdir(tmp_path / "saved/out/deep") == ["b.bin"] and run["answer"] == 1


def test_a_child_run_answers_from_a_container(program, tmp_path):
    """The whole loop: code of a model runs there, calls a model, and answers."""
    model = droste_cli.recording(tmp_path,
                                 "```repl\nx = llm_query('what?')\nSUBMIT(answer=x + '!')\n```",
                                 {"content": "that", "depth": 1})
    result = program("run", "--question", "q", "--model", model)
    assert result.returncode == 0 and result.stdout.strip() == "that!", result.stderr


def test_volumes_are_the_same_as_locally(program):
    """What a container wrote a local sandbox reads, and the other way round."""
    assert program.cell("open('/data/a','w').write('one')", "--volume-name", "v").returncode == 0
    local = parsed(program.cell("open('/data/b','w').write(open('/data/a').read() + ' two')",
                                "--volume-name", "v", env="local"))
    assert local["status"] == "ok"
    both = parsed(program.cell("print(open('/home/daytona/memory/b').read())", "--volume-name", "v",
                               "--layout", "daytona"))
    assert both["stdout"] == "one two\n"


def test_a_workspace_and_shown_paths(program, tmp_path):
    """context_paths are copies that can be written to; a shown path cannot."""
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "f").write_text("seen")
    os.chmod(tmp_path, 0o755)
    place = tmp_path / "shown"
    cell = parsed(program.cell(
        "import os\nprint(open(CONTEXT_PATHS[0] if os.path.isabs(CONTEXT_PATHS[0]) else "
        "os.path.join(WORKSPACE_ROOT, CONTEXT_PATHS[0])).read())\nprint(open('%s/f').read())\n"
        "try:\n    open('%s/f', 'w')\nexcept OSError as e: print(type(e).__name__)"
        % (place, place),
        "--context-path", tmp_path / "notes.txt", "--read", place))
    assert cell["stdout"] == "notes\nseen\nOSError\n", cell


def test_variables_of_the_environment(program):
    """--env-var reaches the code, in a container and locally; the host's own do not."""
    code = "import os; print(os.environ.get('A'), os.environ.get('CANARY'))"
    for env in ("docker", "local"):
        assert parsed(program.cell(code, "--env-var", "A=b=c", env=env,
                                   CANARY="1"))["stdout"] == "b=c None\n"


# ---- the wall ----

def test_the_wall_is_there(program):
    """No capabilities, no new privileges, a filter, nobody's user, no network but lo, files that
    cannot be changed."""
    cell = parsed(program.cell(
        "import os\nstatus = dict(line.split(':\\t', 1) for line in open('/proc/self/status'))\n"
        "print(os.getuid(), [int(status[k], 16) for k in ('CapPrm', 'CapEff', 'CapBnd')], "
        "status['NoNewPrivs'].strip(), status['Seccomp'].strip())\n"
        "print(os.listdir('/sys/class/net'))\n"
        "try: open('/usr/x', 'w')\nexcept OSError as e: print(e.strerror)\n"
        "open('/tmp/x', 'w').write('y'); print('tmp')"))
    assert cell["stdout"] == "65534 [0, 0, 0] 1 2\n['lo']\nRead-only file system\ntmp\n"


def test_the_daemons_socket_is_not_there(program, daemon):
    """Who reaches it is root on the machine: neither its path nor any socket of that name is in a
    container. The host, which may, finds it."""
    path = daemon.host[len("unix://"):]
    cell = parsed(program.cell(
        "import os, socket\nfor path in ('%s', '/var/run/docker.sock', '/run/docker.sock'):\n"
        "    try: socket.socket(socket.AF_UNIX).connect(path)\n"
        "    except OSError as e: print(e.strerror)" % path))
    assert cell["stdout"] == 3 * "No such file or directory\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


# What io_uring_setup, bpf, unshare(CLONE_NEWUSER) and clone3 answer, and then what usual programs
# do.
CALLS = ("import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
         "def raw(*words):\n"
         "    failed = libc.syscall(*map(ctypes.c_long, words)) == -1\n"
         "    return errno.errorcode[ctypes.get_errno()] if failed else 'success'\n"
         "print(raw(425, 8, 0), raw(321, 0, 0, 0), raw(272, 0x10000000), raw(435, 0, 0))")
USUAL = ("import asyncio, multiprocessing, socket, subprocess, sys, threading\n"
         "def thread():\n    t = threading.Thread(target=print, args=('thread',)); t.start(); "
         "t.join()\n"
         "async def child():\n    p = await asyncio.create_subprocess_exec('echo', 'child', "
         "stdout=-1); return (await p.communicate())[0].decode()\n"
         "thread()\nprint(asyncio.run(child()), end='')\n"
         "print(subprocess.run('echo shell; exit 3', shell=True, capture_output=True, "
         "text=True).returncode)\n"
         "s = socket.create_server(('127.0.0.1', 0))\nc = "
         "socket.create_connection(s.getsockname())\nc.send(b'sent')\n"
         "print(s.accept()[0].recv(9).decode(), flush=True)\n"
         "subprocess.run([sys.executable, '-c', 'import select; "
         "print(type(select.epoll()).__name__)'])\n"
         "with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))")


def test_system_calls_are_those_of_local_sandboxes(program):
    """The daemon's own filter allows io_uring; Droste's profile does not, nor bpf, namespaces or
    clone3."""
    assert parsed(program.cell(CALLS))["stdout"] == "EPERM EPERM EPERM ENOSYS\n"


def test_the_daemons_filter_stays_where_it_is_asked_for(program):
    """The twin: with it io_uring_setup gets as far as its arguments, which are wrong."""
    assert parsed(program.cell(CALLS, "--seccomp",
                               "daemon"))["stdout"].split()[0] in ("EFAULT", "EINVAL")


@pytest.mark.parametrize("seccomp", ["auto", "droste", "daemon"])
def test_programs_run_under_each_filter(program, seccomp):
    """Threads, children of asyncio and of the shell, sockets, epoll and pools work as before."""
    cell = parsed(program.cell(USUAL, "--seccomp", seccomp))
    assert cell["stdout"] == "thread\nchild\n3\nsent\nepoll\n[1, 2]\n", cell


def test_a_filter_that_there_is_not_is_refused(program):
    """By name, before a container is made."""
    assert "seccomp 'none' is not one of auto, droste, daemon" in program.cell("1", "--seccomp",
                                                                               "none").stderr


def test_the_wall_is_opened_by_name(program):
    """Its twin: what was asked for is there."""
    cell = parsed(program.cell(
        "import os; open('/usr/x', 'w').write('y'); print(os.getuid(), "
        "len(os.listdir('/sys/class/net')))",
        "--user", "0", "--read-only-root", "no", "--network", "host"))
    uid, cards = cell["stdout"].split()
    assert uid == "0" and int(cards) >= 1


def test_the_host_network_by_a_variable(program):
    """RLM_DOCKER_USE_HOST_NETWORK=1 gives it, and --network says otherwise."""
    code = ("import os; print(os.readlink('/proc/self/ns/net'), "
            "open('/proc/net/dev').read().count(':'))")
    here = os.readlink("/proc/self/ns/net")
    cell = parsed(program.cell(code, RLM_DOCKER_USE_HOST_NETWORK="1"))
    assert cell["stdout"].split()[0] == here
    cell = parsed(program.cell(code, "--network", "none", RLM_DOCKER_USE_HOST_NETWORK="1"))
    assert cell["stdout"].split()[0] != here and cell["stdout"].split()[1] == "1"


def test_labels(program, daemon):
    """A container says whose it is, and has the user's labels."""
    process = run_in_background(program, SLEEP, "--label", "team=blue")
    labels = daemon.containers()[0]["Config"]["Labels"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert labels["team"] == "blue" and labels["droste.owner"].startswith("%d " % process.pid)


# Each of its processes is within the limit, and all of them together are not.
TOGETHER = (
    "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = b'x' * (30 << 20)\n  "
    "      time.sleep(30)\n"
    "        os._exit(0)\nos.wait()")


@pytest.mark.parametrize("flags, code, ended", [
    (["--memory", "100M"], TOGETHER, "memory"),
    (["--cpu-time", "1"], "while True: pass", "cpu time"),
    (["--memory", "100M"], "x = bytearray(300 << 20)", MemoryError),
    (["--file-size", "1M"], "open('/tmp/f', 'wb').write(bytes(2 << 20))", OSError),
    (["--processes", "8"], "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)",
     BlockingIOError),
    (["--tmp-size", "1M"], "open('/tmp/f', 'wb').write(bytes(2 << 20))", OSError),
    (["--open-files", "32"], "f = [open('/dev/null') for _ in range(100)]", OSError),
], ids=["memory together", "cpu-time", "memory", "file-size", "processes", "tmp-size",
        "open-files"])
def test_limits(program, flags, code, ended):
    """A limit that was hit is named where it ended the sandbox, and is an error of the code where
    it did not; what is within it runs."""
    cell = json.loads(program.cell(code, *flags).stdout)
    if isinstance(ended, str):
        assert (cell["status"], cell["killed"]) == ("killed", ended), cell
    else:
        assert (cell["status"], cell["alive"],
                cell["error"]["type"]) == ("error", True, ended.__name__), cell
    assert parsed(program.cell("print(1)", *flags))["stdout"] == "1\n"


def test_sessions_that_share_a_container_have_limits_of_their_own(program):
    """What the first did not ask for the second has all the same; and a third is as the first."""
    code = ("from droste import Interpreter\n"
            "spin = 'import socket, time\\nwhile time.process_time() < 3: "
            "pass\\nprint(socket.gethostname())'\n"
            "for limits in ({}, {'cpu_time': 1}, {}):\n"
            "    with Interpreter(env='docker', image='%s', reuse='container', **limits) as "
            "session:\n"
            "        result = session.execute(spin)\n"
            "        print(result.stdout.strip() or result.killed)\n" % IMAGE)
    out = subprocess.run([sys.executable, "-c", code],
                         env=program.environment(PYTHONPATH=os.path.join(ROOT, "python")),
                         capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    first, second, third = out.stdout.splitlines()
    assert second == "cpu time"
    assert len(first) == 12 and first == third, (first, third)


# ---- what a daemon can do wrong ----

def test_there_is_no_daemon(program, tmp_path):
    result = program.cell("1", DOCKER_HOST="unix://%s/none" % tmp_path)
    assert (result.returncode == 4 and "there is no Docker daemon at" in result.stderr
            + result.stdout)
    assert "systemctl start docker" in result.stderr + result.stdout


def test_a_daemon_that_is_not_running(program, tmp_path):
    """The socket is left of one that has ended."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    result = program.cell("1", DOCKER_HOST="unix://" + path)
    assert result.returncode == 4 and "does not answer; start it" in result.stderr + result.stdout


def test_permission_is_denied(program, daemon, tmp_path):
    """An ordinary user who is not in the group is told so."""
    os.chmod(daemon.dir, 0o755)
    copy = os.path.join(daemon.dir, "droste")
    shutil.copy(droste_cli.DROSTE, copy)
    result = subprocess.run([copy, "exec", "--env", "docker", "-c", "1"], text=True,
                            capture_output=True, timeout=60, cwd="/", user=61184, group=61184,
                            extra_groups=[],
                            env={**program.environment(), "HOME": "/nonexistent",
                                 "DROSTE_HOME": "/nonexistent"})
    assert result.returncode == 4 and "permission to use the Docker daemon" in result.stderr
    assert "group docker" in result.stderr


@pytest.mark.parametrize("address", ["tcp://", "http://x", "unix://relative", "nonsense"])
def test_an_address_that_is_none(program, address):
    result = program.cell("1", DOCKER_HOST=address)
    assert result.returncode == 2 and "DOCKER_HOST" in result.stderr + result.stdout


def test_an_image_that_is_not_here(program):
    result = program.cell("1", "--pull", "never", image="nobody/nothing:1")
    assert (result.returncode == 4 and "the daemon has no image nobody/nothing:1" in result.stdout
            + result.stderr)


def test_an_image_that_cannot_be_fetched(program):
    """The registry's words, and the image's name."""
    result = program.cell("1", image="127.0.0.1:1/nothing:1")
    text = result.stdout + result.stderr
    assert result.returncode == 4 and "pulling 127.0.0.1:1/nothing:1" in text and "refused" in text


def test_a_disk_that_is_full(tmp_path, daemon):
    """The daemon's, in its words, with what makes room; when there is room again, cells run."""
    full = docker_daemon.Daemon()
    os.mkdir(full.dir + "/data")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600M", "tmpfs", full.dir + "/data"],
                   check=True)
    with full:
        filler = full.dir + "/data/filler"
        subprocess.run(["dd", "if=/dev/zero", "of=" + filler, "bs=1M"], capture_output=True)
        program = Program(tmp_path, full)
        result = program.cell("print(1)")
        text = result.stdout + result.stderr
        assert result.returncode == 4 and "disk is full" in text and "docker system prune" in text
        os.unlink(filler)
        assert parsed(program.cell("print(1)"))["stdout"] == "1\n"


def test_a_disk_size_that_cannot_be_had(program):
    """Where the daemon's storage cannot limit it, that is said; nothing is dropped silently."""
    if "xfs" in program.daemon.docker("info").stdout:
        pytest.skip("this daemon's storage may be able to limit it")
    result = program.cell("print(1)", "--disk-size", "1G")
    assert result.returncode == 4 and "storage-opt" in result.stdout + result.stderr
    assert parsed(program.cell("print(1)", "--disk-size", "0"))["stdout"] == "1\n"


@pytest.fixture(scope="module")
def registry():
    from registry import Registry
    own = Registry(docker_daemon.make_image())
    yield own
    own.close()


def test_an_image_is_fetched_when_it_is_missing(program, registry):
    """Once, and that is said; --pull always asks again. A tag that is not there is told as the
    registry tells it."""
    image = registry.image + ":3.1"
    first = program.cell("print(1)", image=image)
    assert parsed(first)["stdout"] == "1\n" and "pulling " + image in first.stderr
    asked = len(registry.asked)
    second = program.cell("print(1)", image=image)
    assert parsed(second) and second.stderr == "" and len(registry.asked) == asked
    assert parsed(program.cell("print(1)", "--pull", "always",
                               image=image)) and len(registry.asked) > asked
    missing = program.cell("print(1)", image=registry.image + ":9")
    assert missing.returncode == 4 and "manifest unknown" in missing.stdout + missing.stderr
    program.daemon.docker("rmi", image)


@contextlib.contextmanager
def start_is_answered_late(program, tmp_path):
    """The daemon's socket, on which /start has its answer only when the container's end has been
    told."""
    listening, ended = socket.socket(socket.AF_UNIX), threading.Event()
    listening.bind(str(tmp_path / "late.sock"))
    listening.listen()

    def pump(source, target, asked, answers):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers:
                    if asked[-1:] == ["start"]:
                        assert ended.wait(120)
                    if b"StatusCode" in data:
                        ended.set()
                else:
                    asked += ["start" if b"/start HTTP/" in data else "other"]
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, daemon, asked = listening.accept()[0], socket.socket(socket.AF_UNIX), []
                daemon.connect(program.daemon.host[len("unix://"):])
                for pair in ((client, daemon, asked, False), (daemon, client, asked, True)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()
    try:
        yield "unix://%s" % (tmp_path / "late.sock"), ended
    finally:
        listening.close()


def test_no_python_in_the_image(program, tmp_path):
    """Its own words, also where the daemon tells the container's end before it says why there was
    no start."""
    with start_is_answered_late(program, tmp_path) as (host, ended):
        for result in program.cell("1", "--python", "python9"), program.cell(
            "1", "--python", "python9", DOCKER_HOST=host):
            text = result.stdout + result.stderr
            assert (result.returncode == 4 and "does not contain this Python" in text
                    and "python9" in text and "--python" in text), text
        assert ended.is_set()


def test_a_python_that_is_none(program):
    result = program.cell("1", "--python", "sh")
    text = result.stdout + result.stderr
    assert (result.returncode == 4 and "its python ended with status 2" in text
            and "Syntax error" in text)


def test_what_is_of_containers_is_refused_elsewhere(program):
    """And what is local's is refused here; nothing is dropped silently."""
    result = program.cell("1", "--gpus", "all", env="local")
    assert (result.returncode == 4 and "does not support GPU (--gpus)" in result.stdout
            + result.stderr)
    result = program.cell("1", "--isolation", "light")
    assert result.returncode == 4
    assert ("does not support isolation (--isolation): the wall is the container" in result.stdout
            + result.stderr)
    assert parsed(program.cell("1", "--isolation", "auto"))["status"] == "ok"


def run_in_background(program, code, *flags):
    process = subprocess.Popen([droste_cli.DROSTE, "exec", "--json", "--env", "docker", "--image",
                                IMAGE, *flags, "-c", code],
                               env=program.environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: any(os.path.exists("/proc/%d/root/tmp/here" % c["State"]["Pid"])
                                  for c in program.daemon.containers() if c["State"]["Running"]))
    return process


def outcome(process):
    out, err = process.communicate(timeout=120)
    return json.loads(out) if out else {"status": "", "reason": err}


def test_a_container_that_is_killed_from_outside(program, daemon):
    """The cell's outcome is unknown, and that is said."""
    process = run_in_background(program, SLEEP)
    daemon.docker("kill", daemon.containers()[0]["Id"])
    cell = outcome(process)
    assert cell["status"] == "lost" and cell["alive"] is False
    assert "killed from outside" in json.dumps(cell) and "outcome is unknown" in json.dumps(cell)


def test_a_container_that_is_removed_from_outside(program, daemon):
    process = run_in_background(program, SLEEP)
    daemon.docker("rm", "-f", daemon.containers()[0]["Id"])
    cell = outcome(process)
    assert cell["status"] == "lost" and "outcome is unknown" in json.dumps(cell)


def test_a_host_that_is_killed_leaves_nothing(program, daemon):
    """Its containers end with the connection that fed them."""
    process = run_in_background(program, SLEEP)
    process.kill()
    process.communicate()
    assert wait_until(lambda: not daemon.containers())


def test_a_daemon_that_is_restarted_in_the_middle_of_a_cell(tmp_path, fragile):
    """The outcome is unknown; the next start finds a daemon, and nothing is left."""
    program = Program(tmp_path, fragile)
    process = run_in_background(program, SLEEP)
    fragile.kill()
    cell = outcome(process)
    fragile.start()
    assert cell["status"] == "lost" and "outcome is unknown" in json.dumps(cell)
    assert parsed(program.cell("print(1)"))["stdout"] == "1\n"
    assert wait_until(lambda: not [c for c in fragile.containers() if c["State"]["Running"]])


# ---- orphans ----

def make_orphan(daemon, owner, machine):
    return daemon.docker("create", "--label", "droste.owner=" + owner, "--label",
                         "droste.machine=" + machine,
                         "--network", "none", IMAGE, "python3").stdout.strip()


def labels_of_a_session(program, daemon):
    process = run_in_background(program, SLEEP)
    labels = daemon.containers()[0]["Config"]["Labels"]
    process.kill()
    process.communicate()
    assert wait_until(lambda: not daemon.containers())
    return labels["droste.owner"], labels["droste.machine"]


def test_only_own_orphans_are_removed(program, daemon):
    """`droste env gc` removes those of a process that is gone; those of one that lives, and of
    another machine, stay. So does the first sandbox of a program."""
    owner, machine = labels_of_a_session(program, daemon)
    pid, start, space, boot = owner.split()
    with open("/proc/self/stat") as file:
        mine = file.read().rsplit(")", 1)[1].split()[19]
    living = make_orphan(daemon, "%d %s %s %s" % (os.getpid(), mine, space, boot), machine)
    elsewhere = make_orphan(daemon, owner, "another machine")
    orphan = make_orphan(daemon, owner, machine)
    result = droste_cli.droste(program.home, "env", "gc", **daemon.environment)
    assert result.returncode == 0 and result.stdout == "removed 1 orphaned sandbox\n", result
    assert {c["Id"] for c in daemon.containers()} == {living, elsewhere}
    orphan = make_orphan(daemon, owner, machine)
    assert program.cell("1").returncode == 0
    assert wait_until(lambda: orphan not in {c["Id"] for c in daemon.containers()})
    daemon.docker("rm", living, elsewhere)


def test_gc_without_a_daemon_says_so(program, tmp_path):
    result = droste_cli.droste(program.home, "env", "gc", DOCKER_HOST="unix://%s/none" % tmp_path)
    assert result.returncode != 0 and "there is no Docker daemon" in result.stderr


# ---- over TCP ----

class Cutter:
    """A way to the daemon over TCP that can be cut; what it had in hand is lost."""

    def __init__(self, path):
        self.path, self.pairs = path, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.path)
            self.pairs.append((near, far))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.move, args=(a, b), daemon=True).start()

    @staticmethod
    def move(source, sink):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        return len(pairs)

    def close(self):
        self.listener.close()
        self.cut()


@pytest.fixture
def cutter(daemon):
    proxy = Cutter(daemon.host[len("unix://"):])
    yield proxy
    proxy.close()


def test_a_cell_over_tcp(program, cutter):
    assert parsed(program.cell("print(2)", DOCKER_HOST=cutter.host))["stdout"] == "2\n"


def test_a_connection_that_is_cut_is_made_again(program, cutter):
    """In the middle of a cell, again and again: no output is lost or heard twice."""
    process = subprocess.Popen(
        [droste_cli.DROSTE, "exec", "--env", "docker", "--image", IMAGE, "-c",
         "import itertools, os, time\n"
         "for i in itertools.takewhile(lambda i: not os.path.exists('/tmp/stop'), "
         "itertools.count()): print(i, flush=True); time.sleep(0.02)"],
        env=program.environment(DOCKER_HOST=cutter.host), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    heard = []
    for cuts in (1, 1, 1, 0):
        heard += [process.stdout.readline() for _ in range(40)]
        assert cuts == 0 or cutter.cut() > 0
    program.daemon.docker("exec", program.daemon.containers()[0]["Id"], "touch", "/tmp/stop")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    heard += out.splitlines(keepends=True)
    assert heard == ["%d\n" % i for i in range(len(heard))]


def test_files_of_this_machine_are_refused_over_tcp(program, cutter):
    """A daemon elsewhere would bind its own files of that name."""
    result = program.cell("1", "--volume-name", "v", DOCKER_HOST=cutter.host)
    assert result.returncode == 4 and "--volume-name" in result.stdout + result.stderr
