"""scripts/check on a small project of meson: it counts single tests, shows what failed, names what
was skipped, and does not overlook a program that ended worse than its tests."""
import importlib.machinery
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness import ROOT

#: programs in the shell that write TAP, as one with cmocka does
TAP = {
    "two": "echo 1..2; echo ok 1 - a; echo ok 2 - b",
    "skips": "echo 1..2; echo '# skipped: needs root'; echo 'not ok 1 # SKIP a'; echo ok 2 - b",
    "fails": "echo 1..3; echo ok 1 - a; echo not ok 2 - b; echo '# 0x1 != 0x2'; echo why >&2;"
             "echo not ok 3 - c; echo '# another'; exit 1",
    "unnumbered": "echo 1..2; echo ok - a; echo not ok - b; echo '# left running'; exit 1",
    "incomplete": "echo 1..2; echo ok 1 - a",
    "exits": "echo 1..1; echo ok 1 - a; exit 3",
    "crashes": "echo 1..1; echo ok 1 - a; kill -SEGV $$",
    "undefined": "echo 1..1; echo ok 1 - a; echo 'x.c:1: runtime error: shift' >&2",
    "empty": "exit 1",
    "hangs": "echo 1..1; exec sleep 1000",
}
SCRIPTS = {"good": "exit 0", "missing": "echo needs clang; exit 77", "bad": "echo line 7; exit 1"}
PYTEST = """
import pytest
def test_a(): pass
def test_b(): assert 'left' == 'right'
def test_c(): pytest.skip('no daemon')
"""


def meson_tests(directory):
    for name, program in {**TAP, **SCRIPTS}.items():
        (directory / name).write_text("#!/bin/sh\n%s\n" % program)
        (directory / name).chmod(0o755)
        if name in SCRIPTS:
            yield "test('%s', files('%s'), suite: 's')" % (name, name)
        else:
            yield ("test('%s', files('%s/tests/cmocka-tap'), args: files('%s'), protocol: 'tap', "
                   "suite: 's', timeout: %d)" % (name, ROOT, name, 1 if name == "hangs" else 100))
    (directory / "test_some.py").write_text(PYTEST)
    for name, python in (("py", sys.executable), ("no-py", directory / "none")):
        yield ("test('%s', files('%s/tests/run-pytest'), args: ['%s', '%s', '%s'], suite: 's', "
               "protocol: 'gtest', workdir: meson.project_build_root())" % (
                   name, ROOT, python, name, directory))


