"""Sessions on Daytona, against the fake (tests/fakes/daytona.py), which the vendor's own SDK drives
too.

Faults are made by the fake, at the moment at which a model's answer is asked for, so that a test
knows where it is. Needs root (the fake's sandboxes have mounts of their own) and python3-aiohttp;
else skipped by name."""
import json
import os
import re
import subprocess
import time

import pytest

import daytona_fake
import same_checks
import droste.compat
import droste_cli

CUTS = int(os.environ.get("DROSTE_TEST_CUTS", "12"))


@pytest.fixture(scope="session")
def service():
    why = daytona_fake.missing()
    if why:
        pytest.skip(why)
    fake = daytona_fake.Fake()
    yield fake
    fake.close()


@pytest.fixture
def fake(service, home, monkeypatch):
    """The service, without a sandbox and without a fault; no sandbox may be left behind."""
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    service.order("calm", {})
    yield service
    droste.close_idle_engines()
    left = service.sandboxes()
    for s in left:
        service.order("sandbox", {"id": s["id"], "do": "destroy"})
    assert not left, [s["name"] for s in left]


@pytest.fixture
def opened(fake):
    """Opens sessions, which end with the test."""
    sessions = []

    def open_one(**settings):
        sessions.append(droste.Interpreter(env="daytona",
                                           **{"retries": 0, "max_llm_calls": 100000, **settings}))
        sessions[-1].start()
        return sessions[-1]
    yield open_one
    for s in sessions:
        s.shutdown()


def last_body(fake):
    return fake.state()["bodies"][-1]


def cell(fake, home, *words, **variables):
    """droste exec --env daytona."""
    return droste_cli.droste(home, "exec", "--json", "--env", "daytona", *words,
                             **{**fake.environment, "DROSTE_DATABASE": "none", **variables})


def asked(fake, route):
    return fake.state()["asked"].get(route, 0)


