"""Every block of Python in the five pages, unmodified and in the pages' order, against the fakes:
as a script, and in a notebook, in which an event loop runs all the time (its cells may await;
run_page.py).

A page's blocks share a namespace, as its reader's would. What a comment behind a `print` says is
what must be printed. Nothing is inserted: droste-compat lends the names, and pages.py says what
is put back that the pages have lost in copying.
"""
import ast
import os
import sys
import types

import pytest

import modal_fake
import pages
import run_page

import droste
import droste.compat

MODES = ("script", "loop")
#: what a block prints behind which the page does not say it
PRINTS = {"000-python-4": ["92"], "001-python-4": ["92"], "001-python-6": ["29"]}
#: what a reader looks at behind a block that prints nothing, and what it must be
ASK = "rlm.completion('x' * 12).response"
LOOKS = {
    "000-python-3": [("result.total", "10")],
    "001-python-3": [("result.total", "10")],
    "003-python-1": [(ASK, "'[12, \"said Q0\"]'")],
    "003-python-2": [(ASK, "'[12, \"said Q0\"]'")],
    "004-python-1": [(ASK, "'[12, \"said Q0\"]'"), ("config.env.environment", "'local'")],
    "004-python-2": [("config.env.environment", "'docker'"),
                     ("create_rlm_from_config(config).environment", "None")],
    "004-python-4": [("config.env.environment_kwargs", "{'image': 'my-rlm-env:latest'}")],
    "004-python-5": [("config.env.environment_kwargs", "{}")],
    "004-python-6": [("config.env.environment", "'prime'")],
    "004-python-7": [("CustomEnvironmentAdapter.__name__", "'CustomEnvironmentAdapter'")],
}
#: what a page itself gives reason to: `open(...).read()`, and a directory of modules that is not on
#this machine
OF_THE_PAGES = ("unclosed file <_io.TextIOWrapper name='scripts/analysis.py'",
                "but this directory does not exist")
#: blocks that are not programs of the host's; other tests run them, where they belong
ELSEWHERE = {"004-python-3": "test_the_block_inside_the_container",
             "004-python-8": "test_the_piece_of_the_registry"}


def program(block):
    return {"code": block.code, "name": block.name,
            "look": [look for look, _ in LOOKS.get(block.name, ())]}


@pytest.fixture(scope="session")
def run(request, reader):
    """run(page, mode): what became of its blocks; each page runs once in each mode."""
    done, fakes = {}, {}

    def fake_of(name):
        # Requesting a skipped fixture again is a recursive dependency to pytest.
        if name not in fakes:
            try:
                fakes[name] = request.getfixturevalue(name)
            except pytest.skip.Exception as skipped:
                fakes[name] = skipped
        if isinstance(fakes[name], pytest.skip.Exception):
            raise fakes[name]
        return fakes[name]

    def once(page, mode):
        if (page, mode) in done:
            return done[page, mode]
        python, environment = sys.executable, {}
        if page in ("000", "003"):
            fake = fake_of("modal")
            python, environment = modal_fake.PYTHON, dict(fake.environment)
        if page in ("001", "002"):
            fake = fake_of("daytona")
            environment = {**fake.environment,
                           **request.getfixturevalue("repository_host").environment}
        blocks = [block for block in pages.python_blocks(page) if block.name not in ELSEWHERE]
        result = reader(page, mode, [program(block) for block in blocks], python, **environment)
        done[page, mode] = {**result,
                            "of": dict(zip([block.name for block in blocks], result["results"]))}
        return done[page, mode]
    return once


BLOCKS = [block for page in pages.NUMBERS for block in pages.python_blocks(page)]
RUN = [block for block in BLOCKS if block.name not in ELSEWHERE]


