"""--env modal against the fake Modal: what is asked for reaches it, what goes wrong is said, and
nothing is done twice or left.

The conformance suite (modal_adapter.py) has what a session means; here is what only Modal has."""
import json
import os
import random
import signal
import subprocess
import sys

import pytest

import modal_fake
import same_checks
from same_checks import wait_until

ROOT = modal_fake.ROOT
sys.path.insert(0, os.path.join(ROOT, "python"))

import droste       # noqa: E402

DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
CUTS = int(os.environ.get("DROSTE_TEST_CUTS", "12"))

pytestmark = pytest.mark.skipif(modal_fake.missing() is not None, reason=str(modal_fake.missing()))


@pytest.fixture(scope="module")
def cloud():
    one = modal_fake.Fake()
    yield one
    one.close()


@pytest.fixture
def fake(cloud, monkeypatch, tmp_path):
    """The cloud with nothing in it, which the environment leads to."""
    for name, value in {**cloud.environment, "DROSTE_DATABASE": "none",
                        "DROSTE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    cloud.forget()
    yield cloud
    droste.close_idle_engines()
    left = wait_until(lambda: not cloud.live())
    cloud.forget()
    assert left, "a sandbox is left"


def opened(**settings):
    return droste.Interpreter(env="modal", **{"max_llm_calls": 100000, "grace": 30, **settings})


def run(*words, **more):
    return subprocess.run([DROSTE, *words], env={**os.environ, **more}, capture_output=True,
                          text=True, timeout=120)


def only(fake):
    """The one sandbox that there is."""
    [one] = fake.sandboxes()
    return one


# ---- what is asked for ----

def test_the_defaults_are_those_of_the_pages(fake):
    """App rlm-sandbox, 600 seconds, no network, an image of the default packages, and limits of
    idle time always."""
    with opened() as interp:
        assert interp.execute("SUBMIT(1)").ok
        made = only(fake)
        assert interp.sandbox_id == made["id"]
    assert list(fake.apps()) and "rlm-sandbox" in fake.apps()
    definition = made["definition"]
    assert definition["timeoutSecs"] == 600 and definition["idleTimeoutSecs"] == 300
    assert definition["networkAccess"] == {"networkAccessType": "BLOCKED"}
    for package in "numpy pandas scipy sympy requests httpx flask pyyaml tqdm dill".split():
        assert package in " ".join(made["image"]), package
    assert {"droste.owner", "droste.machine"} <= set(made["tags"])


def test_every_setting_reaches_what_it_names(fake):
    with opened(timeout=90, idle_timeout=33, cpus=0.5, memory="512M", gpus="T4", region="us-east",
                label=["team=a"], app_name="mine",
                network_allow=["10.0.0.0/8", "192.0.2.7", "example.org"],
                image="slim:3.12:tqdm") as interp:
        assert interp.execute("SUBMIT(1)").ok
        made = only(fake)
    d = made["definition"]
    assert (d["timeoutSecs"], d["idleTimeoutSecs"]) == (90, 33) and "mine" in fake.apps()
    assert (d["resources"]["milliCpu"], d["resources"]["milliCpuMax"],
            d["resources"]["memoryMbMax"]) == (500, 500, 512)
    assert d["resources"]["gpuConfig"] == {"gpuType": "T4", "count":
                                           1} and d["schedulerPlacement"]["regions"] == ["us-east"]
    assert d["networkAccess"] == {"networkAccessType": "ALLOWLIST", "allowedCidrs":
                                  ["10.0.0.0/8", "192.0.2.7/32"], "allowedDomains": ["example.org"]}
    assert made["tags"]["team"] == "a" and made["image"][-1].endswith("tqdm")


def test_the_network_is_open_where_a_setting_opens_it(fake):
    with opened(network="open") as interp:
        assert interp.execute("SUBMIT(1)").ok
        assert only(fake)["definition"]["networkAccess"] == {"networkAccessType": "OPEN"}


def test_an_image_by_its_name(fake):
    with opened(image="python:3.12-slim") as interp:
        assert interp.execute("SUBMIT(1)").ok
        assert "FROM python:3.12-slim" in "\n".join(only(fake)["image"])


def test_what_modal_has_not_is_refused_by_name(fake):
    """Before anything is made."""
    for settings, word in (({"disk_size": "1G"}, "disk-size"), ({"snapshot": "s"}, "snapshot"),
                           ({"read": ["/usr"]}, "read"), ({"user": "1"}, "user")):
        with pytest.raises(droste.UnsupportedError, match=word):
            opened(**settings).start()
    assert fake.sandboxes() == []


@pytest.fixture
def isolated(fake):
    if not fake.isolated:
        pytest.skip("only root can give the fake's sandboxes mounts of their own")
    return fake


def test_a_volume_is_modals_own(isolated):
    """By its name, at /data and as MEMORY_ROOT, and what was written is there in the next session;
    another product's names are there on request."""
    with opened(volume_name="kept") as interp:
        assert interp.execute("open('/data/a', 'w').write('b'); SUBMIT(m=MEMORY_ROOT)").m == "/data"
    assert os.listdir(isolated.volumes()["kept"]) == ["a"]
    with opened(volume_name="kept", layout="daytona") as interp:
        assert interp.execute(
            "SUBMIT(a=open(MEMORY_ROOT + '/a').read(), b=load_from_volume('a'), "
            "m=MEMORY_ROOT)").fields == {
            "a": "b", "b": "b", "m": "/home/daytona/memory"}
    assert os.path.isdir(os.path.join(isolated.volumes()["kept"], "artifacts"))
    synced = isolated.sandboxes()[0]["programs"]
    assert synced == 2, "the volume was not written back"


def test_a_part_of_a_volume(isolated):
    with opened(volume_name="parts", volume_subpath="one/two") as interp:
        assert interp.execute("open('/data/a', 'w').write('b'); SUBMIT(1)").ok
    assert os.path.exists(os.path.join(isolated.volumes()["parts"], "one", "two", "a"))


def test_a_sandbox_that_is_kept_is_gone_on_in(isolated):
    """on_close="stop" leaves it to its time; sandbox=ID has another session in it, with its
    files."""
    with opened(on_close="stop", timeout=60) as interp:
        interp.execute("open('/root/a', 'w').write('b')")
        kept = interp.sandbox_id
    droste.close_idle_engines()
    assert [s["id"] for s in isolated.live()] == [kept]
    with opened(sandbox=kept) as interp:
        assert interp.execute(
            "SUBMIT(a=open('/root/a').read())").a == "b" and interp.sandbox_id == kept
    assert wait_until(lambda: not isolated.live())
    with pytest.raises(droste.Error, match="has ended"):
        opened(sandbox=kept).start()


# ---- values ----

def test_fifty_megabytes_in_and_twenty_out(fake):
    with opened(output_limit="30M") as interp:
        text = "0123456789abcdef" * (50 << 16)
        assert interp.execute("SUBMIT(n=len(big), h=__import__('zlib').crc32(big.encode()))",
                              {"big": text}).fields == {
            "n": len(text), "h": __import__("zlib").crc32(text.encode())}
        assert interp.execute("SUBMIT(v='xyz9' * (5 << 20))").v == "xyz9" * (5 << 20)


@pytest.mark.parametrize("text", ["ends in '", 'ends in "', "ends in '''", "\0", "a\r\nb\r",
                                  "\ud800", "\U0001f600é\u2028\x1e"], ids=repr)
def test_awkward_contexts_arrive_as_they_were(fake, text):
    with opened() as interp:
        assert interp.execute("SUBMIT(p=[ord(c) for c in v])",
                              {"v": text}).p == [ord(c) for c in text]


# ---- loss ----

CELL = """
replies = [llm_query('call %%d' %% n) for n in range(%d, %d)]
print('cell %d')
ran = globals().get('ran', 0) + 1
SUBMIT(replies=replies, ran=ran)
"""


def keep_calling(interp, asked, until, most=400):
    """Cells with three calls each, until it is enough: each runs once, and each of its calls is
    asked and answered once."""
    for cell in range(most):
        result = interp.execute(CELL % (3 * cell, 3 * cell + 3, cell))
        assert result.fields == {"replies": [
            "re: call %d" % n for n in range(3 * cell, 3 * cell + 3)], "ran": cell + 1}, result.json
        assert result.stdout == "cell %d\n" % cell
        if until():
            break
    assert until() and asked == ["call %d" % n for n in range(3 * cell + 3)]


def with_calls(**settings):
    asked = []

    def model(messages):
        asked.append(messages[-1]["content"])
        return "re: " + asked[-1]
    return opened(model=model, **settings), asked


def test_the_stream_is_cut_again_and_again(fake):
    """At the borders of messages and within them: every call is made once, every cell runs once,
    and no output is lost."""
    interp, asked = with_calls()
    with interp:
        assert interp.execute("1").ok
        numbers = random.Random(CUTS)
        fake.cut_after([numbers.choice((0, 1, 4, 27, 28, 29, numbers.randrange(2000)))
                        for _ in range(CUTS)])
        keep_calling(interp, asked, lambda: fake.cuts_left() == 0)


def test_requests_whose_answers_are_lost_write_once(fake):
    interp, asked = with_calls()
    with interp:
        assert interp.execute("1").ok
        for _ in range(5):
            fake.fail("TaskExecStdinWrite.done", status="UNAVAILABLE", times=2)
        keep_calling(interp, asked, lambda: fake.counts().get("TaskExecStdinWrite.done", 0) > 12)


def test_tokens_that_are_over_are_fetched_anew(fake):
    """In the middle of a session: it does not notice. The SDK fetches another one only where its
    own says that it ends within half a minute."""
    fake.tokens(25)

    def fetched_anew():
        return fake.counts().get("SandboxGetCommandRouterAccess", 0) > 1 or fake.expire()

    interp, asked = with_calls()
    with interp:
        keep_calling(interp, asked, fetched_anew)


@pytest.mark.parametrize("name, fault", [
    ("SandboxCreateV2", {"status": "UNAVAILABLE", "times": 2}),
    ("SandboxCreateV2", {"status": "RESOURCE_EXHAUSTED", "retry_after": 0.1, "times": 2}),
    ("SandboxCreateV2.after", {"status": "UNAVAILABLE"}),
    ("AppGetOrCreate", {"status": "UNAVAILABLE", "times": 2}),
    ("TaskExecStart.after", {"status": "UNAVAILABLE"}),
], ids=["503", "429", "its answer is lost", "the app's 503", "the start's answer is lost"])
def test_a_start_is_tried_again_and_made_once(fake, name, fault):
    fake.fail(name, **fault)
    with opened() as interp:
        assert interp.execute("SUBMIT(1)").ok
        assert only(fake)["programs"] == 1


@pytest.mark.parametrize("status, reported, text", [
    ("TERMINATED", "lost", "terminated"),
    ("TIMEOUT", "timeout", "reached the end of its lifetime (life)"),
    ("IDLE_TIMEOUT", "lost", "sandbox has ended"),
    ("INTERNAL_FAILURE", "lost", "sandbox has ended")])
def test_a_sandbox_that_ends_says_why(fake, status, reported, text):
    """The cell's result says that its outcome is not known, and what is known of the sandbox."""
    with opened(tools={"started": lambda: fake.finish(status)}) as interp:
        assert interp.execute("1").ok
        result = interp.execute("started()\nimport time\ntime.sleep(60)")
        assert result.status == reported and text in str(result.error), result.json
        assert not interp.alive


# ---- what goes wrong ----

@pytest.mark.parametrize("fault, kind, words", [
    (("AppGetOrCreate", {"status": "UNAUTHENTICATED", "message": "revoked"}),
     droste.PermissionDenied, "MODAL_TOKEN_ID"),
    (("AppGetOrCreate", {"status": "PERMISSION_DENIED"}), droste.PermissionDenied,
     "does not have permission"),
    (("SandboxCreateV2", {"status": "RESOURCE_EXHAUSTED", "message": "GPU quota"}),
     droste.EnvironmentFailed, "quota"),
    (("SandboxCreateV2", {"status": "INVALID_ARGUMENT", "message": "bad region"}),
     droste.ArgumentError, "bad region"),
    (("SandboxCreateV2", {"status": "UNAVAILABLE", "times": 99}), droste.Error,
     "could not be reached"),
], ids=["token", "permission", "quota", "argument", "down"])
def test_failures_have_their_category_and_a_cure(fake, fault, kind, words):
    name, fault = fault
    fake.fail(name, **fault)
    with pytest.raises(kind, match=words):
        opened().start()


def test_a_build_that_fails_shows_the_end_of_its_log(fake):
    with pytest.raises(droste.Error, match="No matching distribution found for no-such-package"):
        opened(image="slim:3.12:no-such-package").start()


def test_a_python_without_the_package_says_what_to_install(fake, monkeypatch):
    monkeypatch.setenv("DROSTE_MODAL_PYTHON", "/usr/bin/python3")
    if subprocess.run(["/usr/bin/python3", "-c", "import modal"],
                      capture_output=True).returncode == 0:
        pytest.skip("the system's Python has the package modal")
    with pytest.raises(droste.Error, match=r"pip install 'droste\[modal\]'"):
        opened().start()


def test_no_token_says_how_one_is_made(fake, monkeypatch):
    monkeypatch.delenv("MODAL_TOKEN_ID")
    monkeypatch.delenv("MODAL_TOKEN_SECRET")
    with pytest.raises(droste.Error, match="modal token new"):
        opened().start()


def test_the_secret_is_nowhere(fake, tmp_path, monkeypatch):
    """Not in the guest, its files and its processes, not in a record, a log, or an error that the
    service makes of it."""
    secret = modal_fake.SECRET
    monkeypatch.setenv("DROSTE_DATABASE", str(tmp_path / "runs.db"))
    look = (
        "import os, glob\nfound = [n for n in glob.glob('/proc/*/environ') + "
        "glob.glob('/proc/*/cmdline') if %r + '7b1f' in open(n, errors='replace').read()]\n"
        "SUBMIT(env=dict(os.environ), found=found)" % secret[:-4])
    with opened() as interp:
        seen = interp.execute(look)
        assert seen.found == [] and secret not in json.dumps(seen.env)
    done = run("run", "--env", "modal", "--model", "exec:" + str(answering(tmp_path)), "--question",
               "q", "--context", "/etc/hostname", DROSTE_DATABASE=str(tmp_path / "runs.db"))
    assert done.returncode == 0, done.stderr
    fake.fail("AppGetOrCreate", status="INVALID_ARGUMENT", message="the secret %s is bad" % secret)
    failed = run("exec", "--env", "modal", "-c", "1")
    assert ("is bad" in failed.stderr and secret not in failed.stderr + failed.stdout + done.stderr
            + done.stdout)
    for at, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                assert secret.encode() not in file.read(), name


def answering(place):
    """A model that submits at once."""
    path = place / "model"
    path.write_text(
        "#!/usr/bin/python3\nimport json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n"
        "    print(json.dumps({'id': m['id'], 'text': '```repl\\nSUBMIT(answer=1)\\n```'}), "
        "flush=True)\n")
    path.chmod(0o755)
    return path


# ---- what is left ----

def started(code="print('up', flush=True); import time; time.sleep(100)"):
    """A host with a sandbox."""
    return subprocess.Popen([DROSTE, "exec", "--env", "modal", "-c", code], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def children_of(pid):
    return [int(n) for n in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True,
                                           text=True).stdout.split()]


def test_a_host_that_is_killed_takes_its_sandboxes_along(fake):
    host = started()
    assert wait_until(lambda: any(s["programs"] for s in fake.live()))
    host.kill()
    host.communicate()
    assert wait_until(lambda: not fake.live())


def test_what_a_host_and_its_bridge_leave_the_next_collection_removes(fake):
    """Those of hosts that are gone; not those of one that lives, or of others."""
    alive = opened()
    alive.start()
    host = started()
    assert wait_until(lambda: sum(s["programs"] > 0 for s in fake.live()) == 2)
    for pid in children_of(host.pid) + [host.pid]:
        os.kill(pid, signal.SIGKILL)
    host.communicate()
    assert len(fake.live()) == 2
    done = run("env", "gc", "--env", "modal")
    assert done.stdout == "removed 1 orphaned sandbox\n", done.stderr
    assert [s["id"] for s in fake.live()] == [alive.sandbox_id] and alive.execute("SUBMIT(1)").ok
    alive.shutdown()


def test_a_run_saves_its_files(fake, tmp_path):
    same_checks.check_artifacts(tmp_path / "saved", env="modal")


def test_values_of_libraries_keep_their_types(fake):
    with opened() as interp:
        same_checks.check_library_values(interp)
