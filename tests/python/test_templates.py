"""Templates: sessions that start with what another session had, each in a sandbox of its own."""
import asyncio
import gc
import os

import pytest

import droste
from droste import Interpreter, Template


@pytest.fixture(scope="module", params=["full", "light", "landlock", "process"])
def isolation(request):
    """Each isolation that this machine has."""
    try:
        with Interpreter(isolation=request.param):
            return request.param
    except droste.UnsupportedError as e:
        pytest.skip("isolation %s is not available here: %s" % (request.param, e))


def test_sessions_start_with_all_that_the_template_has(isolation):
    """Setup code, cells and variables have run once, and every session has their effects."""
    with Template(isolation=isolation, setup_code="import decimal\ndef double(n): return 2 * n",
                  variables={"text": "a" * 100000},
                  cells=["rows = list(range(len(text)))", "total = sum(rows)"]) as template:
        for _ in range(2):
            with Interpreter(template=template) as interp:
                found = interp.execute("double(21), total, str(decimal.Decimal(1) / 4)").echo
                assert found == "(42, 4999950000, '0.25')"


def test_sessions_do_not_see_each_others_changes(isolation):
    """Variables, and files in /tmp, of one session are not those of another, or of the template."""
    with Template(isolation=isolation, setup_code="rows = [1, 2, 3] * 100000") as template:
        with Interpreter(template=template) as one, Interpreter(template=template) as two:
            one.execute("rows.clear(); new = 1; open('mine', 'w').close()")
            own = one.execute("len(rows), __import__('os').path.exists('mine')")
            assert own.echo == "(0, True)"
            seen = "len(rows), 'new' in globals(), __import__('os').path.exists('mine')"
            assert two.execute(seen).echo == "(300000, False, False)"
            with Interpreter(template=template) as three:
                assert three.execute(seen).echo == "(300000, False, False)"


def test_random_numbers_differ_between_sessions():
    """Each session seeds its generators anew, although the template has used them."""
    with Template(setup_code="import random\nrandom.random()") as template:
        found = []
        for _ in range(3):
            with Interpreter(template=template) as interp:
                found.append(interp.execute("random.random()").echo)
    assert len(set(found)) == 3


def test_a_live_session_becomes_a_template_and_goes_on():
    """The template keeps the state as it was, after the session has changed and ended."""
    with Interpreter() as interp:
        interp.execute("x = 1")
        template = interp.template()
        assert interp.execute("x += 1; x").echo == "2"
    with template, Interpreter(template=template) as other:
        assert other.execute("x").echo == "1"


def test_a_session_of_a_template_can_become_a_template():
    """Templates build on each other."""
    with Template(setup_code="x = 1") as first:
        with Interpreter(template=first) as interp:
            interp.execute("y = x + 1")
            second = interp.template()
        with second, Interpreter(template=second) as interp:
            assert interp.execute("x, y").echo == "(1, 2)"


def test_a_session_of_a_template_can_be_forked_and_rolled_back():
    """What sessions can do, those of a template can do, too."""
    with Template(setup_code="x = 1") as template, Interpreter(template=template) as interp:
        with interp.fork() as fork:
            fork.execute("x = 7")
            assert fork.execute("x").echo == "7"
        checkpoint = interp.checkpoint()
        interp.execute("x = 9")
        interp.rollback(checkpoint)
        assert interp.execute("x").echo == "1"


def test_modules_imported_in_the_template_work_in_sessions():
    """Code of libraries that the zygote did not have is part of the template."""
    code = "import sqlite3, zlib, lzma\ndb = 1"
    with Template(setup_code=code) as template, Interpreter(template=template) as interp:
        made = interp.execute("c = sqlite3.connect(':memory:'); c.execute('create table t (a)')\n"
                              "c.execute('insert into t values (7)')\n"
                              "c.execute('select a from t').fetchall(), "
                              "lzma.decompress(lzma.compress(b'x' * 1000)) == b'x' * 1000")
        assert made.echo == "([(7,)], True)"


def test_signal_handlers_and_deep_recursion_work_in_sessions():
    """Handlers of the template are installed in each session, and its stack can grow."""
    setup = ("import signal, os\nseen = []\n"
             "signal.signal(signal.SIGUSR1, lambda *a: seen.append(1))\n"
             "def deep(n): return n and 1 + deep(n - 1)")
    with Template(setup_code=setup) as template, Interpreter(template=template) as interp:
        done = interp.execute("os.kill(os.getpid(), signal.SIGUSR1); deep(800), len(seen)")
        assert done.echo == "(800, 1)"