def test_the_pages_are_there():
    """All five have their programs, and the reader of the pages loses none."""
    if not BLOCKS:
        pytest.skip(pages.MISSING)
    count = {page: sum(block.page == page for block in BLOCKS) for page in pages.NUMBERS}
    assert count == {"000": 5, "001": 6, "002": 3, "003": 2, "004": 8}, count


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_only_what_was_lost_is_put_back(block):
    """Page 001 lost its indentation: without that, its lines are the page's. Elsewhere a block is
    what the page has, but for lines that say `...`, which no Python can compile behind keywords."""
    words = [line.strip() for line in block.code.splitlines()]
    printed = [line.strip() for line in block.printed.splitlines()]
    if block.code == block.printed:
        return
    with pytest.raises(SyntaxError):
        compile(block.printed, block.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if block.page != "001":
        printed = [line for line in printed if line != "..."]
    assert words == printed


def test_only_what_a_page_imports_nowhere_is_lent():
    """Page 003 is a part of a manual whose earlier pages import RLM; all others get no name but
    what they import."""
    if pages.read("003") is None:
        pytest.skip(pages.MISSING)
    assert run_page.GIVEN == {"003": "from rlm import RLM"}
    assert "import RLM" not in pages.read("003")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", RUN, ids=[block.name for block in RUN])
def test_a_block_does_what_it_says(block, mode, run):
    """It ends without an exception and prints what the page says; what it leaves behind is what a
    reader finds."""
    done = run(block.page, mode)["of"][block.name]
    assert done["error"] is None, done["error"]
    wanted = PRINTS.get(block.name) or pages.expected(block.code)
    assert [value(line) for line in done["out"].splitlines()] == [value(line) for line in wanted]
    assert done["looks"] == [look for _, look in LOOKS.get(block.name, ())]


def test_the_piece_of_the_registry(monkeypatch):
    """Page 004's last block is a piece of a function of navigator's, a `case` of a `match` (Python
    3.10). Within such a function, registered, and with the class of the block before it in the
    module that the page names, it makes the environment of a run."""
    piece = next((block for block in BLOCKS if block.name == "004-python-8"), None)
    if piece is None:
        pytest.skip(pages.MISSING)
    if sys.version_info < (3, 10):
        pytest.skip("`match` is of Python 3.10")
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)
    droste.compat.activate()
    try:
        custom = types.ModuleType("rlm.adapters.environments.custom")
        exec(next(block.code for block in BLOCKS if block.name == "004-python-7"), custom.__dict__)
        monkeypatch.setitem(sys.modules, custom.__name__, custom)
        names = {}
        around = ("def build(environment, broker, broker_address, correlation_id, env_kwargs):\n"
                  "    match environment:\n")
        exec(around + "".join("        %s\n" % line for line in piece.code.splitlines()), names)
        made = []

        def factory(*, broker, broker_address, correlation_id, **env_kwargs):
            made.append(names["build"]("custom", broker, broker_address, correlation_id,
                                       env_kwargs))
            return made[-1]

        droste.registry.register("custom", factory)
        replies, shown = ["```repl\nprint(1)\n```", "FINAL(done)"], []

        def model(messages):
            shown.append(messages[-1]["content"])
            return replies.pop(0)

        done = droste.RLM(model, environment="custom", environment_kwargs={
            "custom_option": "mine"}).completion("text", root_prompt="q")
    finally:
        droste.registry.unregister("custom")
        droste.compat.deactivate()
    (adapter,) = made
    assert done.answer == "done"
    assert "output" in shown[1]
    assert isinstance(adapter, custom.CustomEnvironmentAdapter)
    assert (adapter._custom_option, adapter._context) == ("mine", "text")
    assert adapter._broker_address[0] == "127.0.0.1"


def value(text):
    """A comment writes it as Python or as JSON does."""
    return ast.literal_eval(text.replace("true", "True").replace("false", "False"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("page", pages.NUMBERS)
def test_a_page_leaves_nothing_behind(page, mode, run):
    """No warning of something that was never awaited, read or shut down, and nothing on standard
    error."""
    if pages.read(page) is None:
        pytest.skip(pages.MISSING)
    done = run(page, mode)
    assert [warning for warning in done["warnings"]
            if not any(word in warning for word in OF_THE_PAGES)] == []
    assert done["stderr"] == ""


@pytest.mark.parametrize("page", ["000", "001", "002", "003"])
def test_the_pages_ran_where_they_say(page, run, request):
    """In sandboxes of the provider that they name, all of which are gone; those of Modal's have
    what the page says."""
    if pages.read(page) is None:
        pytest.skip(pages.MISSING)
    if page in ("001", "002"):
        fake = request.getfixturevalue("daytona")
        before = fake.state()["created"]
        for mode in MODES:
            run(page, mode)
        assert not fake.sandboxes() and fake.state()["created"] >= min(1, before)
        return
    fake = request.getfixturevalue("modal")
    for mode in MODES:
        run(page, mode)
    assert fake.sandboxes() and not fake.live()
    if page == "003":
        assert "my-rlm-app" in fake.apps()
        of_the_page = [s for s in fake.sandboxes() if "dill" in " ".join(s["image"][-1:])]
        assert of_the_page and os.path.commonprefix([s["image"][-1] for s in of_the_page])
