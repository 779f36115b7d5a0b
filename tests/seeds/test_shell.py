"""The command lines of the pages, in a shell. `uv run` is a program of a line in PATH;
`fleet-rlm` is the command that droste-compat installs. Lines that install packages or need Docker's
registry are in docs/compatibility.md."""
import json
import os
import subprocess
import sys

import pytest

import pages

ROOT = pages.ROOT
INSTALLED = os.environ.get("DROSTE_PAGES_PYTHON")       # conftest.py
#: what pip writes for the entry point of droste-compat
FLEET_RLM = """#!%s
import sys
sys.path[:0] = [%r, %r]
import _droste_compat
sys.exit(_droste_compat.fleet_rlm())
""" % (sys.executable, os.path.join(ROOT, "python"), os.path.join(ROOT, "python", "compat"))


def block(name):
    """The block of that name, as its page has it."""
    found = next((b for b in pages.blocks(name[:3]) if b.name == name), None)
    if found is None:
        pytest.skip(pages.MISSING)
    assert found.code == found.printed
    return found


@pytest.fixture
def shell(tmp_path, model):
    """shell(text, **environment): what a shell that ends at the first failure makes of it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    texts = {"uv": '#!/bin/sh\nshift\nexec "$@"\n', "fleet-rlm": FLEET_RLM}
    if INSTALLED:
        del texts["fleet-rlm"]
        (programs / "fleet-rlm").symlink_to(os.path.join(os.path.dirname(INSTALLED), "fleet-rlm"))
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def run(text, **environment):
        env = {**os.environ, **model.environment, "DROSTE_MODEL": "openai/gpt-5-mini",
               "DROSTE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
               "XDG_CACHE_HOME": str(tmp_path / "cache"),
               "PATH": "%s:%s" % (programs, os.environ["PATH"]), **environment}
        return subprocess.run(["sh", "-ec", text],
                              env={k: v for k, v in env.items() if v is not None}, cwd=tmp_path,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return run


def test_run_basic_runs_on_modal(shell, modal):
    """Both lines of page 000: each answers, in a sandbox of Modal's of its own, and the second has
    its volume."""
    before = len(modal.sandboxes())
    done = shell(block("000-bash-1").code, **modal.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("said Q0") == 2
    made = modal.sandboxes()[before:]
    assert len(made) == 2 and not modal.live()


def filled(line, ref, **names):
    """A line of usage with what its reader puts into it: `<name>`, and `[what may be left out
    <name>]`."""
    line = line.replace("[", "").replace("]", "") if ref else line[:line.index(" [")] + "\n"
    for name, value in names.items():
        line = line.replace("<%s>" % name, value)
    assert "<" not in line
    return line


@pytest.mark.parametrize("ref", [True, False])
def test_daytona_smoke_is_a_test_of_daytona(shell, daytona, repository_host, ref):
    """Page 002's line, with the reader's repository; all phases end well, in a sandbox of
    Daytona's."""
    before = daytona.state()["created"]
    line = filled(block("002-bash-1").code, ref, url="https://github.com/your-org/your-repo",
                  branch="master")
    done = shell(line, **daytona.environment, **repository_host.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["termination_phase"] == "completed"
    assert daytona.state()["created"] == before + 1 and not daytona.sandboxes()


def test_daytona_smoke_fails_without_a_key(shell):
    """It does not test something else instead."""
    done = shell(filled(block("002-bash-1").code, False,
                        url="https://github.com/your-org/your-repo"), DAYTONA_API_KEY=None)
    assert done.returncode != 0 and "DAYTONA_API_KEY" in done.stdout + done.stderr


def test_the_extra_of_page_003_exists():
    """`pip install -e ".[modal]"`: the package has an extra of that name, with Modal's SDK."""
    assert 'pip install -e ".[modal]"' in block("003-bash-1").code
    with open(os.path.join(ROOT, "pyproject.toml")) as file:
        assert 'optional-dependencies = { modal = ["modal' in file.read()
