"""The examples in the documentation work: each ```python block runs in a sandbox of its own."""
import json
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
PAGES = ["README.md", "docs/guest.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:]+)[^):]*\)")

# What the model of the examples says: the first line that fits, any number of times.
MODEL = [{"content": "4", "contains": "2 + 2", "depth": 1, "repeat": True},
         {"content": "yes", "depth": 1, "repeat": True}]

GUEST = """import builtins
ours = [name for name, value in vars(builtins).items()
        if getattr(value, "__module__", "") == "droste_guest"]
SUBMIT(names=sorted(ours))
"""


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as text:
        return text.read()


def blocks():
    for page in PAGES:
        text = read(page)
        for found in BLOCK.finditer(text):
            yield pytest.param(found[1], id="%s:%d" % (page, text.count("\n", 0, found.start()) + 1))


@pytest.fixture
def execute(tmp_path):
    model = tmp_path / "model.jsonl"
    model.write_text("".join(json.dumps(line) + "\n" for line in MODEL))

    def run(code, *flags):
        result = subprocess.run(
            [DROSTE, "exec", "--json", "--model", "replay:%s" % model, "-c", code, *flags],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True,
            timeout=60)
        assert result.stdout, result.stderr
        return json.loads(result.stdout)
    return run


@pytest.mark.parametrize("code", blocks())
def test_an_example_runs(execute, code):
    result = execute(code)
    assert result["status"] in ("ok", "submitted"), result["error"]
    for line, said in re.findall(r"^(print\(.*\)) +# (.*)$", code, re.M):
        assert said + "\n" == result["stdout"], line


@pytest.mark.parametrize("code", blocks())
def test_an_example_runs_under_rules_unless_it_starts_a_process(execute, code):
    result = execute(code, "--rules", "yes")
    if "subprocess" in code:
        assert result["error"]["type"] == "ImportError"
    else:
        assert result["status"] in ("ok", "submitted"), result["error"]


def test_every_name_of_the_guest_is_documented(execute):
    names = execute(GUEST)["submit"]["names"]
    assert len(names) > 10
    for page in PAGES:
        missing = [name for name in names if "`%s" % name not in read(page)]
        assert not missing, page


@pytest.mark.parametrize("page", PAGES + ["SECURITY.md", "docs/architecture.md", "docs/batch.md", "docs/record.md",
                                          "docs/answers.md"])
def test_links_lead_somewhere(page):
    here = os.path.dirname(os.path.join(ROOT, page))
    lost = [target for target in LINK.findall(read(page))
            if not os.path.exists(os.path.join(here, target))]
    assert not lost


def test_the_record_is_described_as_it_is():
    """Each table of schema.c with all its columns, in order."""
    page, schema = read("docs/architecture.md"), read("src/store/schema.c")
    for name, body in re.findall(r'CREATE TABLE (\w+) \("(.*?)\) STRICT', schema, re.S):
        columns = re.findall(r'"  (\w+) (?:TEXT|INTEGER|REAL|BLOB)', body)
        columns += re.findall(r"ALTER TABLE %s ADD COLUMN (\w+)" % name, schema)
        (row,) = re.findall(r"^\| `%s` \|.*" % name, page, re.M)
        assert re.findall(r"`(\w+)`", row.rpartition(" | ")[2]) == columns
