"""The page about the package: its examples run, and print what their comments say; its names are
there."""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# README's ```python blocks are for the guest (tests/e2e/test_docs.py).
PAGES = {"docs/python.md": re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE),
         "README.md": re.compile(r"^```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)}
SAID = re.compile(r"print\(.*\)\s+# (.+)$|^\s*print\(.*\s{2,}# (.+)$", re.MULTILINE)


def examples():
    for page, block in PAGES.items():
        with open(os.path.join(ROOT, page)) as text:
            for number, code in enumerate(block.findall(text.read()), 1):
                yield pytest.param(code, id="%s-%d" % (page, number))


@pytest.mark.parametrize("code", examples())
def test_an_example_prints_what_it_says(code):
    if code.startswith("# needs dspy"):
        pytest.importorskip("dspy", reason="dspy is not installed in this interpreter")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")})
    assert done.returncode == 0, done.stderr
    expected = [a or b for a, b in SAID.findall(code)]
    assert done.stdout.splitlines() == expected


def test_the_page_names_what_results_have():
    """Every public name of a result and of a completion is on the page."""
    from droste import Completion, Result
    with open(os.path.join(ROOT, "docs", "python.md")) as page:
        text = page.read()
    names = [n for kind in (Result,) for n in vars(kind)
             if not n.startswith("_")] + ["answer", "response", "status", "cost"]
    missing = [n for n in names if "`%s`" % n not in text and "`%s()`" % n not in text
               and n != "done"]
    assert not missing and Completion.__doc__