def settles(condition, seconds=60):
    """True once it is; a test that waits in vain fails by what it asserts."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


# -- the service is what the vendor's SDK says it is

def test_the_fake_is_driven_by_the_vendors_own_sdk(fake, home):
    """The whole life: made from images and snapshots, volumes, terminals, files, stopped, started,
    deleted, refused."""
    if daytona_fake.sdk_missing():
        pytest.skip(daytona_fake.sdk_missing())
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdk_daytona.py")
    done = subprocess.run([daytona_fake.SDK, "-W", "ignore", script], capture_output=True,
                          text=True, timeout=480,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(home), **fake.environment})
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert json.loads(done.stdout) == {"done": True}


# -- what is asked for reaches what it names

def test_by_default_it_has_limits_labels_and_no_network(opened, fake):
    """Every sandbox is stopped when nothing happens, deleted then, and at the end of its time; it
    can be found again."""
    interp = opened()
    body = last_body(fake)
    assert body["autoStopInterval"] == 15 and body["autoDeleteInterval"] == 0 and body[
        "ttlMinutes"] > 0
    assert body["networkBlockAll"] is True and "snapshot" not in body and "buildInfo" not in body
    assert re.fullmatch(r"droste-[0-9a-f]{20}", body["name"])
    assert body["labels"]["droste.owner"].split()[0] == str(os.getpid()) and body["labels"][
        "droste.machine"]
    assert interp.execute("open('/proc/net/dev').read().count(':')").echo == "1"


def test_what_is_named_is_what_it_is_made_of(opened, fake):
    opened(image="python:3.11-slim", memory="3G", cpus=1.5, disk_size="5G", gpus="1", region="eu",
           user="someone",
           label=["team=blue", "a=b=c"], idle_timeout=100, timeout=1000)
    body = last_body(fake)
    assert body["buildInfo"] == {"dockerfileContent": "FROM python:3.11-slim\n"}
    assert (body["memory"], body["cpu"], body["disk"], body["gpu"]) == (3, 2, 5, 1)
    assert (body["target"], body["user"], body["autoStopInterval"],
            body["ttlMinutes"]) == ("eu", "someone", 2, 17 + 5)
    assert body["labels"]["team"] == "blue" and body["labels"]["a"] == "b=c"


def test_a_snapshot_by_name(opened, fake):
    opened(snapshot="fleet-rlm-base")
    assert last_body(fake)["snapshot"] == "fleet-rlm-base" and "memory" not in last_body(fake)


@pytest.mark.parametrize("options, wanted", [
    ({"network": "open"}, {"networkBlockAll": False}),
    ({"network_allow": ["10.0.0.0/8", "example.org", "192.0.2.1/32"]},
     {"networkBlockAll": False, "networkAllowList": "10.0.0.0/8,192.0.2.1/32",
      "domainAllowList": "example.org"}),
])
def test_some_network_or_all(opened, fake, options, wanted):
    opened(**options)
    body = last_body(fake)
    assert {key: body.get(key) for key in wanted} == wanted


def test_the_region_of_the_account(fake, home):
    """DAYTONA_TARGET, unless a region is named."""
    assert cell(fake, home, "-c", "1", DAYTONA_TARGET="eu").returncode == 0
    assert last_body(fake)["target"] == "eu"
    assert cell(fake, home, "--region", "us", "-c", "1", DAYTONA_TARGET="eu").returncode == 0
    assert last_body(fake)["target"] == "us"


@pytest.mark.parametrize("options, words", [
    (["--cpus", "2"], "--cpus"),
    (["--gpus", "1"], "--gpus"),
    (["--disk-size", "5G"], "--disk-size"),
    (["--image", "a:1", "--snapshot", "b"], "give --image or --snapshot"),
    (["--image", "a:1 b"], "not the name of an image"),
    (["--image", "a:1", "--gpus", "all"], "give a number"),
    (["--network", "bridge"], "none and open"),
    (["--network", "open", "--network-allow", "x.org"], "exclude each other"),
    (["--volume-subpath", "x"], "--volume-name"),
    (["--processes", "9"], "--processes"),
    (["--read", "/etc"], "--read"),
    (["--pull", "always"], "--pull"),
    (["--isolation", "full"], "--isolation"),
])
def test_unsupported_options_are_refused_by_name(fake, home, options, words):
    """And nothing was asked of the service."""
    before = fake.state()["created"]
    done = cell(fake, home, *options, "-c", "1")
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert fake.state()["created"] == before


# -- authentication

@pytest.mark.parametrize("variables, words", [
    ({"DAYTONA_API_KEY": ""}, "DAYTONA_API_KEY"),
    ({"DAYTONA_API_BASE_URL": "http://x"}, "rename it to DAYTONA_API_URL"),
    ({"DAYTONA_API_KEY": "", "DAYTONA_JWT_TOKEN": "x"}, "DAYTONA_ORGANIZATION_ID"),
    ({"DAYTONA_API_URL": "ftp://x"}, "base URL"),
    ({"DAYTONA_API_KEY": "dtn_wrong"}, "check DAYTONA_API_KEY"),
    ({"DAYTONA_API_URL": "http://127.0.0.1:1/api"}, "does not answer"),
])
def test_a_wrong_configuration_is_reported(fake, home, variables, words):
    done = cell(fake, home, "--timeout", "20", "-c", "1", **variables)
    assert done.returncode != 0 and words in done.stderr and "dtn_wrong" not in done.stderr, (
        done.stderr)


def test_a_token_of_an_organization_does_too(fake, home):
    done = cell(fake, home, "-c", "print(6 * 7)", DAYTONA_API_KEY="",
                DAYTONA_JWT_TOKEN=daytona_fake.TOKEN,
                DAYTONA_ORGANIZATION_ID=daytona_fake.ORGANIZATION)
    assert json.loads(done.stdout)["stdout"] == "42\n", done.stderr


def test_the_key_is_nowhere_but_in_the_requests(opened, fake, home):
    """Not in the guest, its files and its neighbours; nor in what is told of a session; nor in an
    error that has the service's words, which may have the key in them."""
    interp = opened()
    found = interp.execute("""
import glob, os
seen = []
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try:
        seen.append(open(path, 'rb').read())
    except OSError:
        pass
for top in ('/home', '/tmp', '/dev/shm'):
    for root, _, names in os.walk(top):
        seen += [open(os.path.join(root, n), 'rb').read() for n in names if os.access(os.path.join(root, n), os.R_OK)]
parts = ['canary', '7c1e55']
SUBMIT(found=sum('-'.join(parts).encode() in s for s in seen), looked=len(seen), mine='-'.join(parts) in str(os.environ))
""")
    assert found.found == 0 and found.looked > 4 and found.mine is False
    assert daytona_fake.KEY not in json.dumps(found.json)
    interp.shutdown()
    fake.order("fail", {"method": "POST", "path": "/sandbox$", "status": 403,
                        "message": "no, %s" % daytona_fake.KEY})
    done = cell(fake, home, "-c", "1")
    assert (done.returncode != 0 and "refused the request (403)" in done.stderr
            and "canary" not in done.stderr + done.stdout), done.stderr


