"""Page 004's blocks about Docker, with a daemon of the tests' own. Its images have the page's
names: they are the tests' image with what the page installs from the network (`requests`)."""
import glob
import os
import subprocess
import time

import pytest

import docker_daemon
import pages
from rows import shows
from test_shell import block

import droste
import droste.compat
from droste.compat.adapters import DockerEnvironmentAdapter

PACKAGES = ("requests", "urllib3", "idna", "certifi", "charset_normalizer")


@pytest.fixture(scope="module")
def daemon():
    why = docker_daemon.missing()
    if why:
        pytest.skip(why)
    own = docker_daemon.Daemon()
    try:
        try:
            own.start()
            make_images(own)
        except (RuntimeError, subprocess.CalledProcessError) as e:
            pytest.skip("no Docker daemon can be had here: "
                        + str(e).strip().splitlines()[-1][:300])
        yield own
    finally:
        own.close()


def make_images(own):
    """By the names that the page has."""
    container = own.docker("create", docker_daemon.IMAGE, "true").stdout.strip()
    (packages,) = glob.glob(os.path.join(pages.ROOT, os.environ.get("BUILD", "build"), "clouds",
                                         "lib", "python3*", "site-packages")) or [None]
    if packages is None:
        pytest.skip("the packages that the page imports are not here (scripts/setup clouds)")
    for name in PACKAGES:
        own.docker("cp", os.path.join(packages, name),
                   container + ":/usr/lib/python3/dist-packages/" + name)
    for name in ("python:3.12-slim", "my-rlm-env:latest"):
        own.docker("commit", container, name)
    own.docker("rm", container)