def load_check():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("check", os.path.join(ROOT, "scripts", "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    sys.modules["check"] = module       # dataclasses look it up there
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """{program: {test, or "" for the program: (status, why)}}, as scripts/check reads them."""
    directory = tmp_path_factory.mktemp("small")
    lines = ["project('small')", *meson_tests(directory)]
    (directory / "meson.build").write_text("\n".join(lines) + "\n")
    build = str(directory / "build")
    subprocess.run(["meson", "setup", build, str(directory)], check=True, capture_output=True)
    module, found = load_check(), {}
    for o in module.run_suites(module.Call("small", ["s"], directory=build)):
        program, _, test = o.name.partition(": ")
        tests = found.setdefault(program, {})
        test = test.rpartition("::")[2]
        assert test not in tests, "%s counts twice" % o.name
        tests[test] = (o.status, o.why)
    return found


def test_every_program_is_read(outcomes):
    assert outcomes.keys() == {*TAP, *SCRIPTS, "py", "no-py"}


def test_every_test_of_a_program_counts(outcomes):
    assert outcomes["two"] == {"a": ("passed", ""), "b": ("passed", "")}


def test_a_test_that_cmocka_skips_is_skipped_with_its_reason(outcomes):
    """cmocka 1.1.5 calls it `not ok`."""
    assert outcomes["skips"] == {"a": ("skipped", "needs root"), "b": ("passed", "")}


def test_a_failed_test_shows_its_output_and_not_that_of_others(outcomes):
    assert outcomes["fails"]["a"] == ("passed", "")
    status, why = outcomes["fails"]["b"]
    ended = "\n\n(test program exited with status code 1)"
    assert (status, why) == ("failed", "not ok 2 - b\n# 0x1 != 0x2\nwhy" + ended)
    assert outcomes["fails"]["c"] == ("failed", "not ok 3 - c\n# another\nwhy" + ended)
    assert outcomes["unnumbered"] == {
        "a": ("passed", ""), "b": ("failed", "not ok - b\n# left running" + ended)}


@pytest.mark.parametrize("program, words", [
    ("incomplete", "exit status 0"), ("exits", "exit status 3"),
    ("crashes", "ended by signal 11"), ("undefined", "runtime error: shift")])
def test_a_program_that_ends_badly_is_a_failure_of_its_own(outcomes, program, words):
    """Also where all of its tests passed."""
    status, why = outcomes[program].pop("")
    assert status == "failed" and words in why
    assert outcomes[program] == {"a": ("passed", "")}


def test_a_program_without_a_test_failed(outcomes):
    assert [status for status, _ in outcomes["empty"].values()] == ["failed"]


def test_a_program_that_does_not_end_failed(outcomes):
    ((status, why),) = outcomes["hangs"].values()
    assert status == "failed" and why.startswith("TIMEOUT")


def test_a_script_is_one_test(outcomes):
    assert [outcomes[name] for name in SCRIPTS] == [
        {"": ("passed", "")}, {"": ("skipped", "needs clang")}, {"": ("failed", "line 7")}]


def test_the_tests_of_pytest_count_one_by_one(outcomes):
    seen = outcomes["py"]
    assert seen["test_a"] == ("passed", "") and seen["test_c"] == ("skipped", "no daemon")
    assert seen["test_b"][0] == "failed" and "'left' == 'right'" in seen["test_b"][1]
    assert len(seen) == 3


def test_a_suite_whose_interpreter_is_missing_is_skipped(outcomes):
    ((status, why),) = outcomes["no-py"].values()
    assert status == "skipped" and "scripts/setup no-py" in why


def test_calls_begin_in_order_as_soon_as_they_may(monkeypatch):
    """No more at once than there is room for, none before what it needs is built or before the call
    that it follows has ended. A call that fails in an unexpected way is a failed test."""
    check = load_check()
    calls = [check.Call("first", ["s"]), check.Call("follows", ["s"], after="first"),
             check.Call("needs", ["s"], ("tool",)), check.Call("second", ["s"]),
             check.Call("third", ["s"])]
    at_work, ends = [], {call.name: threading.Event() for call in calls}

    def run_suites(call):
        at_work.append(call.name)
        assert ends[call.name].wait(60) and call.name != "third"
        return [check.Outcome("passed", "a test")]

    def wait_for(*names):
        until = time.monotonic() + 60
        while at_work != list(names):
            assert time.monotonic() < until, at_work
            time.sleep(0.01)

    for name, value in {"CALLS": calls, "BUILT": {"tool": threading.Event()}, "CALLS_AT_ONCE": 2,
                        "run_suites": run_suites}.items():
        monkeypatch.setattr(check, name, value)
    seen = []
    whole = threading.Thread(target=lambda: seen.extend(check.run_calls()))
    whole.start()
    wait_for("first", "second")
    ends["second"].set()
    wait_for("first", "second", "third")
    check.BUILT["tool"].set()
    ends["first"].set()
    wait_for("first", "second", "third", "follows")
    ends["third"].set()
    wait_for("first", "second", "third", "follows", "needs")
    ends["follows"].set()
    ends["needs"].set()
    whole.join(60)
    assert sorted((o.status, o.name) for o in seen) == [
        ("failed", "as a whole (third)"), ("passed", "a test (first)"),
        ("passed", "a test (follows)"), ("passed", "a test (needs)"), ("passed", "a test (second)")]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_check_and_its_commands(tmp_path, sign):
    """Also a command that ignores SIGTERM."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(os.path.join(ROOT, "scripts", "check"), tmp_path / "scripts")
    build = tmp_path / "scripts" / "build"
    build.write_text("#!/bin/sh\ntrap '' TERM\necho $$ >pid.new\nmv pid.new pid\n"
                     "while :; do sleep 0.1; done\n")
    build.chmod(0o755)
    process = subprocess.Popen([tmp_path / "scripts" / "check"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(sign)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + sign, "")
    assert not os.path.exists("/proc/%s" % (tmp_path / "pid").read_text().strip())