def test_over_tls_the_service_must_be_trusted(home):
    """Its REST and its WebSockets, by `ca-file`; without that file, nothing is sent to a server
    that cannot prove its identity."""
    why = daytona_fake.missing()
    if why:
        pytest.skip(why)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                    "key.pem", "-out", "cert.pem", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True,
                   cwd=home, capture_output=True)
    fake = daytona_fake.Fake("--certificate", str(home / "cert.pem"), "--key",
                             str(home / "key.pem"))
    try:
        done = cell(fake, home, "--ca-file", str(home / "cert.pem"), "-c", "print(6 * 7)")
        assert json.loads(done.stdout)["stdout"] == "42\n", done.stderr
        done = cell(fake, home, "-c", "1")
        assert done.returncode != 0 and "certificate is not trusted" in done.stderr, done.stderr
    finally:
        fake.close()


# -- made once, ended for sure

@pytest.mark.parametrize("fault", [
    {"how": "drop"}, {"how": "after", "status": 503}, {"how": "after", "status": 502},
    {"how": "before", "status": 429, "retry_after": 1}, {"how": "before", "status": 503},
])
def test_nothing_is_made_twice_by_a_retry(opened, fake, fault):
    """The request was carried out and its answer lost; or it was put off."""
    before = fake.state()["created"]
    fake.order("fail", {"method": "POST", "path": "/sandbox$", "times": 1, **fault})
    assert opened().execute("1 + 1").echo == "2"
    assert fake.state()["created"] == before + 1 and len(fake.sandboxes()) == 1


@pytest.mark.parametrize("route", ["/process/pty$", "/volumes$", "/volumes/",
                                   "/process/pty/.*/connect$"])
def test_other_requests_may_fail_once_too(opened, fake, route):
    fake.order("fail", {"path": route, "times": 1, "status": 503})
    assert opened(volume_name="tried").execute("1 + 1").echo == "2"


def test_what_failed_to_be_built_says_why(fake, home):
    done = cell(fake, home, "--image", "no-such:1", "-c", "1")
    assert (done.returncode != 0 and "build_failed" in done.stderr
            and "pull access denied" in done.stderr)


def test_a_snapshot_that_is_not_there(fake, home):
    done = cell(fake, home, "--snapshot", "no-such", "-c", "1")
    assert done.returncode != 0 and "Snapshot no-such not found" in done.stderr


def test_an_interpreter_that_is_not_there(fake, home):
    done = cell(fake, home, "--python", "/nowhere/python3", "-c", "1")
    assert done.returncode != 0 and "/nowhere/python3: No such file" in done.stderr


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/zsh"])
def test_any_shell_will_do(fake, home, shell):
    if not os.path.exists(shell):
        pytest.skip(shell + " is not on this machine")
    fake.order("shell", {"shell": shell})
    done = cell(fake, home, "--volume-name", "shells", "-c",
                "import os; print(len(os.listdir(os.environ['DROSTE_VOLUME'])))")
    assert json.loads(done.stdout)["stdout"] == "11\n", done.stderr
    done = cell(fake, home, "--python", "/nowhere/python3", "-c", "1")
    assert done.returncode != 0 and "/nowhere/python3" in done.stderr, done.stderr


