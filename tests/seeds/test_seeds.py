"""Every code block of the five seeds, run as it stands, in local sandboxes.

The pages are not part of the repository: they are read from the folder `shared/seeds` beside it. A block that
needs what this version does not have is skipped by the name of that. What a comment behind a `print` says must be
what is printed.
"""
import ast
import asyncio
import contextlib
import glob
import inspect
import io
import os
import subprocess

import pytest

import blocks
import droste
import droste.compat

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = sorted(glob.glob(os.path.join(os.path.dirname(ROOT), "shared", "seeds", "*.txt")))
REPOSITORY = "https://github.com/your-org/your-repo"


def programs():
    """(page, number, heading, code) of all Python in the pages."""
    for path in PAGES:
        with open(path) as page:
            text = page.read()
        found = [(h, code) for h, language, code in blocks.fenced(text) if language == "python"]
        found = found or list(blocks.flattened(text))
        for number, (heading, code) in enumerate(found, 1):
            yield os.path.basename(path)[:3], number, heading, code


PROGRAMS = list(programs())


def test_the_pages_are_there():
    """All five have programs, and none is lost by the reader."""
    if not PAGES:
        pytest.skip("the folder shared/seeds is not beside this checkout")
    count = {page: sum(p[0] == page for p in PROGRAMS) for page in ("000", "001", "002", "003", "004")}
    assert count == {"000": 5, "001": 6, "002": 3, "003": 2, "004": 8}, count


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with the local file that the pages execute, and a repository in the place of theirs."""
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "analysis.py").write_text("SUBMIT(total=sum(range(5)))\n")
    subprocess.run("git init -q repo && cd repo && echo text > README.md && git add . && "
                   "git -c user.name=n -c user.email=e commit -qm first", shell=True, check=True)
    droste.compat.activate()
    yield tmp_path
    droste.compat.deactivate()


# What a page leaves to the reader: what stands in an earlier block, and "..." for more arguments.
BEFORE = {
    "000": "from fleet_rlm import ModalInterpreter\n",
    "001": "from fleet_rlm.integrations.providers.daytona.interpreter import DaytonaInterpreter\n",
    "002": "from fleet_rlm.integrations.daytona.interpreter import DaytonaInterpreter\n",
    "003": "from rlm import RLM\n",
    "004": "from rlm.application.config import RLMConfig, LLMConfig, EnvironmentConfig\n",
}


def complete(page, code, here):
    """The block as a program."""
    code = code.replace(REPOSITORY, "file://%s" % (here / "repo")).replace("    ...\n", "")
    if page == "001" and "DaytonaInterpreter(" not in code:
        code = "interp = DaytonaInterpreter(timeout=600)\n" + code
    if code.startswith("# In rlm/api/registries.py"):
        body = "\n".join("    " + line for line in code.splitlines()[1:])
        code = "match 'custom':\n" + body + "\n"
    return BEFORE[page] + code


def run(code):
    """All that it printed. Top-level `await` is for a loop, as in a notebook."""
    out, names = io.StringIO(), {"__name__": "__main__"}
    compiled = compile(code, "<seed>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(out):
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(asyncio.wait_for(eval(compiled, names), 60))
        else:
            exec(compiled, names)
    return out.getvalue(), names


@pytest.mark.parametrize("page, number, heading, code", PROGRAMS, ids=["%s-%d-%s" % p[:3] for p in PROGRAMS])
def test_a_block_does_what_it_says(page, number, heading, code, here):
    program = complete(page, code, here)
    if "import modal" in program:
        pytest.importorskip("modal", reason="the package modal is not installed")
    if "rlm.adapters.environments.custom" in program:
        pytest.skip("a piece of a function of another project, to be put into its source: droste.registry does that")
    if "# Inside container" in code:
        with droste.Interpreter(model=lambda messages: "4") as interp:
            assert interp.execute(code + "SUBMIT(all=[response] + responses)")["all"] == ["4"] * 4
        return
    try:
        said, names = run(program)
    except droste.UnsupportedError as e:
        pytest.skip(str(e))
    for line, wanted in zip(said.splitlines(), blocks.expected(code)):
        assert same(line, wanted), (line, wanted)
    assert len(said.splitlines()) >= len(blocks.expected(code))
    if "filtered_count" in said or "print(result.filtered_count)" in code:
        assert said.strip() in ("92", "29")
    if page == "004" and "CustomEnvironmentAdapter" in names:
        runs_as_an_environment(names["CustomEnvironmentAdapter"])
    if "rlm" in names:
        assert isinstance(names["rlm"], droste.RLM)


def same(printed, wanted):
    """As values; a comment writes them as Python or as JSON does."""
    def value(text):
        return ast.literal_eval(text.replace("true", "True").replace("false", "False"))
    return value(printed) == value(wanted)


def runs_as_an_environment(adapter):
    """The page's own class, registered, is where an RLM's code runs."""
    replies = iter(["```repl\nprint(1)\n```", "FINAL(done)"])
    droste.registry.register("custom", adapter)
    try:
        done = droste.RLM(lambda messages: next(replies), environment="custom").run("q", "context")
    finally:
        droste.registry.unregister("custom")
    assert done.answer == "done"
