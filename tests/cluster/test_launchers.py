"""`droste cluster up|down|status`: each launcher starts nodes on machines, drains them, and copes
with the loss of one. The schedulers are real; the machines are network namespaces of this one."""
import getpass
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

import machines as machines_of
import pytest
from nodes import DROSTE, ROOT, Nats, free_port, has_nats

PORT = 8710
WAIT = 90
RAY = os.path.join(ROOT, os.environ.get("BUILD", "build"), "ray", "bin", "python")
SCHEMAS = os.path.join(ROOT, os.environ.get("BUILD", "build"), "schemas", "bin")
SLURM = ["slurmctld", "slurmd", "sbatch", "munged"]
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"

no_machines = machines_of.missing()
needs_machines = pytest.mark.skipif(bool(no_machines), reason=no_machines)
needs_nats = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


def lacks(*programs):
    return [name for name in programs if not shutil.which(name, path=PATH)]


def until(what, seconds=WAIT):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.2)


def droste(*words, env=None, status=0):
    done = subprocess.run([DROSTE, "cluster", *words], capture_output=True, text=True,
                          timeout=WAIT, env=env)
    assert status is None or done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def node_program(place):
    """A droste whose nodes have a record each, as on machines that share no disk."""
    path = place / "droste-node"
    path.write_text('#!/bin/sh\nDROSTE_HOME=$(mktemp -d "%s/node-XXXXXX") && export DROSTE_HOME &&'
                    ' exec "%s" "$@"\n' % (place, DROSTE))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def machines():
    made = machines_of.Machines(3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def nats(machines, tmp_path_factory):
    server = Nats(tmp_path_factory.mktemp("nats"), machines.head)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    made = {"PATH": PATH, "HOME": str(home), "DROSTE_HOME": str(home), "LANG": "C.UTF-8"}
    key = subprocess.run([DROSTE, "keys", "create", "test"], env=made, capture_output=True,
                         text=True, check=True).stdout.strip()
    return {**made, "KEY": key, "NODE": node_program(home)}


def serve_options(env):
    """Behind `--`: a node needs keys, since its address is not loopback's."""
    return ["--", "--keys", os.path.join(env["HOME"], "keys.json"), "--isolation", "process"]


def answers(machines, index):
    return machines_of.is_open(machines.addresses[index], PORT)


def count(machines):
    return sum(answers(machines, i) for i in range(len(machines.addresses)))


class TestSlurm:
    """A job array, by slurmctld and a slurmd on each machine."""
    pytestmark = [needs_machines, needs_nats, pytest.mark.skipif(
        bool(lacks(*SLURM)), reason="missing: " + ", ".join(lacks(*SLURM)))]

    @pytest.fixture(scope="class")
    def slurm(self, machines, tmp_path_factory):
        place = tmp_path_factory.mktemp("slurm")
        host = os.uname().nodename.split(".")[0]
        (place / "munge").mkdir(mode=0o700)
        (place / "state").mkdir()
        key = place / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        config = place / "slurm.conf"
        rows = "\n".join("NodeName=n%d NodeHostname=%s NodeAddr=%s Port=17001 CPUs=2" % (
            i, address, address) for i, address in enumerate(machines.addresses))
        config.write_text(f"""
ClusterName=test
SlurmctldHost={host}({machines.head})
AuthInfo=socket={place}/munge/socket
CryptoType=crypto/munge
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
SlurmctldPort=17000
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=5
SlurmdParameters=config_overrides
MpiDefault=none
{rows}
PartitionName=all Nodes=ALL Default=YES State=UP
""")
        env = {"PATH": PATH, "SLURM_CONF": str(config), "LANG": "C.UTF-8"}
        socket, quiet = place / "munge" / "socket", {"stdout": subprocess.DEVNULL,
                                                     "stderr": subprocess.DEVNULL}
        daemons = [subprocess.Popen(
            ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}",
             f"--pid-file={place}/munge/pid", f"--seed-file={place}/munge/seed"], env=env, **quiet)]

        def start(index):
            machines.start(index, "slurmd", "-D", "-N", "n%d" % index, env=env, **quiet)
        try:
            until(socket.exists)
            daemons.append(subprocess.Popen(["slurmctld", "-D"], env=env, **quiet))
            for index in range(len(machines.addresses)):
                start(index)
            until(lambda: self.idle(env) == len(machines.addresses))
            yield env, start, place
        finally:
            for index in range(len(machines.addresses)):
                machines.crash(index)
            for process in reversed(daemons):
                process.terminate()
                process.wait(20)

    @staticmethod
    def control(env, *words):
        """Jobs that are no longer pending are complained about."""
        subprocess.run(["scontrol", "update", *words], env=env, capture_output=True)

    @staticmethod
    def idle(env):
        output = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], env=env,
                                capture_output=True, text=True)
        return output.stdout.split().count("idle")

    def test_a_job_array_launches_loses_and_drains_nodes(self, slurm, machines, nats, env):
        slurm_env, start, place = slurm
        env = {**env, **slurm_env}
        droste("up", "slurm", "--join", nats.url, "--nodes", "3", "--program", env["NODE"],
               "--sbatch", f"--cpus-per-task=2 --chdir={place}", *serve_options(env), env=env)
        until(lambda: count(machines) == 3)
        assert droste("status", "slurm", env=env).count("RUNNING") == 3
        output = droste("up", "slurm", "--join", nats.url, "--nodes", "3", env=env, status=1)
        assert "is there already" in output
        machines.crash(1)
        until(lambda: not answers(machines, 1))
        # What takes Slurm a minute, and the two that it lets a requeued job wait.
        self.control(env, "nodename=n1", "state=down", "reason=lost")
        start(1)
        self.control(env, "nodename=n1", "state=resume")
        until(lambda: "PENDING" in droste("status", "slurm", env=env))
        self.control(env, "jobname=droste-cluster", "starttime=now")
        until(lambda: count(machines) == 3)
        output = droste("down", "slurm", env=self.without_scancel(env, place), status=1)
        assert "is still there" in output and count(machines) == 3
        droste("down", "slurm", env=env)
        until(lambda: count(machines) == 0)
        until(lambda: "RUNNING" not in droste("status", "slurm", env=env))

    @staticmethod
    def without_scancel(env, place):
        """With a scancel that fails, and says nothing, as for a task that has just ended."""
        (place / "bin").mkdir(exist_ok=True)
        (place / "bin" / "scancel").write_text("#!/bin/sh\nexit 229\n")
        (place / "bin" / "scancel").chmod(0o755)
        return {**env, "PATH": f"{place / 'bin'}:{env['PATH']}"}

    def test_a_node_that_cannot_start_says_why_in_its_log(self, slurm, nats, env):
        slurm_env, _, place = slurm
        env = {**env, **slurm_env}
        droste("up", "slurm", "--join", nats.url, "--nodes", "1", "--program", env["NODE"],
               "--cluster", "wrong", "--sbatch", f"--chdir={place}", "--", "--no-such-flag",
               env=env)
        log = place / "droste-wrong-0.log"
        until(lambda: log.exists() and "--no-such-flag" in log.read_text())
        droste("down", "slurm", "--cluster", "wrong", env=env)
        until(lambda: "RUNNING" not in droste("status", "slurm", "--cluster", "wrong", env=env))
        droste("down", "slurm", "--cluster", "wrong", env=self.without_scancel(env, place))


