"""Tests that are the same for Prime and E2B: test_prime.py and test_e2b.py run them, each with its
fake."""
import json
import os
import signal
import subprocess
import sys

import pytest

import connect_fake
import same_checks
from same_checks import wait_until

sys.path[:0] = [os.path.join(connect_fake.ROOT, "tests", "e2e"),
                os.path.join(connect_fake.ROOT, "python")]
os.environ["DROSTE_DATABASE"] = "none"
import droste           # noqa: E402
import droste_cli       # noqa: E402

COUNT = int(os.environ.get("DROSTE_TEST_CUTS", "6"))
AWKWARD = ["ends in a quote\"", "'''", "NUL \0 within", "\r\n CRLF \r", "\ud800 alone \udfff",
           "é漢字🙂\u2028", "\x1eDROSTE \x1b[2J", ""]


def fake_of(name):
    """A fixture: the fake, whose address the environment variables say."""
    @pytest.fixture(scope="module")
    def fake():
        if connect_fake.missing():
            pytest.skip(connect_fake.missing())
        running, before = connect_fake.Fake(name), dict(os.environ)
        os.environ.update(running.environment)
        yield running
        droste.close_idle_engines()
        os.environ.clear()
        os.environ.update(before)
        running.close()
    return fake


@pytest.fixture(autouse=True)
def clean(fake):
    """Nothing that a test has made is left at the provider, and no fault of its own either."""
    yield
    fake.order(clear=True)
    wait_until(lambda: not fake.running())
    left = fake.running()
    fake.order(kill="all")
    assert not left, left


@pytest.fixture
def opened(fake):
    made = []

    def open_one(**settings):
        made.append(droste.Interpreter(env=fake.name, retries=0, grace=30, **settings))
        made[-1].start()
        return made[-1]
    yield open_one
    for interp in made:
        interp.shutdown()


def box_of(fake):
    """The one sandbox that there is, as its provider has it."""
    (ident, box), = fake.running().items()
    return ident, box


# -- files of runs, values of libraries

def test_a_run_saves_its_files(fake, tmp_path):
    same_checks.check_artifacts(tmp_path, env=fake.name)


def test_values_of_libraries_keep_their_types(opened):
    same_checks.check_library_values(opened())


# -- the sandbox that is asked for

def test_a_large_context_goes_in_and_a_large_result_comes_out(opened):
    """50 MB there and 20 MB back, as they were."""
    interp = opened()
    interp.set("context", "x" * 25_000_000 + "é" * 12_500_000)
    assert interp.execute("print(len(context), context[0], context[-1])").stdout == "37500000 x é\n"
    assert len(interp.execute("SUBMIT(answer='y' * 20_000_000)").fields["answer"]) == 20_000_000


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_contexts_arrive_as_they_were(opened, text):
    """Quotes, NUL, CRLF, lone surrogates, any Unicode."""
    assert opened().execute("print(ascii(context))", {"context": text}).stdout == ascii(text) + "\n"


def test_a_key_that_is_wrong_says_so_without_saying_it(fake, tmp_path):
    """An error of permission, that names the variable, and not what is in it."""
    name = {"prime": "PRIME_API_KEY", "e2b": "E2B_API_KEY"}[fake.name]
    wrong = "canary-of-a-wrong-key"
    done = droste_cli.droste(tmp_path, "exec", "--env", fake.name, "-c", "1",
                             **{**fake.environment, name: wrong})
    assert (done.returncode != 0 and name in done.stderr
            and wrong not in done.stdout + done.stderr), done.stderr


def test_without_a_key_it_says_what_to_set(fake, tmp_path):
    name = {"prime": "PRIME_API_KEY", "e2b": "E2B_API_KEY"}[fake.name]
    done = droste_cli.droste(tmp_path, "exec", "--env", fake.name, "-c", "1",
                             **{**fake.environment, name: ""})
    assert done.returncode != 0 and "set " + name in done.stderr, done.stderr


def test_no_secret_reaches_the_guest(fake, opened, tmp_path):
    """Not the key of the account, not the token of the sandbox: not in its variables, not in its
    files, not in its process."""
    interp = opened()
    seen = interp.execute(
        "import os, glob\nall = repr(dict(os.environ)) + ''.join(open(p, errors='replace').read() "
        "for p in "
        "glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') if os.access(p, "
        "os.R_OK))\nprint(len(all) > 100, %r in all, 'envd-' in all, 'gateway-' in all)"
        % fake.key)
    assert seen.stdout == "True False False False\n", seen
    assert fake.key not in json.dumps(seen.json)


# -- losses

def calls_and_cells(interp, asked, cells):
    """Cells that call and speak, one after the other: each is run once, and says all."""
    for i in range(cells):
        done = interp.execute(
            "n = globals().get('n', 0) + 1\nfor k in range(3): print(n, k, llm_query('%d %%d' %% "
            "k)); print('z' * 3000)" % i)
        assert done.ok, (i, done.error)
        assert done.stdout == "".join("%d %d re: %d %d\n%s\n" % (i + 1, k, i, k, "z" * 3000)
                                      for k in range(3)), (i, done.stdout)
    assert sorted(asked) == sorted("%d %d" % (i, k) for i in range(cells) for k in range(3))


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_stream_that_is_cut_loses_nothing(fake, opened, seed):
    """At the boundaries of its frames and in the middle of them, again and again: every cell is run
    once, every call made once, no output lost."""
    asked = []

    def model(messages):
        asked.append(messages[-1]["content"])
        return "re: " + asked[-1]
    interp = opened(model=model, max_llm_calls=1000)
    before = fake.state()["cuts"]
    fake.order(cut_each=[1, 4], times=10, seed=seed)
    calls_and_cells(interp, asked, 6)
    assert fake.state()["cuts"] > before, "nothing was cut"


