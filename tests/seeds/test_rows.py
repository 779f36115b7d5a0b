"""The rows of the pages' tables and lists, each shown by a test, on the fakes of the providers that
they are about. docs/compatibility.md has the rest, with the reason;
test_every_row_is_shown_or_explained holds the two together."""
import asyncio
import importlib
import inspect
import os
import re
import socket
import sys
import threading

import pytest

import pages
import rows
from rows import shows

import droste
from droste.compat import (DaytonaInterpreter, EnvironmentConfig, ModalInterpreter, RLMConfig,
                           create_rlm_from_config)
from droste.compat.adapters import DockerEnvironmentAdapter, LocalEnvironmentAdapter

OTHERS = ("test_docker_page", "test_pages", "test_shell")     # modules whose tests show rows, too
MEMORY = "/home/daytona/memory"


@pytest.fixture(autouse=True)
def nobodys(monkeypatch, tmp_path):
    """Nothing of the user's own: no keys, no environment."""
    for name in list(os.environ):
        if re.match(r"(DAYTONA|MODAL|PRIME|E2B)_", name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    droste.close_idle_engines()


@pytest.fixture
def on_modal(modal, monkeypatch):
    for name, value in modal.environment.items():
        monkeypatch.setenv(name, value)
    return modal


@pytest.fixture
def on_daytona(daytona, repository_host, monkeypatch):
    for name, value in {**daytona.environment, **repository_host.environment}.items():
        monkeypatch.setenv(name, value)
    return daytona


def default_of(page, section, name):
    """What a table of the page says of a name."""
    found = [row for row in pages.rows(page) if row.section.startswith(section)
             and row.name == name]
    if not found:
        pytest.skip(pages.MISSING)
    return found[0].cells


# ---- the document and the tests together

def explained():
    """The rows of the document: (page, section, name) from its tables, whose headings name the
    pages."""
    found, page = [], None
    with open(os.path.join(pages.ROOT, "docs", "compatibility.md"), encoding="utf-8") as file:
        for line in file:
            heading = re.match(r"## .*<!-- (\d\d\d) -->", line)
            if heading or line.startswith("## "):
                page = heading.group(1) if heading else None
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if page and line.startswith("|") and len(cells) == 3 and ":" in cells[0] and not set(
                    cells[0]) <= set("-: "):
                section, _, name = cells[0].replace("`", "").partition(": ")
                found.append((page, section, name))
                assert len(cells[2]) > 10, "no reason: " + line
    return found


def test_every_row_is_shown_or_explained():
    """Each row of the pages has a test or a line of the document that says why not, none has both,
    and neither claims what is not a row."""
    if pages.read("000") is None:
        pytest.skip(pages.MISSING)
    for name in OTHERS:
        importlib.import_module(name)
    every = [row for page in pages.NUMBERS for row in pages.rows(page)]
    assert len(every) == len({row.key for row in every}) == 93
    shown = {row.key: test for page, section, name, test in rows.CLAIMS for row in every
             if rows.fits(row, page, section, name)}
    written = {row.key for page, section, name in explained() for row in every
               if rows.fits(row, page, section, name)}
    assert [row.key for row in every if row.key not in shown and row.key not in written] == []
    assert sorted(written & set(shown)) == []
    idle = [claim for claim in rows.CLAIMS if not any(rows.fits(row, *claim[:3]) for row in every)]
    idle += [claim for claim in explained() if not any(rows.fits(row, *claim) for row in every)]
    assert idle == []


# ---- page 000: ModalInterpreter

@shows("000", "Key Points", "Access results via")
def test_results_of_modal_are_attributes(on_modal):
    with ModalInterpreter() as interp:
        result = interp.execute("SUBMIT(answer=1, items=[2], status='saved')")
        assert (result.answer, result.items, result.status,
                result["answer"]) == (1, [2], "saved", 1)


@shows("000", "Key Points", "Data in /data/ persists", "Buffers")
def test_data_persists_across_sessions_of_modal_and_buffers_do_not(on_modal):
    with ModalInterpreter(volume_name="rows") as interp:
        interp.execute("open('/data/x', 'w').write('kept'); add_buffer('b', 1)")
        assert interp.execute("SUBMIT(b=get_buffer('b'))").b == [1]
    with ModalInterpreter(volume_name="rows") as interp:
        result = interp.execute("SUBMIT(x=open('/data/x').read(), b=get_buffer('b'))")
        assert (result.x, result.b) == ("kept", [])


@shows("000", "Key Points", "Always use with statement", "Set timeout appropriately")
def test_a_sandbox_of_modal_ends_with_its_session(on_modal):
    """With `with`, or with shutdown(); while it is there, Modal knows its time."""
    with ModalInterpreter(timeout=1234) as interp:
        interp.execute("1")
        assert [s["definition"]["timeoutSecs"] for s in on_modal.live()] == [1234]
    interp = ModalInterpreter()
    assert interp.execute("SUBMIT(x=1)").x == 1
    assert [s["definition"]["timeoutSecs"] for s in on_modal.live()] == [600]
    interp.shutdown()
    droste.close_idle_engines()
    assert not on_modal.live()


# ---- pages 001 and 002: DaytonaInterpreter

@shows("001", "Key Points", "Access results via")
@shows("002", "SUBMIT Protocol", "Code must call SUBMIT", "Access results via dot")
def test_results_of_daytona_are_attributes(on_daytona):
    with DaytonaInterpreter() as interp:
        result = interp.execute("SUBMIT(answer=1, items=[2], status='saved')")
        assert (result.answer, result.items, result.status,
                result["answer"]) == (1, [2], "saved", 1)
        assert interp.execute("x = 1").fields is None


@shows("002", "SUBMIT Protocol", "All output fields must be serializable")
def test_what_is_not_serializable_is_refused(on_daytona):
    """As the cell's error; the types that the page names arrive as they were."""
    with DaytonaInterpreter() as interp:
        result = interp.execute("SUBMIT(a='x', b=1, c=1.5, d=[1], e={'k': None})")
        assert result.fields == {"a": "x", "b": 1, "c": 1.5, "d": [1], "e": {"k": None}}
        assert interp.execute("SUBMIT(a=object())").error.type in ("TypeError", "ValueError")


@shows("001", "Key Points", "/home/daytona/memory/buffers/is", "Data in /home/daytona/memory/",
       "Buffers")
@shows("002", "Volume Root", "Durable volume at", "Live workspace")
@shows("002", "Buffer Pattern", "add_buffer(name, value)", "Persist named lists",
       "Buffers are session-scoped")
@shows("002", "DaytonaInterpreter", "volume_name")
def test_only_the_volume_of_daytona_persists(on_daytona):
    """Its directories are there from the start; what is written beside it, and in buffers, is gone
    with the session."""
    with DaytonaInterpreter(volume_name="rows") as interp:
        interp.execute("import os; open('%s/buffers/x', 'w').write('kept'); "
                       "open(os.path.expanduser('~/beside'), 'w').write('x')" % MEMORY)
        interp.execute("add_buffer('b', 1)")
        assert interp.execute("SUBMIT(b=get_buffer('b'))").b == [1]
    with DaytonaInterpreter(volume_name="rows") as interp:
        result = interp.execute(
            "import os\nSUBMIT(x=open('%s/buffers/x').read(), b=get_buffer('b'), "
            "beside=os.path.exists("
                                "os.path.expanduser('~/beside')))" % MEMORY)
        assert (result.x, result.b, result.beside) == ("kept", [], False)
    with DaytonaInterpreter(volume_name="another") as interp:
        assert not interp.execute("import os\nSUBMIT(x=os.path.exists('%s/buffers/x'))" % MEMORY).x


@shows("001", "Key Points", "Always call interp.shutdown", "Set timeout")
@shows("002", "DaytonaInterpreter", "timeout", "execute_timeout")
def test_times_of_daytona(on_daytona):
    """A sandbox lives for 900 seconds, unless another time is said, and so may a cell; it is gone
    after shutdown()."""
    for name in ("timeout", "execute_timeout"):
        assert str(inspect.signature(DaytonaInterpreter).parameters[name].default) == default_of(
            "002", "DaytonaInterpreter", name)[1]
    for options, life, cell in (({}, 900, 900), ({"timeout": 600}, 600, 600),
                                ({"timeout": 600, "execute_timeout": 20}, 600, 20)):
        interp = DaytonaInterpreter(**options)
        limits = interp.execute("1").resources["limits"]
        assert (limits["timeout"]["value"], limits["execute-timeout"]["value"]) == (life, cell)
        assert len(on_daytona.sandboxes()) == 1
        interp.shutdown()
        droste.close_idle_engines()
        assert on_daytona.sandboxes() == []


def test_the_defaults_of_daytona_are_the_pages():
    """All of the table of page 002."""
    found = [row for row in pages.rows("002") if row.section == "DaytonaInterpreter"]
    if not found:
        pytest.skip(pages.MISSING)
    parameters = inspect.signature(DaytonaInterpreter).parameters
    assert {row.name: row.cells[1] for row in found} == {row.name: str(parameters[row.name].default)
                                                         for row in found}
    assert len(found) == 11


@shows("002", "DaytonaInterpreter", "repo_url", "repo_ref", "context_paths")
def test_what_is_staged_on_daytona(on_daytona, tmp_path):
    """The repository that the pages name, at a branch, and files of this machine; a branch that is
    not there is said."""
    (tmp_path / "notes.txt").write_text("a note")
    options = {"repo_url": "https://github.com/your-org/your-repo",
               "context_paths": [str(tmp_path / "notes.txt")]}
    with DaytonaInterpreter(repo_ref="master", **options) as interp:
        result = interp.execute(
            "SUBMIT(text=read_file('README.md'), note=read_file(CONTEXT_PATHS[0]))")
        assert (result.text, result.note) == ("the page's repository\n", "a note")
    with pytest.raises(droste.Error, match="no-such-branch"):
        DaytonaInterpreter(repo_ref="no-such-branch", **options).start()


@shows("002", "DaytonaInterpreter", "max_llm_calls", "llm_call_timeout")
def test_calls_of_models_are_bounded(on_daytona):
    """By their number, and each by its time; the code goes on."""
    ended = threading.Event()
    with DaytonaInterpreter(max_llm_calls=1, sub_lm=lambda prompt: ["re: " + prompt]) as interp:
        assert interp.execute("try: SUBMIT(x=[llm_query('a'), llm_query('b')])\n"
                              "except BudgetExceeded: SUBMIT(x='no more')").x == "no more"
    with DaytonaInterpreter(llm_call_timeout=0.5, sub_lm=lambda prompt: ended.wait(60)
                            and ["late"]) as interp:
        why = interp.execute("try: llm_query('a')\nexcept LLMError as e: SUBMIT(x=str(e))").x
        ended.set()
        assert "0.5 s" in why


@shows("002", "DaytonaInterpreter", "max_recursion_depth", "delegate_max_iterations")
def test_limits_of_child_runs_are_the_pages():
    """They are the session's own, by default as the page has them."""
    pairs = dict(DaytonaInterpreter()._pairs)
    for name, setting in (("max_recursion_depth", "max-recursion-depth"),
                          ("delegate_max_iterations", "delegate-max-iterations")):
        assert pairs[setting] == default_of("002", "DaytonaInterpreter", name)[1]


def nested(messages):
    """A model that asks a child for everything, as deep as it gets, and says how deep that was."""
    task = int(re.search(r"Question: (\d+)|^(\d+)$", "\n".join(
        m["content"] for m in messages if m["role"] == "user"), re.M).group(0).split()[-1])
    return ("```repl\ntry: SUBMIT(answer=[%d, rlm_query('%d')])\n"
            "except Exception as e: SUBMIT(answer=[%d, type(e).__name__])\n```"
            % (task, task + 1, task))


@pytest.mark.parametrize("depth, answer", [(1, 1), (2, 2)])
def test_child_runs_are_only_so_deep(on_daytona, depth, answer):
    """max_recursion_depth: the code of the session starts a child, whose code may start one, and so
    on down to that depth; below it a child's rlm_query asks the model alone."""
    with DaytonaInterpreter(max_recursion_depth=depth, model=nested) as interp:
        found, levels = interp.execute("SUBMIT(x=rlm_query('1'))").x, 0
        while isinstance(found, list):
            found, levels = found[1], levels + 1
        assert levels == answer


@pytest.mark.parametrize("turns", [2, 3])
def test_a_child_run_has_only_so_many_turns(on_daytona, turns):
    """delegate_max_iterations: a child whose model never answers is asked so often, and once more
    for what it has."""
    asked = []

    def model(messages):
        asked.append(messages)
        return "```repl\nprint(1)\n```"

    with DaytonaInterpreter(delegate_max_iterations=turns, model=model) as interp:
        interp.execute("try: rlm_query('1')\nexcept LLMError: pass")
    assert turns <= len(asked) <= turns + 1


@shows("002", "DaytonaInterpreter", "async_execute")
def test_results_may_be_awaited_unless_that_is_switched_off(on_daytona):
    async def kinds():
        with DaytonaInterpreter(async_execute=False) as interp:
            at_once = interp.execute("SUBMIT(x=1)").done
        async with DaytonaInterpreter() as interp:
            result = interp.execute("import time; time.sleep(0.5); SUBMIT(x=1)")
            return at_once, result.done, (await result).x

    assert asyncio.run(kinds()) == (True, False, 1)


# ---- page 003: Modal, for rlm

def counted(**kwargs):
    """What an RLM on Modal with these environment_kwargs answers."""
    turns = ["```repl\n%s\n```" % kwargs.pop("code", "SUBMIT(answer=llm_query('x' * 3))")]
    rlm = droste.RLM(lambda messages: turns.pop(0), sub_model=lambda messages: "said "
                     + messages[-1]["content"], environment="modal", environment_kwargs=kwargs)
    done = rlm.run("q", "context")
    assert done.ok, done.error
    return done.answer


@shows("003", "Arguments", "app_name", "timeout", "image", "setup_code")
@shows("003", "Default Image", "Includes")
def test_arguments_of_modal(on_modal):
    """Their defaults are the page's, and another value reaches what it names. The setup code runs
    once, when the session begins."""
    assert counted() == "said xxx"
    made = on_modal.sandboxes()[-1]
    assert made["definition"]["timeoutSecs"] == int(
        default_of("003", "Arguments", "timeout")[2]) == 600
    assert "rlm-sandbox" == default_of("003", "Arguments", "app_name")[2].strip('"')
    assert "rlm-sandbox" in on_modal.apps()
    packages = [row for row in pages.rows("003") if row.name == "Includes"][0].cells
    assert set(packages) <= set(re.split(r"[\s,]+", " ".join(made["image"])))
    assert len(packages) == 10
    setup = "n = globals().get('n', 0) + 1"
    assert counted(app_name="rows", timeout=77, image="python:3.13-slim", setup_code=setup,
                   code="SUBMIT(answer=n)") == 1
    made = on_modal.sandboxes()[-1]
    assert made["definition"]["timeoutSecs"] == 77
    assert "rows" in on_modal.apps()
    assert "python:3.13-slim" in " ".join(made["image"])


@shows("003", "Arguments", "context_payload", "lm_handler_address")
def test_arguments_that_rlm_sets_are_refused():
    """The page says "set by RLM": given by hand it is refused by name. What RLM is given as the
    prompt is the code's `context`."""
    for word, value in (("context_payload", "text"), ("lm_handler_address", ("127.0.0.1", 1))):
        assert default_of("003", "Arguments", word)[2] == "Auto"
        with pytest.raises(droste.UnsupportedError, match=word):
            droste.RLM("m", environment="modal", environment_kwargs={word: value})


@shows("003", "How It Works", "llm_query() POSTs", "Host forwards requests", "Broker unblocks")
def test_calls_from_modal_are_answered_by_the_host(on_modal):
    """The code waits, the host asks the model, and the code goes on with the answer."""
    assert counted(
        code="a = llm_query('1')\nSUBMIT(answer=[a] + llm_query_batched(['2', '3']))") == [
            "said 1", "said 2", "said 3"]


# ---- page 004: agentic-codebase-navigator

def configured(cells, environment="local", **kwargs):
    """A run by navigator's configuration, whose model writes these cells; `shown` is what it was
    shown of them."""
    turns, shown = ["```repl\n%s\n```" % cell for cell in cells], []

    def root(messages):
        shown.append(messages[-1]["content"])
        return turns.pop(0)

    config = RLMConfig(env=EnvironmentConfig(environment, kwargs),
                       rlm_kwargs={"model": root,
                                   "sub_model": lambda messages: "said " + messages[-1]["content"]})
    done = create_rlm_from_config(config).completion("context")
    done.shown = "\n".join(shown)
    return done


@shows("004", "Overview", "Local", "Docker", "Modal", "Prime")
@pytest.mark.parametrize("environment, needs", [("local", None), ("docker", "DOCKER_HOST"), (
    "modal", "DROSTE_MODAL_PYTHON"), ("prime", "PRIME_API_KEY")])
def test_the_requirements_of_an_environment_are_reported(environment, needs, monkeypatch, tmp_path):
    """Local needs nothing; the others say what is missing, by its name, when they are opened."""
    monkeypatch.setenv("DOCKER_HOST", "unix://%s/none" % tmp_path)
    monkeypatch.setenv("DROSTE_MODAL_PYTHON", str(tmp_path / "no-modal"))
    if needs is None:
        assert configured(["SUBMIT(answer=1)"]).answer == 1
        return
    with pytest.raises(droste.Error) as caught:
        droste.Interpreter(env=environment).start()
    assert (str(tmp_path / "no-modal") if environment == "modal" else needs) in str(caught.value)


def test_the_defaults_of_navigator_are_the_pages():
    """All of both tables of options."""
    for section, adapter in (("Local Environment / Options", LocalEnvironmentAdapter),
                             ("Docker Environment / Options", DockerEnvironmentAdapter)):
        found = {row.name: row.cells[2] for row in pages.rows("004") if row.section == section}
        if not found:
            pytest.skip(pages.MISSING)
        parameters = inspect.signature(adapter).parameters
        defaults = {name: str(parameters[name].default) for name in found}
        defaults = {name: "Standard library" if name == "allowed_import_roots" and value == "None"
                    else value for name, value in defaults.items()}
        assert defaults == found


@shows("004", "Local Environment / Options", "execute_timeout_s", "execute_timeout_cap_s",
       "broker_timeout_s")
def test_times_of_the_local_environment():
    """By default those of the page, also of an RLM of the configuration; another one counts, and
    none beyond the cap."""
    pairs = dict(create_rlm_from_config(RLMConfig())._pairs)
    for name, setting in (("execute_timeout_s", "execute-timeout"),
                          ("execute_timeout_cap_s", "execute-timeout-cap"),
                          ("broker_timeout_s", "broker-timeout")):
        assert float(pairs[setting]) == float(default_of("004", "Local Environment / Options",
                                                         name)[2])
    done = configured(["while True: pass", "SUBMIT(answer=1)"], execute_timeout_s=2, grace=60)
    assert done.answer == 1 and "TimeoutError: the cell ran longer than 2 s" in done.shown
    with pytest.raises(droste.ArgumentError, match="execute_timeout_cap_s"):
        configured([], execute_timeout_s=301.0)
    with LocalEnvironmentAdapter(broker=Slow(), broker_timeout_s=0.5) as adapter:
        assert "0.5 s (broker-timeout)" in adapter.execute_code("llm_query('a')").stderr
        Slow.ended.set()


class Slow:
    """A broker that answers only when the test is over."""
    ended = threading.Event()

    def complete(self, prompt, model=None):
        self.ended.wait(60)
        return "late"


@shows("004", "Local Environment / Options", "allowed_import_roots")
@shows("004", "Local Environment / Security Model", "Import Restrictions")
@shows("004", "Troubleshooting / Local Environment", "Import errors", "Check allowed_import_roots",
       "Ensure packages are installed")
def test_imports_of_the_local_environment(tmp_path):
    """The standard library by default; directories come to it; modules' names are all there is.
    What is refused is named. Packages are those of the Python that runs the program."""
    tmp_path.chmod(0o755)
    (tmp_path / "of_mine.py").write_text("value = 5\n")
    done = configured(["import os", "import of_mine",
                       "import json, math, sys\nSUBMIT(answer=list(sys.version_info[:3]))"])
    assert done.answer == list(sys.version_info[:3])
    assert "module 'os'" in done.shown
    assert "module 'of_mine'" in done.shown
    assert configured(["import json, of_mine\nSUBMIT(answer=of_mine.value)"],
                      allowed_import_roots={str(tmp_path)}).answer == 5
    done = configured(["import json", "import math\nSUBMIT(answer=1)"],
                      allowed_import_roots={"math"})
    assert done.answer == 1 and "module 'json'" in done.shown


@shows("004", "Local Environment / Options", "setup_code")
def test_the_setup_code_of_the_local_environment():
    """Before each execution."""
    assert configured(["x = 2", "SUBMIT(answer=x)"], setup_code="x = 1").answer == 1


@shows("004", "Local Environment / Security Model", "Process Isolation", "File I/O Restrictions",
       "Temporary Directory")
@shows("004", "Environment Comparison / Security", "Local")
def test_what_code_in_the_local_environment_cannot_reach():
    """It is in a process of its own; open() writes below the session's own directory alone, which
    no other session has."""
    with LocalEnvironmentAdapter(setup_code="import os") as adapter:
        assert adapter.execute_code("print(os.getpid())").stdout != "%d\n" % os.getpid()
        for code in ("open('/etc/passwd')", "open('/etc/own', 'w')", "open(0)"):
            assert "PermissionError" in adapter.execute_code(code).stderr, code
        assert adapter.execute_code(
            "open('x', 'w').write('mine')\nprint(open('x').read())").stdout == "mine\n"
        with LocalEnvironmentAdapter() as other:
            assert "FileNotFoundError" in other.execute_code("open('x')").stderr
    with socket.create_server(("127.0.0.1", 0)) as here, LocalEnvironmentAdapter(
            setup_code="import socket") as adapter:
        socket.create_connection(here.getsockname(), 5).close()
        tried = adapter.execute_code("socket.create_connection(%r, 5)" % (here.getsockname(),))
        # the page has no such wall: "Network Isolation: No"
        if adapter._interpreter.isolation in ("full", "light"):
            assert "Error" in tried.stderr


@shows("004", "Local Environment / Security Model", "Builtins Filtering")
@pytest.mark.parametrize("code", ["eval('1')", "exec('1')", "compile('1', 'x', 'eval')",
                                  "__import__('os')"])
def test_builtins_that_the_page_calls_dangerous(code):
    """Each is refused, as the session's rule; the import statement, which needs __import__, is
    not."""
    with LocalEnvironmentAdapter() as adapter:
        assert "rules of this session" in adapter.execute_code(code).stderr
        assert adapter.execute_code("import math\nprint(math.floor(1.5))").stdout == "1\n"


@shows("004", "Local Environment / Timeout Behavior", "Returns TimeoutError",
       "Worker process is killed")
def test_the_end_of_the_time():
    """TimeoutError stands in stderr. Code that takes the interrupt for itself is killed, with its
    worker; the run goes on."""
    with LocalEnvironmentAdapter(execute_timeout_s=0.5) as adapter:
        assert adapter.execute_code("while True: pass").stderr.startswith("\nTimeoutError: ")
        deaf = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
        late = adapter.execute_code(deaf)
        assert "TimeoutError" in late.stderr or "timeout" in late.stderr.lower(), late.stderr
    done = configured([deaf, "SUBMIT(answer=1)"], execute_timeout_s=2)
    assert done.answer == 1


@shows("004", "Local Environment / Timeout Behavior", "Falls back to SIGALRM")
@shows("004", "Troubleshooting / Local Environment", "Timeout not working", "SIGALRM only works",
       "Use Docker for reliable")
def test_times_hold_in_every_thread():
    """Nothing of them depends on SIGALRM or on the program's main thread."""
    found = []

    def run():
        with LocalEnvironmentAdapter(execute_timeout_s=0.5) as adapter:
            found.append(adapter.execute_code("while True: pass").stderr)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found and "TimeoutError" in found[0]


@shows("004", "Environment Comparison / Feature Support", "llm_query()", "llm_query_batched()",
       "Custom packages")
def test_features_of_the_local_environment():
    """llm_query and llm_query_batched, and the packages of the system's Python
    (tests/seeds/test_docker_page.py has those of an image)."""
    done = configured(["SUBMIT(answer=[llm_query('1'), *llm_query_batched(['2', '3'])])"])
    assert done.answer == ["said 1", "said 2", "said 3"]
    found = configured(["SUBMIT(answer=pytest.__version__)"], setup_code="import pytest").answer
    assert found == pytest.__version__