def test_tools_are_those_of_the_session():
    """A session has the tools that it was opened with, and not those of the template's session."""
    def old():
        return "old"

    def new():
        return "new"

    with Interpreter(tools=[old]) as interp:
        assert interp.execute("old()").echo == "'old'"
        template = interp.template()
    with template, Interpreter(template=template, tools=[new]) as interp:
        assert interp.execute("new()").echo == "'new'"
        assert "NameError" in str(interp.execute("old()").error)


def test_a_session_has_limits_of_its_own():
    """A deadline ends one session; another one of the same template goes on."""
    with Template(setup_code="x = 1") as template:
        with Interpreter(template=template, execute_timeout=0.3, grace=0.1) as one:
            with Interpreter(template=template) as two:
                assert one.execute("while True: pass").status == "timeout"
                assert two.execute("x").echo == "1"


def test_too_little_memory_for_the_template_is_reported():
    """A session with a smaller limit than the template refuses to work, and says why."""
    with Template(setup_code="data = 'x' * 300_000_000", memory="1G") as template:
        with Interpreter(template=template, memory="128M") as interp:
            assert "raise --memory" in str(interp.execute("len(data)").error)
        with Interpreter(template=template) as interp:
            assert interp.execute("len(data)").echo == "300000000"


def test_within_asyncio():
    """The same on a loop: sessions of one template run at the same time."""
    async def start(template, n):
        async with Interpreter(template=template) as interp:
            return (await interp.execute("x + %d" % n)).echo

    async def main():
        async with Template(setup_code="x = 1", cells=["x += 1"]) as template:
            assert await asyncio.gather(*[start(template, n) for n in range(5)]) == [
                "2", "3", "4", "5", "6"]
        async with Interpreter() as interp:
            await interp.execute("z = 3")
            template = await interp.template()
        async with Interpreter(template=template) as interp:
            assert (await interp.execute("z")).echo == "3"
        template.close()

    asyncio.run(main())


# -- refusals; each has its allowed twin

@pytest.mark.parametrize("begin,end,message", [
    ("import threading as t; e = t.Event(); w = t.Thread(target=e.wait, name='waits'); w.start()",
     "e.set(); w.join()", "threads run: waits"),
    ("f = open('/dev/zero')", "f.close()", "open: /dev/zero"),
    ("import socket; s = socket.socket(socket.AF_UNIX)", "s.close()", "open: socket:"),
    ("import subprocess; p = subprocess.Popen(['sleep', '600'])", "p.kill(); p.wait()",
     "has subprocesses"),
    ("import mmap; m = mmap.mmap(-1, 4096)", "m.close()", "shared with other processes"),
    ("import os; was = os.getcwd(); os.mkdir('d'); os.chdir('d')", "os.chdir(was)",
     "working directory"),
    ("import asyncio; k = asyncio.ensure_future(asyncio.sleep(600)); "
     "await asyncio.sleep(0)", "k.cancel()\nawait asyncio.wait([k])",
     "asyncio tasks"),
])
def test_what_a_template_cannot_keep_is_refused_by_name(begin, end, message):
    """The session says what has to end first, and becomes a template once it has."""
    with Interpreter() as interp:
        interp.execute(begin)
        with pytest.raises(droste.ArgumentError, match=message):
            interp.template()
        interp.execute(end)
        template = interp.template()
        with template, Interpreter(template=template) as other:
            assert other.execute("1 + 1").echo == "2"


def test_a_failing_cell_is_reported():
    """The error of setup code or of a cell names the exception; there is no template then."""
    with pytest.raises(droste.ConfigError, match="line 2: ZeroDivisionError"):
        Template(setup_code="x = 1\n1 / 0").start()
    with pytest.raises(droste.CellFailed, match="ValueError: no such table"):
        Template(cells=["x = 1", "raise ValueError('no such table')"]).start()


def test_a_template_that_takes_too_long_or_too_much_fails():
    """Limits of sessions hold while the template is made."""
    with pytest.raises(droste.Error, match="setup code"):
        Template(setup_code="while True: pass", execute_timeout=0.3, grace=0.1).start()
    with pytest.raises(droste.Error):
        Template(setup_code="data = bytearray(2 << 30)", memory="256M").start()


