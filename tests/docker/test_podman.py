"""Podman's socket for Docker's programs: the same environment, as far as it goes. Skipped by name
without podman."""
import json
import shutil
import subprocess
import tempfile

import pytest

import docker_daemon
import droste_cli
from own_daemon import wait_until

pytestmark = pytest.mark.skipif(not shutil.which("podman") or not shutil.which("runc"),
                                reason="needs podman and runc")


@pytest.fixture(scope="module")
def podman():
    place = tempfile.mkdtemp(prefix="podman-", dir="/tmp")
    host = "unix://%s/s" % place
    words = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--root",
             place + "/root", "--runroot", place + "/run"]
    server = subprocess.Popen([*words, "system", "service", "--time=0", host],
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: subprocess.run(["docker", "--host", host, "version"],
                                                 capture_output=True).returncode == 0)
        subprocess.run(["docker", "--host", host, "import", docker_daemon.make_image(),
                        "droste-test:latest"], check=True,
                       capture_output=True)
        yield host
    finally:
        subprocess.run([*words, "rm", "-af"], capture_output=True)
        server.terminate()
        server.wait()
        subprocess.run([*words, "system", "reset", "-f"], capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("code, flags, status, killed", [
    ("SUBMIT(1)", (), "submitted", ""),
    ("import os; os.kill(os.getpid(), 9)", (), "killed", "signal 9 SIGKILL"),
    ("x = bytearray(300 << 20)", ("--memory", "100M"), "error", ""),
    ("while True: pass", ("--execute-timeout", "1"), "timeout", ""),
], ids=["answer", "death", "memory", "deadline"])
def test_cells_end_as_in_docker(podman, tmp_path, code, flags, status, killed):
    result = droste_cli.droste(tmp_path, "exec", "--json", "--env", "docker", "--image",
                               "droste-test:latest", *flags, "-c", code,
                               DOCKER_HOST=podman, DROSTE_DATABASE="none")
    cell = json.loads(result.stdout)
    assert cell["status"] == status and (cell["killed"] or "") == killed, cell


def test_nothing_is_left(podman):
    left = subprocess.run(["docker", "--host", podman, "ps", "-aq"], capture_output=True, text=True)
    assert wait_until(lambda: not subprocess.run(["docker", "--host", podman, "ps", "-aq"],
                                                 capture_output=True).stdout), left
