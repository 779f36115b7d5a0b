"""The fixtures of the end-to-end tests; harness.py has their classes and functions."""
import os
import shutil
import signal
import sys
import tempfile

import pytest

from browser import browser  # noqa: F401: a fixture
from model_servers import serve, servers  # noqa: F401: fixtures

# so that a failure shows both sides, as in the tests
pytest.register_assert_rewrite("batches", "harness", "lives")

from batches import LENGTH  # noqa: E402
from harness import BUILD, CANARY, NOBODY, Droste, repl, write_replay  # noqa: E402


def pytest_configure(config):
    sys.dont_write_bytecode = True
    # A shell's background job ignores it, and so would the programs that tests interrupt.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.access(os.path.join(BUILD, "droste"), os.X_OK):
        raise pytest.UsageError("there is no %s/droste: run `make`, or set BUILD" % BUILD)


@pytest.hookimpl(tryfirst=True)     # xdist reads the marks in this hook, too
def pytest_collection_modifyitems(items):
    """Tests that share a fixture of their file (a browser, the built site) run in one process of
    xdist: each process would make its own."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(fixture.scope == "module" for found in fixtures for fixture in found):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@pytest.fixture
def droste(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return Droste(home)


@pytest.fixture
def replay(tmp_path):
    """replay("turn 1", {...}): the --model whose replies these are."""
    return lambda *lines: write_replay(tmp_path / "replay.jsonl", *lines)


@pytest.fixture
def ask(droste, replay):
    """Runs a question over scripted turns: ask(turns, flags...)."""
    def run(turns, *flags, **options):
        return droste("run", "--question", "What is it?", "--model", replay(*turns), "--json",
                      *flags,
                      **options)
    return run


@pytest.fixture
def session(droste, replay):
    """session("x = 1", "SUBMIT(x)", flags=…, replies=…) runs cells one after the other in one
    session, as a run whose model writes one a turn: (the run's result, the cells as exported)."""
    def run(*cells, flags=(), replies=(), **options):
        model = replay(*map(repl, cells), *replies)
        result = droste("run", "--question", "q", "--json", "--model", model, *flags, **options)
        return result, droste.lines("cell")
    return run


@pytest.fixture
def online(droste, serve):
    """online(script, flags…): a run against a real server, whose key is the canary: (result,
    server)."""
    def run(script, *flags, model="scripted", **options):
        server = serve(key=CANARY, script=script)
        env = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": server.url, "DROSTE_MODEL": model,
               **options.pop("env", {})}
        return droste("run", "--question", "q", "--json", *flags, env=env, **options), server
    return run


@pytest.fixture
def tree(droste, serve):
    """tree(script, flags…): a run whose depths 0, 1, 2, 3 ask scripted-root, -one, -two, -three."""
    def flags(script, *more):
        server = serve(script=script)
        return server, ["run", "--question", "q", "--json", "--base-url", server.url, "--model",
                        "scripted-root",
                        "--depth-model", "1=scripted-one", "--depth-model", "2=scripted-two",
                        "--depth-model", "3=scripted-three", *map(str, more)]

    def run(script, *more, **options):
        server, words = flags(script, *more)
        return droste(*words, **options), server

    def start(script, *more):
        server, words = flags(script, *more)
        return droste.start(*words), server

    run.start = start
    return run


@pytest.fixture
def ordinary_user():
    """The program as an ordinary user runs it, from a place where that user can read it."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user here")
    place = tempfile.mkdtemp(prefix="droste-e2e-")
    try:
        os.chmod(place, 0o755)
        program = shutil.copy(os.path.join(BUILD, "droste"), place)
        home = os.path.join(place, "home")
        os.mkdir(home, 0o700)
        os.chown(home, NOBODY, NOBODY)
        prefix = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups",
                  "--inh-caps=-all", "--"]
        yield Droste(home, program, prefix)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(params=["this user", "ordinary user"])
def anybody(request):
    """The program as whoever runs the tests, and as an ordinary user."""
    return request.getfixturevalue("droste" if request.param == "this user" else "ordinary_user")


@pytest.fixture
def batch(droste, replay):
    """batch(flags..., model=…): the command over tasks.jsonl, and its summary."""
    def run(*flags, model=None, start=False, **options):
        words = ["batch", "tasks.jsonl", "--out", "results.jsonl", "--json",
                 "--model", model or replay({"content": LENGTH, "repeat": True}), *flags]
        return droste.start(*words, **options) if start else droste(*words, **options)
    return run
