"""What the suite shares: environments by name, their sessions, and what is skipped in which.

    pytest tests/session --environment local:full --environment docker:image=python:3.12-slim

Each test runs once in each environment. A test that needs a feature says so, `@needs("volume")`:
where the adapter (adapters.py) declares it unsupported, the test is skipped with
that reason. Without the option it is every local isolation, and those that are not available here
are skipped by name.
"""
import os
import runpy
import shutil
import sys
import tempfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [path for path in (HERE, os.path.join(ROOT, "python")) if path not in sys.path]
os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_ENVIRONMENT", "DROSTE_CONFIG"):
    os.environ.pop(name, None)

import adapters                 # noqa: E402: the paths are set above
import droste                   # noqa: E402
import wrong                    # noqa: E402, F401: registers the environments that are wrong

EVERY_LOCAL = ["local:full", "local:light", "local:landlock", "local:process", "forked:full",
               "rolled-back:landlock", "templated:full"]


def pytest_addoption(parser):
    parser.addoption("--environment", action="append", metavar="NAME[:SETTING=VALUE,...]",
                     help="an environment that the suite is for; may be repeated (default: every "
                          "local isolation)")
    parser.addoption("--adapter", action="append", default=[], metavar="FILE",
                     help="Python that registers adapters of other environments "
                          "(tests/session/adapters.py)")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs(*features): skipped in an environment that declares not to have them")
    for path in config.getoption("--adapter"):
        runpy.run_path(path)


def pytest_generate_tests(metafunc):
    if "environment" in metafunc.fixturenames:
        names = metafunc.config.getoption("--environment") or EVERY_LOCAL
        metafunc.parametrize("environment", names, indirect=True, scope="session")


@pytest.fixture(autouse=True, scope="session")
def nobodys_home(tmp_path_factory):
    """The user's own configuration, volumes and temporary files have no part in the tests."""
    home, before = tempfile.mkdtemp(prefix="droste-suite-"), dict(os.environ)
    os.chmod(home, 0o755)       # guests of root are another user
    os.mkdir(os.path.join(home, "tmp"), 0o755)
    os.environ.update(XDG_CONFIG_HOME=os.path.join(home, "config"),
                      XDG_CACHE_HOME=os.path.join(home, "cache"),
                      DROSTE_HOME=os.path.join(home, "home"), TMPDIR=os.path.join(home, "tmp"))
    tempfile.tempdir = None
    yield
    droste.close_idle_engines()
    tempfile.tempdir = None
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def environment(request, nobodys_home):
    """The environment under test, as its adapter."""
    adapter = adapters.parse(request.param)
    try:
        adapter.open().shutdown()
    except droste.UnsupportedError as e:
        if request.config.getoption("--environment"):
            raise
        pytest.skip("%s is not available here: %s" % (adapter.id, e))
    return adapter


@pytest.fixture(autouse=True)
def declared(request):
    """Skips what an environment declares as unsupported."""
    features = [feature for mark in request.node.iter_markers("needs") for feature in mark.args]
    if not features:
        return
    adapter = request.getfixturevalue("environment")
    for feature in features:
        assert feature in adapters.FEATURES, "there is no feature %r" % feature
        if feature in adapter.lacks:
            pytest.skip("%s does not support the feature %r (%s): %s"
                        % (adapter.id, feature, adapters.FEATURES[feature],
                        adapter.lacks[feature]))


class Shared:
    """The session of all tests that need none of their own, and the settings it was made with."""

    def __init__(self, adapter):
        self.adapter, self.interp, self.names = adapter, None, "{}"
        self.asked = []

    def model(self, messages):
        """Answers a question with itself; what begins with `fail` fails."""
        self.asked.append(messages[-1]["content"])
        if self.asked[-1].startswith("fail"):
            raise ValueError("the model was told to " + self.asked[-1])
        if len(messages) > 1:   # the turn of a child run
            question = self.asked[-1].partition("\n\n")[0]
            return "FINAL(re: %s)" % question[len("Question: "):]
        return "re: " + self.asked[-1]

    def ready(self):
        if self.interp is None or not self.interp.alive:
            self.close()
            self.interp = self.adapter.open(model=self.model, retries=0, max_llm_calls=100000,
                                            grace=30)
            self.names = self.interp.execute("sorted(globals())").echo
        return self.interp

    def clear(self):
        """The session is as new, for the next test."""
        self.interp.tools.clear()
        code = ("for _n in [n for n in globals() if n not in %s]: del globals()[_n]\n"
                "clear_buffer()\nanswer.update(content='', ready=False)" % self.names)
        if not (self.interp.alive and self.interp.execute(code).ok):
            self.close()

    def close(self):
        if self.interp is not None:
            self.interp.shutdown()
            self.interp = None


@pytest.fixture(scope="session")
def sharing(environment):
    shared = Shared(environment)
    yield shared
    shared.close()


@pytest.fixture
def session(sharing):
    """A session with nothing in it, in which a test leaves everything as it was but its variables.
    Its model says `re: ` and the question."""
    interp = sharing.ready()
    yield interp
    sharing.clear()


@pytest.fixture
def asked(session, sharing):
    """What the model of `session` is asked."""
    sharing.asked.clear()
    return sharing.asked


@pytest.fixture
def opened(environment):
    """opened(setting=value…): a session of the test's own. Where an interrupt is to be heard, a
    busy machine has time for that; where it is to become a kill, tests say `grace=SOON`."""
    made = []

    def open_one(**settings):
        made.append(environment.open(**{"grace": 30, **settings}))
        return made[-1]

    yield open_one
    for interp in made:
        interp.shutdown()


@pytest.fixture
def marked(environment):
    """marked(session): its processes, as the adapter knows them; none is left behind by the
    test."""
    marks = []

    def mark(interp):
        marks.append(environment.mark(interp))
        return marks[-1]

    mark.all = marks
    yield mark
    for each in marks:
        environment.sweep(each)


@pytest.fixture(scope="session")
def volume_root(environment):
    """Where the volumes and workspaces of all tests are: another place would be another kind of
    sandbox, and each kind takes a start of its own."""
    made = environment.place()
    yield os.path.join(made, "volumes")
    droste.close_idle_engines()
    adapters.remove(made)


@pytest.fixture
def place(environment):
    """A directory of the host's that the environment can show to its guests."""
    made = environment.place()
    yield made
    adapters.remove(made)
