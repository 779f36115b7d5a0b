"""The container image and the Kubernetes manifest of `droste serve`."""
import http.client
import json
import os
import re
import subprocess
import sys
import time

import pytest
from installed import ROOT

sys.path.append(os.path.join(ROOT, "tests"))
import docker_daemon   # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
DROSTE = os.path.join(BUILD, "droste")
SCHEMAS = os.path.join(BUILD, "schemas", "bin")
MANIFEST = os.path.join(ROOT, "packaging", "kubernetes", "droste.yaml")
WAIT = 300

# What the manifest gives the pod, in Docker's words.
AS_POD = ["--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--user", "871:871",
          "--security-opt", "no-new-privileges", "--security-opt", "seccomp=unconfined",
          "--security-opt", "systempaths=unconfined", "--security-opt", "apparmor=unconfined"]

needs_schemas = pytest.mark.skipif(not os.path.exists(SCHEMAS),
                                   reason="scripts/setup schemas did not get the schemas")
needs_image = [
    pytest.mark.skipif(not os.environ.get("DROSTE_PACKAGES"),
                       reason="make check-packages builds the image"),
    pytest.mark.skipif(bool(docker_daemon.missing()), reason=str(docker_daemon.missing())),
]


def run(*command, status=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, **more)
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def objects():
    code = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    done = json.loads(run(os.path.join(SCHEMAS, "python"), "-c", code, MANIFEST))
    return {one["kind"]: one for one in done}


@needs_schemas
@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_the_manifest_fits_the_schemas(version):
    """Every object, and no property that Kubernetes does not know."""
    validate = os.path.join(SCHEMAS, "kubernetes-validate")
    output = run(validate, "--strict", "-k", version, MANIFEST)
    assert output.count(" passed for ") == 5, output


@needs_schemas
def test_a_wrong_manifest_does_not_fit(tmp_path):
    """The validator looks at what is written here."""
    wrong = tmp_path / "wrong.yaml"
    with open(MANIFEST) as file:
        wrong.write_text(file.read().replace("procMount: Unmasked", "procMounts: Unmasked"))
    validate = os.path.join(SCHEMAS, "kubernetes-validate")
    run(validate, "--strict", "-k", "1.37", str(wrong), status=1)


@needs_schemas
def test_the_manifest_names_what_there_is(objects, tmp_path):
    """Arguments, user, port and directories are those of the server and of the image."""
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    with open(os.path.join(ROOT, "packaging", "container", "Dockerfile")) as file:
        image = file.read()
    user = pod["securityContext"]
    assert "USER %d:%d\n" % (user["runAsUser"], user["runAsGroup"]) in image
    port = container["ports"][0]["containerPort"]
    assert "EXPOSE %d\n" % port in image
    assert objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port
    data = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data"]
    assert "VOLUME %s\n" % data[0] in image
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_HOME": str(tmp_path)}
    run(DROSTE, "keys", "create", "ci", env=env)
    arguments = [{"/etc/droste/keys.json": str(tmp_path / "keys.json"),
                  "0.0.0.0:%d" % port: "127.0.0.1:0"}.get(one, one) for one in container["args"]]
    assert "ok" in run(DROSTE, *arguments, "--check", env=env)


class TestImage:
    """The image, built from what `make image` left in dist/container, in a daemon of its own."""
    pytestmark = needs_image

    @pytest.fixture(scope="class")
    def docker(self):
        daemon = docker_daemon.Daemon()
        environment = {**os.environ, **daemon.environment}

        def ask(*words, status=0):
            return run("docker", *words, status=status, env=environment)
        try:
            daemon.start()
            ask("build", "-q", "-t", "droste", os.path.join(ROOT, "dist", "container"))
            yield ask
        finally:
            daemon.close()

    @pytest.fixture
    def data(self, docker):
        name = docker("volume", "create").strip()
        yield name
        docker("volume", "rm", "-f", name)

    @pytest.fixture
    def serve(self, docker, data):
        started = []

        def begin(*flags):
            key = docker("run", "--rm", *AS_POD, "-v", data + ":/var/lib/droste", "droste",
                      "keys", "create", "test%d" % len(started), "--scopes", "admin").split()[0]
            name = docker("run", "-d", "--network", "host", *flags, "-v",
                          data + ":/var/lib/droste", "droste", "serve", "--listen", "127.0.0.1:0")
            started.append(name.strip())
            deadline = time.monotonic() + WAIT
            while not (output := docker("logs", name.strip())):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            return name.strip(), key, int(output.strip().rpartition(":")[2])
        yield begin
        for name in started:
            docker("rm", "-f", name)

    @staticmethod
    def ask(port, key, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        try:
            connection.request(method, path, body, {"X-API-Key": key})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @pytest.mark.parametrize("flags, isolation", [(AS_POD, "full"), ([], "landlock")])
    def test_a_cell_runs(self, docker, serve, flags, isolation):
        """With the manifest's restrictions a sandbox has all walls, with Docker's own most."""
        name, key, port = serve(*flags)
        status, sandbox = self.ask(port, key, "POST", "/v1/sandboxes")
        assert status == 201 and sandbox["isolation"] == isolation
        status, cell = self.ask(port, key, "POST", "/v1/sandboxes/%s/execute" % sandbox["id"],
                                json.dumps({"code": "import sys; sys.version_info[:2]"}))
        assert status == 200 and re.fullmatch(r"\(3, \d+\)", cell["echo"])
        docker("stop", name)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", name).strip() == "0"

    def test_without_keys_nothing_is_served(self, docker, data):
        """The address of a container is not a loopback address."""
        output = docker("run", "--rm", "-v", data + ":/var/lib/droste", "droste", status=2)
        assert "droste keys create" in output

    def test_the_image_is_small_and_has_no_tools(self, docker):
        """No package manager, compiler or shell history; some way below Debian with Python."""
        assert int(docker("image", "inspect", "-f", "{{.Size}}", "droste")) < 180e6
        for tool in ["apt-get", "gcc", "curl", "pip"]:
            docker("run", "--rm", "--entrypoint", tool, "droste", status=127)