def test_a_loss_while_it_starts_is_none(fake, opened):
    """The stream is cut within its very first frames, when the loader has not been answered yet."""
    for after in (0, 3, 20, 60):
        fake.order(cut_after=after)
        interp = opened()
        assert interp.execute("print('there')").stdout == "there\n"
        interp.shutdown()


@pytest.mark.parametrize("acted", [False, True])
def test_input_that_is_lost_is_sent_again(fake, opened, acted):
    """A connection that ends before or behind the moment in which the service has passed the input
    on: nothing is done twice."""
    interp = opened()
    interp.execute("n = 0")
    for _ in range(3):
        fake.order(drop={"match": "SendInput", "times": 1, "acted": acted})
        assert interp.execute("n += 1\nprint(n)").ok
    assert interp.execute("print(n)").stdout == "3\n"


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_service_that_is_busy_is_asked_again(fake, opened, status):
    """In each step: when it is made, when it is started, when it is fed."""
    for match in ("sandbox", "/Start", "SendInput"):
        headers = {"Retry-After": "1"} if status == 429 else {}
        fake.order(answer={"match": match, "times": 2, "status": status, "headers": headers})
    interp = opened()
    assert interp.execute("print(1)").stdout == "1\n"
    assert len(fake.running()) == 1


@pytest.mark.parametrize("fault", [{"drop": {}}, {"answer": {"status": 502}},
                                   {"answer": {"status": 504}}], ids=["cut", "502", "504"])
def test_nothing_is_created_twice(fake, opened, fault):
    """The answer to the creation is lost, or a gateway's is in its place: the request is made
    again, and it is the same sandbox."""
    made = len(fake.state()["sandboxes"])
    fake.order(**{kind: {"match": "^POST .*/sandbox(es)?$", "times": 1, "acted": True, **more}
                  for kind, more in fault.items()})
    assert opened().execute("print(1)").ok
    assert len(fake.running()) == 1 and len(fake.state()["sandboxes"]) <= made + 1


@pytest.mark.parametrize("lag", [1, 5])
def test_a_gateway_that_hears_late_of_a_sandbox_is_asked_again(fake, opened, lag):
    """The provider says that it runs, and its gateway does not know it yet: 404 and 502 in turns at
    Prime, 502 at E2B."""
    before = fake.state()["lag"]
    fake.order(lag=lag)
    try:
        assert opened().execute("print(1)").stdout == "1\n"
    finally:
        fake.order(lag=before)
    assert len(fake.running()) == 1


def test_a_sandbox_that_dies_says_so(fake, opened):
    """The cell's status is lost, in words that say what is known; the next call says that the
    session is over."""
    interp = opened()
    interp.execute("x = 1")
    fake.order(kill=box_of(fake)[0])
    result = interp.execute("x")
    assert result.status == "lost" and "outcome is unknown" in str(result.error
                                                                   or result.json), result
    with pytest.raises(droste.LostError):
        interp.execute("x")


def test_one_that_is_ended_for_idleness_says_so(fake, opened):
    interp = opened()
    interp.execute("x = 1")
    fake.order(idle=box_of(fake)[0])
    result = interp.execute("x")
    assert result.status == "lost", result
    if fake.name == "prime":
        assert "IDLE_TIMEOUT" in str(result.json), result.json


def test_what_a_killed_host_has_left_is_removed(fake, tmp_path):
    """kill -9 of the host leaves a sandbox with limits in time at the provider; droste env gc
    removes it, and no other."""
    mine = droste.Interpreter(env=fake.name)
    mine.start()
    (kept,) = fake.running()
    host = subprocess.Popen([droste_cli.DROSTE, "exec", "--env", fake.name, "-c",
                             "import time\nprint('up', flush=True)\ntime.sleep(100)"],
                            env=droste_cli.environment(
        tmp_path, **fake.environment, DROSTE_DATABASE="none"), stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    assert wait_until(lambda: any(b["programs"] for i, b in fake.running().items() if i != kept))
    host.send_signal(signal.SIGKILL)
    host.communicate()
    (asked,) = [b["asked"] for i, b in fake.running().items() if i != kept]
    assert asked.get("idle_timeout_minutes") == 15 if fake.name == "prime" else asked[
        "timeout"] == 900
    fake.order(page=1)      # the list has one of them on each page, and this one's the first
    done = droste_cli.droste(tmp_path, "env", "gc", "--env", fake.name, **fake.environment)
    fake.order(page=100)
    assert done.returncode == 0 and done.stdout == "removed 1 orphaned sandbox\n", (
        done.stdout, done.stderr)
    assert list(fake.running()) == [kept]
    assert mine.execute("print(1)").ok
    mine.shutdown()
