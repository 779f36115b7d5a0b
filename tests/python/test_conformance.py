"""The conformance suite (tests/session) finds what is wrong with an environment: each of tests/session/wrong.py has
one defect, and the tests that are to find it fail there, by name. A test that has nothing to do with it passes.
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
            found.update((name, "tests/session/" + file) for name in re.findall(r"^def (test_\w+)\(", text.read(), re.M))
    return found


FILES = files()


def outcomes(environment, names, tmp_path):
    """{name: what became of it}, of tests as `found_by` names them, in one environment."""
    nodes = {}      # as pytest names them
    for name in names:
        test, _, case = name.rstrip("]").partition("[")
        nodes["%s::%s" % (FILES[test], test) + ("[%s-%s]" % (environment, case) if case else "")] = name
    said = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist",
                           "--basetemp", str(tmp_path / "tmp"), "--environment", environment, *nodes],
                          cwd=ROOT, capture_output=True, text=True, timeout=120).stdout
    found = {}
    for status, node in re.findall(r"^(PASSED|FAILED|ERROR) (\S+::\w+\[.*?\])(?: - .*)?$", said, re.M):
        found.setdefault(nodes.get(node) or nodes[node.partition("[")[0]], set()).add(status)
    assert set(names) == set(found), said
    return found


@pytest.mark.parametrize("defect", wrong.DEFECTS)
def test_a_defect_is_found_by_the_test_of_its_sentence(defect, tmp_path):
    """Every test that is named fails in the wrong environment, and the control passes. The twin is the suite itself,
    which is run without a defect."""
    found = outcomes("wrong:" + defect, [*wrong.DEFECTS[defect].found_by, CONTROL], tmp_path)
    assert found.pop(CONTROL) == {"PASSED"}
    assert {name: statuses for name, statuses in found.items() if "FAILED" not in statuses} == {}