def test_a_closed_template_is_refused_and_its_sessions_go_on():
    """Sessions keep what they have; new ones say that the template is closed."""
    template = Template(setup_code="x = 1")
    template.start()
    with Interpreter(template=template) as interp:
        template.close()
        assert interp.execute("x").echo == "1"
        with pytest.raises(droste.ArgumentError, match="closed"):
            Interpreter(template=template).start()


def test_other_packages_than_the_templates_are_refused():
    """A session that needs another zygote says which settings must stay as they are."""
    with Template(setup_code="x = 1") as template:
        with pytest.raises(droste.ArgumentError, match="leave preload"):
            Interpreter(template=template, preload=["json.tool"]).start()
        with Interpreter(template=template, memory="1G") as interp:
            assert interp.execute("x").echo == "1"


def test_a_session_with_a_volume_cannot_become_a_template(tmp_path, monkeypatch):
    """The refusal names the volume."""
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path))
    with Interpreter(volume_name="kept") as interp:
        with pytest.raises(droste.UnsupportedError, match="volume"):
            interp.template()


# -- hostile sessions

WRITE_EVERYWHERE = """
import ctypes
address = id(secret) + 48
ctypes.memmove(address, b"HACKED", 6)
"""
KEEP_FILE = """
import os, sys
guest, close, kept = sys.modules["droste_guest"], os.close, []
def keep(fd):
    if "template" in os.readlink("/proc/self/fd/%d" % fd):
        kept.append(os.dup(fd))
    close(fd)
os.close = keep
"""
KEEP_MAPPING = """
import mmap, os, sys
guest, close, kept = sys.modules["droste_guest"], os.close, []
def keep(fd):
    if "template" in os.readlink("/proc/self/fd/%d" % fd):
        kept.append(mmap.mmap(fd, 4096))
    close(fd)
os.close = keep
"""
FORGE = """
import os, sys
guest = sys.modules["droste_guest"]
real = guest.state.library
class Forged:
    def __getattr__(self, name):
        return getattr(real, name)
    def image_save(self, fd, size):
        real.image_save(fd, size)
        os.pwrite(fd, %s, %d)
        return 0
guest.state.library = Forged()
"""


def test_what_a_session_does_to_its_memory_stays_there():
    """A session that overwrites an object of the template in place changes only its own copy."""
    with Template(setup_code="secret = 'x' * 1000000") as template:
        with Interpreter(template=template) as bad, Interpreter(template=template) as good:
            assert bad.execute(WRITE_EVERYWHERE + "secret[:6]").echo == "'HACKED'"
            assert good.execute("secret[:6]").echo == "'xxxxxx'"
            with Interpreter(template=template) as later:
                assert later.execute("secret[:6]").echo == "'xxxxxx'"


def test_a_session_has_no_descriptor_of_the_template():
    """Only the standard descriptors and the channel are open in a session of a template."""
    code = "import os; sorted(map(int, os.listdir('/proc/self/fd')))[:-1]"
    with Interpreter() as plain:
        expected = plain.execute(code).echo
    with Template(setup_code="x = 1") as template, Interpreter(template=template) as interp:
        assert interp.execute(code).echo == expected


def test_the_file_cannot_be_changed_by_the_session_that_wrote_it():
    """Code that keeps the descriptor cannot write to it once the template exists."""
    with Interpreter() as interp:
        interp.execute(KEEP_FILE + "x = 1")
        template = interp.template()
        assert interp.execute("len(kept)").echo == "1"
        tried = interp.execute("os.pwrite(kept[0], b'HACKED', 0)")
        assert "PermissionError" in str(tried.error)
        with template, Interpreter(template=template) as other:
            assert other.execute("x").echo == "1"


def test_code_that_keeps_a_writable_mapping_gets_no_template():
    """Without the seal there is no template; sessions of others are not affected."""
    with Interpreter() as interp:
        interp.execute(KEEP_MAPPING)
        with pytest.raises(droste.Error, match="sealing"):
            interp.template()
        with Interpreter() as other:
            assert other.execute("1 + 1").echo == "2"