@pytest.fixture
def here(daemon, tmp_path, monkeypatch, model):
    """This process as the page's reader: Docker is that daemon, and OpenAI the server of the
    tests."""
    for name, value in {**daemon.environment, **model.environment,
                        "DROSTE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)
    droste.compat.activate()
    yield daemon
    droste.compat.deactivate()
    droste.close_idle_engines()


def wait_until(condition, seconds=120):
    """True once it is; the daemon removes a container after its session has ended."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def names_of(*blocks):
    """The namespace behind these blocks of the page. A path of its first block is on no machine,
    which is told."""
    names = {}
    for one in blocks:
        if one == "004-python-1":
            with pytest.warns(UserWarning, match="/custom/modules"):
                exec(block(one).code, names)
        else:
            exec(compile(next(b for b in pages.python_blocks("004") if b.name == one).code, one,
                         "exec"), names)
    return names


def completed(names, replies, **more):
    """The page's configuration, asked by a model that says these things."""
    replies = list(replies)
    config = names["config"]
    config.rlm_kwargs = {"model": lambda messages: replies.pop(0),
                         "sub_model": lambda messages: "said " + messages[-1]["content"], **more}
    return names["create_rlm_from_config"](config).completion("c" * 12)


@shows("004", "Docker Environment / Options", "image", "subprocess_timeout_s",
       "proxy_http_timeout_s", "setup_code")
@shows("004", "Docker Environment / Container Lifecycle", "Start", "Load Context", "Execute",
       "Cleanup")
def test_the_configuration_of_docker_runs(here):
    """Page 004, block 2: its setup code is there in each execution, its limits hold, and the
    container is gone."""
    if pages.read("004") is None:
        pytest.skip(pages.MISSING)
    names = names_of("004-python-1", "004-python-2")
    done = completed(names, ["```repl\nrequests.name, name = 'changed', requests.__name__\n```",
                             "```repl\nSUBMIT(answer=[name, len(context)])\n```"])
    assert done.answer == ["requests", 12], done.error
    pairs = dict(names["create_rlm_from_config"](names["config"])._pairs)
    assert (pairs["image"], pairs["execute-timeout"], pairs["broker-timeout"],
            pairs["setup-each"]) == ("python:3.12-slim", "120", "60", "yes")
    assert wait_until(lambda: not here.containers())


def test_the_block_inside_the_container(here):
    """Page 004, block 3, as a cell of a container: "Inside container, this works"."""
    code = next((b.code for b in pages.python_blocks("004") if b.name == "004-python-3"), None)
    if code is None:
        pytest.skip(pages.MISSING)
    names = names_of("004-python-1", "004-python-2")
    done = completed(names, ["```repl\n%s```" % code,
                             "```repl\nSUBMIT(answer=[response, responses])\n```"])
    assert done.answer == ["said What is 2+2?", ["said Q1", "said Q2", "said Q3"]], done.error


def test_an_image_of_ones_own(here):
    """Page 004, block 4: `...` is where the reader has the model."""
    if pages.read("004") is None:
        pytest.skip(pages.MISSING)
    names = names_of("004-python-1", "004-python-4")
    done = completed(names, ["```repl\nimport requests\nSUBMIT(answer=requests.__version__)\n```"])
    assert done.answer.count(".") == 2, done.error


@shows("004", "Environment Comparison / Security", "Docker")
def test_what_a_container_cannot_reach(here):
    """It has its own processes and files, and no network."""
    with DockerEnvironmentAdapter() as adapter:
        mark = "open(%r)" % os.path.abspath(__file__)
        assert "FileNotFoundError" in adapter.execute_code(mark).stderr
        assert adapter.execute_code(
            "import os\nprint(os.listdir('/sys/class/net'), "
            "os.getppid() < 100)").stdout == "['lo'] True\n"


@shows("004", "Docker Environment / Options", "subprocess_timeout_s")
def test_the_time_of_an_execution_in_a_container(here):
    """TimeoutError in stderr, and the container goes on."""
    with DockerEnvironmentAdapter(subprocess_timeout_s=2) as adapter:
        assert "\nTimeoutError: the cell ran longer than 2 s" in adapter.execute_code(
            "while True: pass").stderr
        assert adapter.execute_code("print(1)").stdout == "1\n"


@shows("004", "Troubleshooting / Docker Environment", "Ensure RLM_DOCKER_USE_HOST_NETWORK=1")
def test_the_hosts_network_where_the_page_asks_for_it(here, monkeypatch):
    """`export RLM_DOCKER_USE_HOST_NETWORK=1` gives the container the host's network; without it
    there is none."""
    export = block("004-bash-2").code.split()
    assert export[0] == "export"
    code = "import os\nprint(sorted(os.listdir('/sys/class/net')))"
    with droste.Interpreter(env="docker") as interp:
        assert interp.execute(code).stdout == "['lo']\n"
    monkeypatch.setenv(*export[1].split("="))
    with droste.Interpreter(env="docker") as interp:
        assert interp.execute(code).stdout == "%s\n" % sorted(os.listdir("/sys/class/net"))


@shows("004", "Troubleshooting / Docker Environment", "Container not starting")
def test_the_checks_of_the_page_find_daemon_and_image(here):
    """`docker info`, `docker images | grep python`: what the page tells its reader to look at.
    (`docker pull` needs the network.)"""
    for line in block("004-bash-4").code.splitlines():
        if line.startswith("docker") and not line.startswith("docker pull"):
            found = subprocess.run(["sh", "-ec", line], capture_output=True, text=True)
            assert found.returncode == 0 and found.stdout, line


@shows("004", "Troubleshooting / Docker Environment", "Cleanup failures")
def test_the_manual_cleanup_removes_what_is_left(here):
    """The page's line finds the containers by "rlm" in what `docker ps` shows."""
    interp = droste.Interpreter(env="docker")
    interp.start()
    assert len(here.containers()) == 1
    done = subprocess.run(["sh", "-c", block("004-bash-5").code], capture_output=True, text=True)
    assert done.returncode == 0 and here.containers() == [], done.stderr
    with pytest.raises(droste.Error):
        interp.execute("1").raise_for_status()
    interp.shutdown()


def test_a_daemon_that_is_not_there_is_an_environments_error(here, monkeypatch, tmp_path):
    """Container not starting: the message names the address and what to do, and no session is lost,
    as there was none."""
    monkeypatch.setenv("DOCKER_HOST", "unix://%s/nobody" % tmp_path)
    with pytest.raises(droste.EnvironmentFailed,
                       match="there is no Docker daemon at .*nobody: install Docker"):
        droste.Interpreter(env="docker").start()