def test_what_a_killed_host_has_left_is_collected(fake, home):
    """By `droste env gc`, and by the next session's host; what belongs to one that lives stays."""
    words = [droste_cli.DROSTE, "exec", "--env", "daytona", "-c",
             "import time\nprint('up', flush=True)\ntime.sleep(600)"]
    variables = droste_cli.environment(home, **fake.environment, DROSTE_DATABASE="none")
    hosts = [subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)
             for _ in range(2)]
    try:
        deadline = time.monotonic() + 60
        while (len([s for s in fake.sandboxes() if s["terminals"]]) < 2
               and time.monotonic() < deadline):
            time.sleep(0.1)
        hosts[0].kill()
        hosts[0].wait()
        assert len(fake.sandboxes()) == 2
        done = droste_cli.droste(home, "env", "gc", "--env", "daytona", **fake.environment,
                                 DROSTE_DATABASE="none")
        assert done.returncode == 0 and "1" in done.stdout, done.stdout + done.stderr
        left = fake.sandboxes()
        assert [s["labels"]["droste.owner"].split()[0] for s in left] == [str(hosts[1].pid)]
        hosts[1].kill()
        hosts[1].wait()
        assert cell(fake, home, "-c", "import time; time.sleep(0.5)").returncode == 0
        assert not fake.sandboxes()
    finally:
        for host in hosts:
            host.kill()
            host.communicate()          # closes its pipe


def test_what_a_killed_host_has_left_ends_by_itself(fake, home):
    """Without `droste env gc`: nothing is attached to it any more, so that the provider stops it,
    and it is deleted then. The session of a host that lives is as idle, and stays."""
    with droste.Interpreter(env="daytona", retries=0) as interp:
        assert interp.execute("x = 1").ok
        words = [droste_cli.DROSTE, "exec", "--env", "daytona", "-c",
                 "import time\ntime.sleep(600)"]
        host = subprocess.Popen(words, env=droste_cli.environment(home, **fake.environment,
                                                                  DROSTE_DATABASE="none"))
        assert settles(lambda: sum(bool(s["terminals"]) for s in fake.sandboxes()) == 2)
        host.kill()
        host.wait()
        assert len(fake.sandboxes()) == 2
        fake.order("minute", {"seconds": 0.1})
        assert settles(lambda: len(fake.sandboxes()) == 1)
        assert interp.execute("x").echo == "1"
        fake.order("calm", {})


# -- stopped, and gone on in

def test_a_sandbox_can_be_kept_and_gone_on_in(fake, home):
    """Its files are kept, its variables are not; the session that continues in it ends it."""
    done = cell(fake, home, "--on-close", "stop", "--volume-name", "stays", "-c",
                "open('/home/daytona/note', 'w').write('kept'); x = 1")
    assert done.returncode == 0, done.stderr
    (kept,) = fake.sandboxes()
    assert kept["state"] == "stopped" and kept["intervals"]["autoDeleteInterval"] == 7 * 24 * 60
    assert kept["intervals"]["ttlMinutes"] is None
    done = cell(fake, home, "--sandbox", kept["id"], "--volume-name", "stays",
                "-c",
                "print(open('/home/daytona/note').read(), 'x' in globals(), "
                "__import__('os').environ['DROSTE_VOLUME'])")
    assert json.loads(done.stdout)["stdout"] == "kept False /home/daytona/memory\n", done.stderr
    assert not fake.sandboxes()
    done = cell(fake, home, "--sandbox", kept["id"], "-c", "1")
    assert done.returncode != 0 and "not found" in done.stderr


# -- programs that were written for it

