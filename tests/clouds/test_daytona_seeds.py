"""The seeds' pages about Daytona, run unchanged on it (tests/seeds has how, and runs them in local sandboxes too)."""
import os
import subprocess
import sys

import pytest

import daytona_fake
import droste

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "seeds"))
import test_seeds as seeds     # noqa: E402

PROGRAMS = [p for p in seeds.PROGRAMS if p[0] in ("001", "002")]


@pytest.fixture(scope="module")
def service():
    why = daytona_fake.missing()
    if why:
        pytest.skip(why)
    fake = daytona_fake.Fake()
    yield fake
    fake.close()


@pytest.fixture
def here(home, service, monkeypatch):
    """A directory with the local file that the pages execute, and a repository in the place of theirs."""
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home)
    (home / "scripts").mkdir()
    (home / "scripts" / "analysis.py").write_text("SUBMIT(total=sum(range(5)))\n")
    subprocess.run("git init -q repo && cd repo && echo text > README.md && git add . && "
                   "git -c user.name=n -c user.email=e commit -qm first", shell=True, check=True)
    droste.compat.activate()
    yield home
    droste.compat.deactivate()
    droste.clear_shelf()


@pytest.mark.parametrize("page, number, heading, code", PROGRAMS, ids=["%s-%d" % p[:2] for p in PROGRAMS])
def test_a_block_does_on_daytona_what_it_says(page, number, heading, code, here, service):
    """And it was Daytona that was asked for a sandbox."""
    before = service.state()["created"]
    said, _ = seeds.run(seeds.complete(page, code, here))
    for line, wanted in zip(said.splitlines(), seeds.blocks.expected(code)):
        assert seeds.same(line, wanted), (line, wanted)
    assert len(said.splitlines()) >= len(seeds.blocks.expected(code))
    if "print(result.filtered_count)" in code:
        assert said.strip() in ("92", "29")
    assert service.state()["created"] == before + 1 and not service.sandboxes()
