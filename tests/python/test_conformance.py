"""The conformance suite (tests/session) finds what is wrong with an environment: each of
tests/session/wrong.py has one defect, and the tests that are to find it fail there, by name. A test
that has nothing to do with it passes.
"""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUITE = os.path.join(ROOT, "tests", "session")
sys.path.insert(0, SUITE)

import wrong        # noqa: E402: its place is said above

CONTROL = "test_a_cell_has_its_own_output"      # no defect concerns it


def files():
    """{name of a test: its file}"""
    found = {}
    for file in filter(re.compile(r"test_\w+\.py").fullmatch, sorted(os.listdir(SUITE))):
        with open(os.path.join(SUITE, file), encoding="utf-8") as text:
            found.update((name, "tests/session/" + file)
                         for name in re.findall(r"^def (test_\w+)\(", text.read(), re.M))
    return found


FILES = files()


def suite(tmp_path, *words):
    """What pytest says of the suite with these words."""
    return subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-rA", "--tb=no", "-p",
                           "no:cacheprovider", "-p", "no:xdist",
                           "--basetemp", str(tmp_path / "tmp"), *words], cwd=ROOT,
                          capture_output=True, text=True, timeout=300).stdout


def outcomes(environment, names, tmp_path):
    """{name: what became of it}, of tests as `found_by` names them, in one environment."""
    nodes = {}      # as pytest names them
    for name in names:
        test, _, case = name.rstrip("]").partition("[")
        nodes["%s::%s" % (FILES[test], test)
              + ("[%s-%s]" % (environment, case) if case else "")] = name
    done = suite(tmp_path, "--environment", environment, *nodes)
    found = {}
    for status, node in re.findall(r"^(PASSED|FAILED|ERROR) (\S+::\w+\[.*?\])(?: - .*)?$", done,
                                   re.M):
        found.setdefault(nodes.get(node) or nodes[node.partition("[")[0]], set()).add(status)
    assert set(names) == set(found), done
    return found


@pytest.mark.parametrize("defect", wrong.DEFECTS)
def test_a_defect_is_found_by_the_test_of_its_sentence(defect, tmp_path):
    """Every test that is named fails in the wrong environment, and the control passes. The twin is
    the suite itself, which is run without a defect."""
    found = outcomes("wrong:" + defect, [*wrong.DEFECTS[defect].found_by, CONTROL], tmp_path)
    assert found.pop(CONTROL) == {"PASSED"}
    assert {name: statuses for name, statuses in found.items() if "FAILED" not in statuses} == {}


ADAPTER = """
from adapters import ADAPTERS, Adapter

@ADAPTERS.register
class Mine(Adapter):
    name = "mine"
    word = "isolation"
    lacks = {"volume": "sandboxes of mine keep nothing"}

    def __init__(self, text, settings):
        super().__init__(text, {**settings, "env": "local"})
"""


def test_an_adapter_of_ones_own_declares_what_is_skipped(tmp_path):
    """`--adapter`: tests that need what it lacks are skipped with its reason, the others run."""
    (tmp_path / "mine.py").write_text(ADAPTER)
    done = suite(tmp_path, "--adapter=%s" % (tmp_path / "mine.py"), "--environment", "mine:process",
                 *("%s::%s" % (FILES[name], name) for name in (CONTROL, "test_volumes_stay_apart")))
    assert "PASSED tests/session/test_output.py::%s[mine:process]" % CONTROL in done
    assert re.search(
        r"^SKIPPED .*mine:process does not support the feature 'volume' .*: sandboxes of mine keep "
        r"nothing", done, re.M), done


def test_an_environment_that_was_named_and_cannot_be_opened_fails(tmp_path):
    """The twin of what is skipped where nobody has named it."""
    done = suite(tmp_path, "--environment", "local:no-such-isolation",
                 "%s::%s" % (FILES[CONTROL], CONTROL))
    assert re.search(r"^(ERROR|FAILED) tests/session/test_output.py::%s" % CONTROL, done,
                     re.M), done


def test_the_page_has_the_features_and_files_of_the_suite():
    """docs/environments.md lists what an environment may lack, in the suite's own words, and each
    file."""
    import adapters
    with open(os.path.join(ROOT, "docs", "environments.md"), encoding="utf-8") as text:
        page = text.read()
    table = page.partition("| feature | |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", table, re.M)) == adapters.FEATURES
    assert set(re.findall(r"`(test_\w+\.py)`", page)) >= {os.path.basename(file)
                                                          for file in FILES.values()}