def test_each_parameter_of_an_interpreter_reaches_what_it_names(fake, home):
    spec = {"image": "python:3.12-slim", "cpu": 2, "memory": 4, "disk": 8, "auto_stop_interval": 30,
            "network_block_all": True,
            "env_vars": {"SHOWN": "yes"}, "target": "eu", "labels": {"a": "1"}}
    with droste.compat.DaytonaInterpreter(timeout=600, execute_timeout=30, volume_name="named",
                                          volume_subpath="part", max_llm_calls=1,
                                   sandbox_spec=spec, sandbox_labels={"b": "2"},
                                          delete_session_on_shutdown=False,
                                   context_paths=[__file__],
                                          sub_lm=lambda prompt: ["re: " + prompt]) as interp:
        body = last_body(fake)
        assert (body["buildInfo"]["dockerfileContent"], body["cpu"], body["memory"],
                body["disk"]) == ("FROM python:3.12-slim\n", 2, 4, 8)
        assert (body["autoStopInterval"], body["networkBlockAll"],
                body["target"]) == (30, True, "eu")
        assert body["labels"]["a"] == "1" and body["labels"]["b"] == "2" and body["volumes"][0][
            "subpath"] == "part"
        result = interp.execute(
            "import os\nSUBMIT(shown=os.environ['SHOWN'], reply=llm_query('x'), "
            "here=len(read_file(CONTEXT_PATHS[0])))")
        assert (result.shown, result.reply, result.here) == ("yes", "re: x",
                                                             len(open(__file__).read()))
        limits = interp.execute("1").resources["limits"]
        assert (limits["timeout"]["value"], limits["execute-timeout"]["value"]) == (600, 30)
    droste.close_idle_engines()
    (kept,) = fake.sandboxes()
    assert kept["state"] == "stopped"
    fake.order("sandbox", {"id": kept["id"], "do": "destroy"})


@pytest.mark.parametrize("context", [False, True])
def test_variables_end_with_their_session_in_any_case(fake, home, context):
    """delete_context_on_shutdown: a sandbox that is kept has its files, and whoever goes on in it
    has new variables."""
    with droste.compat.DaytonaInterpreter(delete_session_on_shutdown=False,
                                          delete_context_on_shutdown=context) as interp:
        interp.execute("x = 1; open('/home/daytona/note', 'w').write('kept')")
        kept = interp.sandbox_id
    droste.close_idle_engines()
    with droste.compat.DaytonaInterpreter(sandbox=kept) as interp:
        result = interp.execute(
            "SUBMIT(x='x' in globals(), note=open('/home/daytona/note').read())")
        assert (result.x, result.note) == (False, "kept")
    droste.close_idle_engines()
    assert not fake.sandboxes()


def test_what_reaches_nothing_is_refused_by_name(fake):
    for options, word in (({"sandbox_spec": {"auto_archive_interval": 5}}, "auto_archive_interval"),
                          ({"runtime": object()}, "runtime")):
        with pytest.raises(droste.UnsupportedError, match=word):
            droste.compat.DaytonaInterpreter(**options)


def test_environment_kwargs_of_a_run(fake, home):
    """As programs for other runtimes name them; a key is not one of them."""
    replies = iter(["```repl\nprint(6 * 7)\n```", "FINAL(done)"])
    run = droste.RLM(lambda messages: next(replies), environment="daytona", database="none",
                     environment_kwargs={"image": "python:3.12-slim", "cpu": 1, "memory": 2,
                                         "auto_stop_interval": 5, "name": "mine"})
    assert run.run("q", "context").answer == "done"
    body = last_body(fake)
    assert (body["cpu"], body["memory"], body["autoStopInterval"],
            body["labels"]["name"]) == (1, 2, 5, "mine")
    with pytest.raises(droste.ArgumentError, match="DAYTONA_API_KEY"):
        droste.RLM(lambda messages: "", environment="daytona",
                   environment_kwargs={"api_key": "dtn_x"})


# -- volumes