class TestSsh:
    """sshd on each machine."""
    pytestmark = [needs_machines, needs_nats, pytest.mark.skipif(
        bool(lacks("sshd", "ssh", "ssh-keygen")), reason="there is no OpenSSH")]

    @pytest.fixture(scope="class")
    def hosts(self, machines, tmp_path_factory):
        place = tmp_path_factory.mktemp("ssh")
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host", "me"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name],
                           check=True)
        host_key = " ".join((place / "host.pub").read_text().split()[:2])
        known_hosts, hosts = place / "known", place / "hosts"
        known_hosts.write_text("".join(f"{one} {host_key}\n" for one in machines.addresses))
        lines = ["# a machine each, with a state of its own", ""]
        for index, address in enumerate(machines.addresses):
            config = place / ("sshd%d" % index)
            config.write_text(f"Port 22\nListenAddress {address}\nHostKey {place}/host\n"
                              f"AuthorizedKeysFile {place}/me.pub\nAcceptEnv XDG_STATE_HOME\n"
                              f"PidFile {place}/pid{index}\nStrictModes no\nUsePAM no\n"
                              "PermitRootLogin yes\n")
            machines.start(index, "/usr/sbin/sshd", "-D", "-f", str(config),
                           stderr=subprocess.DEVNULL)
            lines.append(f"{address} -i {place}/me -o UserKnownHostsFile={known_hosts} "
                         f"-o SetEnv=XDG_STATE_HOME={place}/state{index}")
        hosts.write_text("\n".join(lines) + "\n")
        for address in machines.addresses:
            until(lambda: machines_of.is_open(address, 22))
        return hosts

    def test_hosts_launch_lose_and_drain_nodes(self, hosts, machines, nats, env):
        up = ["up", "ssh", "--hosts", str(hosts), "--join", nats.url, "--program", env["NODE"],
              *serve_options(env)]
        assert droste(*up, env=env).count("started, process") == 3
        until(lambda: count(machines) == 3)
        assert droste(*up, env=env).count("runs already") == 3
        assert droste("status", "ssh", "--hosts", str(hosts), env=env).count("runs, process") == 3
        for pid in machines.pids(2):
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                if b"--join" in file.read():
                    os.kill(pid, 9)
        until(lambda: not answers(machines, 2))
        output = droste("status", "ssh", "--hosts", str(hosts), env=env, status=1)
        assert f"{machines.addresses[2]}: does not run" in output
        droste(*up, env=env)
        until(lambda: count(machines) == 3)
        assert droste("down", "ssh", "--hosts", str(hosts), env=env).count("stopped") == 3
        assert count(machines) == 0

    def test_one_host_that_fails_is_named_and_the_others_start(self, hosts, machines, nats, env,
                                                               tmp_path):
        some = tmp_path / "hosts"
        lines = hosts.read_text().splitlines()
        some.write_text("\n".join([*lines[:3], lines[3] + " -p 23"]) + "\n")
        output = droste("up", "ssh", "--hosts", str(some), "--join", nats.url, "--program",
                        env["NODE"], *serve_options(env), env=env, status=255)
        assert f"{machines.addresses[1]}: ssh: connect to host" in output
        assert f"{machines.addresses[0]}: started" in output
        droste("down", "ssh", "--hosts", str(some), env=env, status=255)
        until(lambda: count(machines) == 0)

    def test_an_option_of_the_nodes_keeps_its_quotes(self, hosts, nats, env):
        output = droste("up", "ssh", "--hosts", str(hosts), "--join", nats.url, "--program", DROSTE,
                        "--", "--it's $HOME", env=env, status=1)
        assert "unknown flag '--it's $HOME'" in output