@pytest.mark.parametrize("data,offset", [("os.urandom(65536)", 0), ("os.urandom(65536)", 16),
                                         ("b'\\xff' * 4000", 32), ("bytes(300000)", 12288)])
def test_a_forged_template_harms_only_its_sessions(data, offset):
    """Sessions that start from garbage fail or die; the host and other sessions go on."""
    with Interpreter(execute_timeout=60, grace=1) as interp:
        interp.execute(FORGE % (data, offset))
        template = interp.template()
        with template:
            for _ in range(2):
                bad = Interpreter(template=template)
                try:
                    bad.start()
                    bad.execute("1 + 1")
                except droste.Error:
                    pass
                bad.shutdown(cancel=True)
        assert interp.execute("6 * 7").echo == "42"
        with Interpreter() as other:
            assert other.execute("6 * 7").echo == "42"


def test_no_descriptors_are_left():
    """Making, using and closing templates leaves nothing open in this process."""
    def once():
        with Template(setup_code="x = 1") as template, Interpreter(template=template) as interp:
            assert interp.execute("x").echo == "1"
        gc.collect()        # what earlier tests have left in cycles
        droste.close_idle_engines()
        return len(os.listdir("/proc/self/fd"))

    before = once()
    assert once() == before


# -- stored templates

@pytest.fixture
def home(tmp_path, monkeypatch):
    """Stored templates of the test's own."""
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path / "home"))
    droste.close_idle_engines()
    yield tmp_path
    droste.close_idle_engines()


def test_a_saved_template_is_loaded_as_it_was(home, monkeypatch):
    """Settings, contexts and cells; relative paths are absolute, and files of code are read."""
    monkeypatch.chdir(home)
    (home / "log.txt").write_text("a\nb\n")
    (home / "setup.py").write_text("import fractions")
    Template(preload=["decimal"], setup_code="@setup.py", contexts={"log": "log.txt"},
             cells=["rows = log.split()"]).save("t")
    monkeypatch.chdir("/")
    with Template.load("t") as template, Interpreter(template=template) as interp:
        assert interp.execute("rows, str(fractions.Fraction(1, 2))").echo == "(['a', 'b'], '1/2')"
    assert Template.names() == ["t"]
    Template.remove("t")
    assert Template.names() == []
    with pytest.raises(droste.NotFoundError, match="there is no template 't'"):
        Template.load("t")


def test_a_stored_template_is_named_by_sessions_and_runs(home):
    """It is executed once for sessions that follow one another."""
    Template(cells=["import time; made = time.time_ns()"]).save("t")
    found = set()
    for _ in range(3):
        with Interpreter(template="t") as interp:
            found.add(interp.execute("made").echo)
    assert len(found) == 1
    rlm = droste.RLM(model=lambda messages: "```repl\nSUBMIT(str(made))\n```", template="t",
                     database="none")
    assert rlm.completion("q").answer.isdigit()


def test_a_stored_template_within_asyncio(home):
    async def both():
        async with Interpreter(template="t") as one, Interpreter(template="t") as two:
            return (await one.aexecute("made")).echo, (await two.aexecute("made")).echo
    Template(cells=["import time; made = time.time_ns()"]).save("t")
    one, two = asyncio.run(both())
    assert one == two


def test_a_stored_template_is_replaced_on_request(home):
    Template(cells=["x = 1"]).save("t")
    with pytest.raises(droste.ArgumentError, match="already"):
        Template(cells=["x = 2"]).save("t")
    Template(cells=["x = 2"]).save("t", replace=True)
    with Interpreter(template="t") as interp:
        assert interp.execute("x").echo == "2"


@pytest.mark.parametrize("keywords, message", [
    ({"variables": {"x": 1}}, "cannot have variables"),
    ({"cells": ["1"], "tools": [len]}, "cannot have tools"),
    ({"cells": ["1"], "model": lambda messages: ""}, "cannot have model"),
    ({"cells": ["1"], "timeout": 5}, "no setting 'timeout'"),
    ({}, "has no recipe"),
])
def test_what_cannot_be_stored_is_refused(home, keywords, message):
    with pytest.raises(droste.ArgumentError, match=message):
        Template(**keywords).save("t")
    assert Template.names() == []


def test_the_template_of_a_session_has_no_recipe(home):
    with Interpreter() as interp, interp.template() as template:
        with pytest.raises(droste.ArgumentError, match="no recipe"):
            template.save("t")