def test_a_volume_has_the_directories_and_stays(opened, fake):
    """It is made, waited for, and mounted where code that was written for Daytona looks for it."""
    fake.order("delay", {"states": 0.3})
    interp = opened(volume_name="my-data")
    assert last_body(fake)["volumes"][0]["mountPath"] == "/home/daytona/memory"
    assert set(interp.execute(
        "sorted(__import__('os').listdir('/home/daytona/memory'))").echo.strip("[]").replace(
        "'", "").split(", ")) == {
        "artifacts", "buffers", "knowledge", "logs", "memories", "memory", "meta", "sessions",
        "skills", "uploads", "workspace"}
    interp.execute(
        "save_to_volume('artifacts/r.json', '[1]'); "
        "open('/home/daytona/memory/knowledge/ingested/x', 'w').write('y')")
    interp.shutdown()
    again = opened(volume_name="my-data")
    assert again.execute(
        "load_from_volume('artifacts/r.json') + "
        "open('/home/daytona/memory/knowledge/ingested/x').read()").echo == "'[1]y'"
    assert [v["name"] for v in fake.state()["volumes"]].count("my-data") == 1


def test_a_part_of_a_volume(opened, fake):
    opened(volume_name="parts",
           volume_subpath="teams/a").execute("open('/home/daytona/memory/f', 'w').write('a')")
    whole = opened(volume_name="parts")
    assert whole.execute("open('/home/daytona/memory/teams/a/f').read()").echo == "'a'"
    assert "subpath" not in last_body(fake)["volumes"][0]


def test_the_fakes_volumes_are_buckets(opened, fake):
    """What mount-s3 refuses is refused, so that no other test leans on it; what it allows is
    done."""
    if not fake.state()["buckets"]:
        pytest.skip("/dev/fuse cannot be used here, so the fake's volumes are directories")
    interp = opened(volume_name="bucket")
    assert interp.execute("""
import errno, os
os.chdir(MEMORY_ROOT)
def refused(what):
    try:
        what()
    except OSError as e:
        return errno.errorcode[e.errno]
def changed():
    with open('new', 'wb', buffering=0) as f:
        f.write(b'ab')
        f.seek(0)
        f.write(b'c')
def seen_early():
    with open('early', 'w') as f:
        f.write('x')
        f.flush()
        open('early')
open('a', 'w').write('1')
open('a', 'w').write('2')
os.makedirs('d')
open('d/one', 'w').write('1')
os.unlink('d/one')
SUBMIT(rename=refused(lambda: os.rename('a', 'b')), append=refused(lambda: open('a', 'a')), symlink=refused(lambda: os.symlink('a', 'b')),
       link=refused(lambda: os.link('a', 'b')), mode=refused(lambda: os.chmod('a', 0o600)), changed=refused(changed), early=refused(seen_early),
       a=open('a').read(), directory=os.path.exists('d'))
""").fields == {"rename": "ENOSYS", "append": "EPERM", "symlink": "ENOSYS", "link": "EPERM",
                "mode": "EPERM", "changed": "EINVAL",
                "early": "EPERM", "a": "2", "directory": False}


def volume(fake, home, *words):
    """droste volume --env daytona."""
    return droste_cli.droste(home, "volume", *words, "--env", "daytona",
                             **{**fake.environment, "DROSTE_DATABASE": "none"})


