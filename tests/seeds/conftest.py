"""The package of this checkout, no record of runs and nothing of the user's own; the fakes that the
pages run against."""
import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests"),
                os.path.join(ROOT, "tests", "clouds")]
os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_CONFIG", "DROSTE_ENVIRONMENT", "OPENAI_API_KEY"):
    os.environ.pop(name, None)

import daytona_fake     # noqa: E402
import modal_fake       # noqa: E402
import pages            # noqa: E402
import services         # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
#: the interpreter of an environment in which the wheels of droste and droste-compat are installed:
#: `make check-wheel` names it. Otherwise the pages run with the checkout's package.
INSTALLED = os.environ.get("DROSTE_PAGES_PYTHON")


@pytest.fixture(autouse=True, scope="session")
def config_of_nobody(tmp_path_factory):
    """The user's own configuration has no part in the tests."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["DROSTE_HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def modal():
    why = modal_fake.missing()
    if why:
        pytest.skip(why)
    one = modal_fake.Fake()
    if not one.isolated:
        one.close()
        pytest.skip("only root can give the fake Modal's sandboxes a /data")
    yield one
    one.close()


@pytest.fixture(scope="session")
def daytona():
    why = daytona_fake.missing()
    if why:
        pytest.skip(why)
    one = daytona_fake.Fake()
    yield one
    one.close()


@pytest.fixture(scope="session")
def repository_host(tmp_path_factory):
    one = services.RepositoryHost(str(tmp_path_factory.mktemp("github.com")),
                                  {"README.md": "the page's repository\n"})
    yield one
    one.close()


def answer(model, messages):
    """What the model of the pages says: it writes code that counts, and answers what code asks."""
    last = messages[-1]["content"]
    if not isinstance(last, str) or "Q" not in last[:2]:
        return "```repl\nSUBMIT(answer=[len(context), llm_query('Q0')])\n```"
    return "said " + last


@pytest.fixture(scope="session")
def model():
    one = services.Model(answer)
    yield one
    one.close()


def packages(python):
    """PYTHONPATH for a page: the checkout's package; or, where the wheel is installed, only what
    else the page imports, Modal's own package."""
    if not INSTALLED:
        return os.path.join(ROOT, "python")
    if python != modal_fake.PYTHON:
        return ""
    return subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                          check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def reader(tmp_path_factory, model):
    """reader(page, mode, blocks, python, **environment): what became of them, run in a directory
    such as the pages expect one: it has a local file to execute."""
    def run(page, mode, blocks, python, **environment):
        place = tmp_path_factory.mktemp("page-%s-%s" % (page, mode))
        (place / "scripts").mkdir()
        (place / "scripts" / "analysis.py").write_text("SUBMIT(total=sum(range(5)))\n")
        variables = {**os.environ, **model.environment, "PYTHONPATH": packages(python),
                     "DROSTE_HOME": str(place / "home"), "XDG_CONFIG_HOME": str(place / "config"),
                     "XDG_CACHE_HOME": str(place / "cache"), **environment}
        done = subprocess.run([INSTALLED or python, os.path.join(HERE, "run_page.py"), mode],
                              input=json.dumps({"page": page, "blocks": blocks}),
                              env=variables, cwd=place, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        home = os.path.dirname(os.path.dirname(INSTALLED)) if INSTALLED else ROOT
        assert result["droste"].startswith(home + "/"), result["droste"]
        return {**result, "stderr": done.stderr}
    return run