def processes_with(word):
    """Of the processes of this machine, those with a word in their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if word.encode() in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:     # it has ended
            pass
    return found

BOOT = """set -e
mkdir -p "$PLACE/cgroup"
mount -t cgroup2 none "$PLACE/cgroup"
mkdir "$PLACE/cgroup/$NAME"
echo $$ >"$PLACE/cgroup/$NAME/cgroup.procs"
umount "$PLACE/cgroup"
exec unshare --cgroup --pid --fork --kill-child --mount-proc sh -ec '
    mount -t cgroup2 none /sys/fs/cgroup
    mount -t tmpfs none /run
    mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
    chown -R 65534 /sys/fs/cgroup "$XDG_RUNTIME_DIR"
    setpriv --reuid=65534 --regid=65534 --clear-groups /lib/systemd/systemd --user & wait'
"""
CLEAN = """mount -t cgroup2 none "$PLACE/cgroup" &&
    find "$PLACE/cgroup/$NAME" -depth -type d -exec rmdir {} +"""


class TestSystemd:
    """Services of a real systemd, an ordinary user's, in namespaces of its own. It is reached with
    nsenter instead of ssh, which TestSsh has."""
    pytestmark = [needs_nats, pytest.mark.skipif(
        os.geteuid() != 0 or not os.path.exists("/lib/systemd/systemd") or
        bool(lacks("setpriv", "nsenter")), reason="needs root, systemd and util-linux")]

    @pytest.fixture
    def host(self, env):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            run = {"PATH": PATH, "HOME": place, "XDG_RUNTIME_DIR": "/run/user/65534",
                   "PLACE": place, "NAME": os.path.basename(place)}
            with open(place + "/log", "wb") as log:
                boot = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh",
                                         "-c", BOOT], env=run, stdout=log, stderr=log)

            def inside():
                """What runs something there, once its first process is the last child of `boot`."""
                with open("/proc/%d/task/%d/children" % (boot.pid, boot.pid)) as file:
                    return ["nsenter", "--target", (file.read().split() or ["0"])[0], "--mount",
                            "--pid", "--cgroup", "setpriv", "--reuid=65534", "--regid=65534",
                            "--clear-groups"]
            try:
                until(lambda: subprocess.run(
                    [*inside(), "systemctl", "--user", "is-system-running"], env=run,
                    capture_output=True).returncode == 0)
                words = inside()
                shutil.copy(os.path.join(env["HOME"], "keys.json"), place)
                os.mkdir(place + "/bin")
                with open(place + "/bin/ssh", "w") as file:
                    file.write("#!/bin/sh\nexec %s sh -s\n" % " ".join(words))
                os.chmod(place + "/bin/ssh", 0o755)
                subprocess.run(["chown", "-R", "65534", place], check=True)
                with open(place + "/hosts", "w") as file:
                    file.write("one\n")
                yield {**run, "PATH": place + "/bin:" + PATH}, words
            finally:
                boot.kill()
                boot.wait()
                until(lambda: subprocess.run(["unshare", "--mount", "sh", "-c", CLEAN], env=run,
                                             capture_output=True).returncode == 0)

    def test_a_node_is_a_service_that_starts_again_and_drains(self, host, tmp_path):
        (env, inside), nats, port = host, Nats(tmp_path / "nats"), free_port()
        words = ["--hosts", env["HOME"] + "/hosts", "--join", nats.url, "--port", str(port),
                 "--program", DROSTE, "--cluster", "lab"]
        strange = 'text = "$HOME %n \\\\"'
        serve = ["--", "--keys", env["HOME"] + "/keys.json", "--isolation", "process",
                 "--setup-code", strange]

        def systemd(verb, status=0):
            return droste(verb, "systemd", *words, *(serve if verb == "up" else []), env=env,
                          status=status)

        def node():
            return int(re.search("MainPID=([0-9]+)", systemd("status", None))[1])
        try:
            assert "started, droste-lab.service" in systemd("up")
            assert "runs already" in systemd("up")
            assert machines_of.is_open("127.0.0.1", port)    # READY=1 came before `up` returned
            assert "ActiveState=active" in systemd("status")
            words_of_node = subprocess.run([*inside, "cat", "/proc/%d/cmdline" % node()],
                                           env=env, capture_output=True, text=True).stdout
            assert words_of_node.split("\0")[-2] == strange
            subprocess.run([*inside, "kill", "-KILL", str(node())], env=env)
            until(lambda: "NRestarts=1" in systemd("status", None))
            until(lambda: machines_of.is_open("127.0.0.1", port))
            serve += ["--max-sandboxes", "3"]
            assert "started" in systemd("up")
            assert "stopped" in systemd("down") and "does not run" in systemd("down")
            assert not machines_of.is_open("127.0.0.1", port)
            systemd("status", 3)
        finally:
            nats.kill()


class TestRay:
    """An actor on each machine of a Ray cluster; its machines are processes here."""
    pytestmark = [needs_nats, pytest.mark.skipif(
        not os.path.exists(RAY), reason="scripts/setup ray did not get the package")]

    def test_actors_launch_lose_and_drain_nodes(self, tmp_path):
        server = Nats(tmp_path)
        env = {**os.environ, "PATH": PATH, "DROSTE_HOME": str(tmp_path),
               "PYTHONPATH": os.path.join(ROOT, "python"), "NATS": server.url,
               "DROSTE": node_program(tmp_path),
               "DROSTE_LIBRARY": os.path.join(os.path.dirname(DROSTE), "libdroste.so")}
        subprocess.run([DROSTE, "keys", "create", "test"], env=env, check=True,
                       capture_output=True)
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([RAY, os.path.join(here, "ray_nodes.py")], env=env, timeout=180,
                              capture_output=True, text=True)
        try:
            until(lambda: not processes_with(server.url))   # the lost machine's node as well
        finally:
            server.kill()
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        report = json.loads(done.stdout.splitlines()[-1])
        assert report == {"began": 2, "again": 2, "lost": 1, "after": 2, "ended": 2, "left": 0}


def kubernetes(*words, status=0):
    return droste("up", "kubernetes", "--join", "nats://nats:4222", *words, status=status)


needs_schemas = pytest.mark.skipif(not os.path.exists(SCHEMAS),
                                   reason="scripts/setup schemas did not get the schemas")


@needs_schemas
@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_the_manifest_fits_the_schemas_of_kubernetes(version, tmp_path):
    file = tmp_path / "nodes.yaml"
    file.write_text(kubernetes("--nodes", "3", "--", "--memory", "512M"))
    done = subprocess.run([os.path.join(SCHEMAS, "kubernetes-validate"), "--strict", "-k", version,
                           file], capture_output=True, text=True)
    assert done.returncode == 0 and (done.stdout + done.stderr).count(" passed for ") == 4, done
    file.write_text(file.read_text().replace("procMount: Unmasked", "procMounts: Unmasked"))
    done = subprocess.run([os.path.join(SCHEMAS, "kubernetes-validate"), "--strict", "-k", version,
                           file], capture_output=True)
    assert done.returncode != 0


@needs_schemas
def test_a_pod_starts_a_node_with_the_options_as_given():
    words = ["--memory", "512M", "--model", 'a "b" \\ c']
    text = kubernetes("--nodes", "3", "--port", "9000", "--image", "x/droste:1", "--", *words)
    code = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    done = subprocess.run([os.path.join(SCHEMAS, "python"), "-c", code], input=text, text=True,
                          capture_output=True, check=True)
    objects = {one["kind"]: one for one in json.loads(done.stdout)}
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert pod["args"][-len(words):] == words and pod["image"] == "x/droste:1"
    assert pod["args"][:3] == ["serve", "--join", "nats://nats:4222"]
    assert pod["ports"][0]["containerPort"] == 9000
    assert objects["StatefulSet"]["spec"]["replicas"] == 3


def test_autoscaling_follows_a_figure_that_servers_have():
    text = kubernetes("--nodes", "3", "--max-nodes", "9", "--namespace", "lab")
    assert "kind: ScaledObject" in text and "maxReplicaCount: 9" in text
    assert 'url: "http://droste-cluster.lab/metrics"' in text
    figure = re.search("valueLocation: (.*)", text)[1]
    with open(os.path.join(ROOT, "docs", "cluster.md")) as file:
        assert figure in file.read()
    assert "ScaledObject" not in kubernetes("--nodes", "3")


@pytest.mark.parametrize("words, message", [
    (["up", "slurm", "--nodes", "2"], "--join"),
    (["up", "slurm", "--join", "nats://a"], "--nodes"),
    (["up", "slurm", "--join", "nats://a", "--nodes", "0"], "1 to"),
    (["up", "slurm", "--join", "nats://a", "--nodes", "2", "--cluster", "a b"], "lower-case"),
    (["up", "ssh", "--join", "nats://a"], "--hosts"),
    (["up", "ssh", "--join", "nats://a", "--hosts", "/no/such/file"], "cannot be read"),
    (["up", "systemd", "--join", "nats://a"], "systemd needs --hosts"),
    (["up", "slurn"], "slurm"),
    (["down", "slurm", "--", "--memory", "1G"], "alone"),
    (["up"], "expected"),
])
def test_what_is_missing_is_said(words, message):
    assert message in droste(*words, status=2)


def test_a_launcher_that_is_not_installed_is_named():
    env = {"PATH": "/nowhere"}
    output = droste("status", "slurm", env=env, status=127)
    assert "squeue" in output


def test_the_script_of_a_launcher_can_be_printed_and_run():
    text = droste("launcher", "slurm")
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
    assert text.startswith("#!/bin/sh\n") and done.returncode == 0, done.stderr