def test_the_volume_command_is_about_daytonas_volumes(opened, fake, home, tmp_path):
    """put, ls, tree and get reach a volume of the account's through a sandbox that has it, which is
    gone afterwards; a volume that is not there is not made, and a verb for this machine's volumes
    is refused."""
    interp = opened(volume_name="files")
    assert interp.execute("SUBMIT(save_to_volume('artifacts/x/r.json', '[1]'))").ok
    interp.shutdown()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a" * 70000)
    done = volume(fake, home, "put", "files", str(tmp_path / "in"), "uploads/in")
    assert done.returncode == 0 and "70000 bytes" in done.stdout, done
    assert volume(fake, home, "tree", "files", "artifacts").stdout == "x/\n  r.json\n"
    assert "70000" in volume(fake, home, "ls", "files", "/home/daytona/memory/uploads/in").stdout
    assert volume(fake, home, "get", "files", "uploads/in", str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out" / "a.txt").read_text() == "a" * 70000
    done = volume(fake, home, "ls", "nowhere")
    assert done.returncode == 2 and "no volume 'nowhere'" in done.stderr, done
    assert "nowhere" not in [v["name"] for v in fake.state()["volumes"]]
    assert "with volumes of this machine" in volume(fake, home, "du", "files").stderr
    assert fake.state()["sandboxes"] == []


# -- what may happen in the middle

class Happens:
    """A model whose first question makes something happen, and which counts."""

    def __init__(self, what):
        self.what, self.asked = what, []

    def __call__(self, messages):
        self.asked.append(messages[-1]["content"])
        if len(self.asked) == 1:
            self.what()
        return "re: " + self.asked[-1]


def one_id(fake):
    (sandbox,) = fake.sandboxes()
    return sandbox["id"]


def test_a_cut_is_not_noticed(opened, fake):
    """The cell goes on, its call is answered once, its output is whole."""
    model = Happens(lambda: fake.order("cut", {}))
    interp = opened(model=model)
    result = interp.execute("x = llm_query('a')\nprint(x)\nprint(llm_query('b'))")
    assert (result.status, result.stdout, model.asked) == ("ok", "re: a\nre: b\n", ["a", "b"])
    assert interp.execute("x").echo == "'re: a'"


@pytest.mark.parametrize("do, words", [
    ("stop", "stopped"), ("destroy", "no longer exists"), ("error", "the runner is gone"),
    ("pty", "ended"), ("kill", None),
])
def test_an_end_from_outside_is_explained(opened, fake, do, words):
    """The cell's status is `lost`: its outcome is unknown. Nothing is run again. A machine whose
    end nobody has noticed is asked for until the patience is over, or its terminal has ended."""
    model = Happens(lambda: fake.order("sandbox", {"id": one_id(fake), "do": do}))
    interp = opened(model=model, on_close="stop" if do == "stop" else "delete")
    result = interp.execute("llm_query('a')\nllm_query('b')\nimport time\ntime.sleep(60)")
    assert (result.status, result.alive) == ("lost", False)
    assert model.asked in (["a"], ["a", "b"])
    if words:
        assert words in str(result.json), result.json
    with pytest.raises(droste.LostError):
        interp.execute("1")
    interp.shutdown()
    for s in fake.sandboxes():
        fake.order("sandbox", {"id": s["id"], "do": "destroy"})


def test_a_key_that_is_no_longer_taken_ends_it_by_name(opened, fake):
    """401 in the middle: there is no token to renew, and the error says what to check."""
    def revoke():
        fake.order("keys", {"keys": []})
        fake.order("cut", {})
    interp = opened(model=Happens(revoke))
    result = interp.execute("llm_query('a')\nimport time\ntime.sleep(60)")
    assert result.status == "lost" and not result.alive and "DAYTONA_API_KEY" in str(result.json)
    assert "canary" not in str(result.json)
    fake.order("keys", {"keys": [daytona_fake.KEY]})


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_service_that_is_busy_is_waited_for(opened, fake, status):
    """While the terminal is attached again the service puts off some requests."""
    def busy():
        fake.order("fail", {"path": "/connect$", "times": 2, "status": status})
        fake.order("fail", {"path": "/api/sandbox/", "times": 1, "status": status})
        fake.order("cut", {})
    interp = opened(model=Happens(busy))
    result = interp.execute("print(llm_query('a'))")
    assert (result.status, result.stdout) == ("ok", "re: a\n")


CELL = """
for i in range(6):
    print('line', i, llm_query('%d.%%d' %% i))
open('/home/daytona/runs', 'a').write('%d\\n')
"""


def cut_session(opened, fake, cuts):
    """Cells until each of the cuts was made: nothing is run, asked or said twice, and nothing is
    lost."""
    count = []

    def model(messages):
        count.append(messages[-1]["content"])
        return "re: " + count[-1]
    fake.order("cuts", cuts)
    interp, n = opened(model=model), 0
    while (n == 0 or fake.state()["cuts"] > 0) and n < 1000:
        result = interp.execute(CELL % (n, n))
        assert result.status == "ok", result.json
        assert result.stdout == "".join("line %d re: %d.%d\n" % (i, n, i) for i in range(6))
        n += 1
    assert count == ["%d.%d" % (k, i) for k in range(n) for i in range(6)]
    assert interp.execute("open('/home/daytona/runs').read().split()").echo == str(
        [str(k) for k in range(n)])
    interp.shutdown()
    return n


def test_cuts_at_every_frame(opened, fake):
    """The connection ends before each frame of the service's, and within each; DROSTE_TEST_CUTS
    says how many."""
    plans = [{"frames": k // 2 + 1, "part": 0.5 * (k % 2)} for k in range(min(CUTS // 2, 60))]
    assert cut_session(opened, fake, plans) > 0


def test_cuts_at_any_byte(opened, fake):
    """Either way, at bytes of the boot, of headers and of payloads."""
    plans = [{("out", "in")[k % 2]: 1 + (k * 7919) % 9000} for k in range(CUTS)]
    assert cut_session(opened, fake, plans) > 0


def test_cuts_while_it_boots(opened, fake):
    """Before the program has spoken the terminal is made anew; while it is sent, that is sent
    again."""
    for out in (0, 20, 90, 150, 400):
        fake.order("cuts", [{"out": out}])
        assert opened().execute("6 * 7").echo == "42"
    for into in (1, 100, 1000, 3000, 5000, 60000):
        fake.order("cuts", [{"in": into}])
        assert opened().execute("6 * 7").echo == "42"


# -- sizes, and what is awkward

def test_a_large_context_and_a_large_result(opened, fake):
    """50 MB in, 20 MB out, unchanged; through one cut."""
    import hashlib
    text = "".join("%d: zeile mit ümlaut \U0001f600 und mehr\n" % i for i in range(1_300_000))
    assert len(text.encode()) > 50_000_000
    interp = opened(model=Happens(lambda: fake.order("cut", {})), max_llm_calls=1)
    interp.execute("llm_query('cut')")
    result = interp.execute(
        "import hashlib\nSUBMIT(digest=hashlib.sha256(given.encode()).hexdigest(), "
        "back=given[:8_000_000], n=len(given))",
        variables={"given": text})
    assert result.digest == hashlib.sha256(text.encode()).hexdigest() and result.n == len(text)
    assert result.back == text[:8_000_000]
    result = interp.execute("SUBMIT(big='\\u00e9\"' * 7_000_000)")
    assert result.big == "é\"" * 7_000_000


def test_a_flood_of_output_does_not_close_the_connection(opened, fake):
    """The service closes for who does not read; what is on its way is bounded far below that."""
    before = asked(fake, "GET /toolbox/ID/process/pty/ID/connect")
    interp = opened(output_limit="30M")
    result = interp.execute("for i in range(200): print('x' * 99999)")
    assert result.status == "ok" and len(result.stdout) == 200 * 100000
    assert asked(fake, "GET /toolbox/ID/process/pty/ID/connect") == before + 1


AWKWARD = ['ends in a quote"', "ends in three '''", "nul \0 in it", "cr\r\nlf\n\r",
           "\x1e\x1eDROSTE abc\n", "lone \ud800 surrogate \udfff",
           "\x00\x01\x02\x03\x04\x11\x13\x1a\x1b\x1c\x7f\x80", "\u2028\ufeff\U0010ffff", "\\",
           "'; exit 1 #", ""]


def test_any_text_comes_as_it_was(opened, fake):
    """What a terminal could take for its own: control characters, marks, quotes; what is no
    Unicode."""
    interp = opened(model=lambda messages: messages[-1]["content"])
    for text in AWKWARD:
        result = interp.execute("SUBMIT(same=[ord(c) for c in given])", variables={"given": text})
        assert result.same == [ord(c) for c in text]
        if any(0xD800 <= ord(c) < 0xE000 for c in text):
            continue            # which no answer may have: JSON has no such text
        assert interp.execute("SUBMIT(back=given)").back == text
        if text:
            assert interp.execute("llm_query(given) == given").echo == "True"


def test_a_run_saves_its_files(fake, tmp_path):
    same_checks.check_artifacts(tmp_path, env="daytona", database="none")


def test_values_of_libraries_keep_their_types(opened):
    same_checks.check_library_values(opened())
