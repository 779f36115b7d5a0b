"""The cookbook runs as printed: each page's data, command, model's code and answer.

A fence's second word says what a block is: the name of a file to write, `setup` (a command to run
first), `run` (the command of the page), `turn` (the code of the model's next reply), `answers` (the
replies to questions of that code, in the format of docs/replay.md), `result` (the answer).
"""
import ast
import json
import os
import re
import subprocess
import sysconfig

import pytest

from harness import BUILD, PYTHON, ROOT

PAGES = os.path.join(ROOT, "docs", "cookbook")
BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Page:
    """The blocks of a page, by what they are."""

    def __init__(self, name):
        with open(os.path.join(PAGES, name), encoding="utf-8") as page:
            self.blocks = [(kind, text) for _, kind, text in BLOCK.findall(page.read())]

    def of(self, kind):
        return [text for each, text in self.blocks if each == kind]

    def files(self):
        return [(kind, text) for kind, text in self.blocks if "." in kind]

    def model(self):
        """The page's model as a recording: a reply with the code of each turn, then the answers."""
        replies = [json.dumps({"content": "```repl\n%s```" % code}) for code in self.of("turn")]
        return "\n".join(replies) + "\n" + "".join(self.of("answers"))


@pytest.fixture
def follow(tmp_path):
    """Does what a page says, and gives the answer that it comes to."""
    def run(name, **environment):
        page = Page(name)
        assert len(page.of("turn")) >= 3 and len(page.of("run")) == 1
        for path, text in page.files():
            (tmp_path / path).write_text(text)
        (tmp_path / "model.jsonl").write_text(page.model())
        programs = tmp_path / "bin"
        programs.mkdir()
        for program, place in (("droste", os.path.join(BUILD, "droste")), ("python3", PYTHON)):
            os.symlink(place, programs / program)
        env = {"PATH": "%s:/usr/bin:/bin" % programs, "HOME": str(tmp_path), "LANG": "C.UTF-8",
               "DROSTE_HOME": str(tmp_path / "home"), "DROSTE_PYTHON": PYTHON,
               "DROSTE_MODEL": "replay:%s" % (tmp_path / "model.jsonl"), **environment}
        for command in page.of("setup"):
            subprocess.run(["sh", "-ec", command], cwd=tmp_path, env=env, check=True, timeout=300)
        done = subprocess.run(["sh", "-ec", page.of("run")[0]], cwd=tmp_path, env=env, text=True,
                              capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        for expected in page.of("result"):
            assert answer == json.loads(expected)
        return answer
    return run


def shell_calls(source):
    """The lines of pydoc.py and mailcap.py that start a shell, but not with a constant."""
    found = set()
    for name in ("pydoc.py", "mailcap.py"):
        with open(os.path.join(source, name), encoding="utf-8") as file:
            text = file.read()
        for node in ast.walk(ast.parse(text)):
            called = (re.match(r"os\.(system|popen)|subprocess\.", ast.unparse(node))
                      if isinstance(node, ast.Call) else None)
            if (called and (called[1] or "shell=True" in ast.unparse(node))
                and not isinstance(node.args[0], ast.Constant)):
                found.add((name, node.lineno))
    return found


def test_a_question_about_a_code_base(follow):
    """The run finds the calls that a reading by other means finds, with the model's reasons."""
    answer = follow("codebase.md")
    assert {(site["path"], site["line"])
            for site in answer} == shell_calls(sysconfig.get_path("stdlib"))
    assert answer and all("pager" in site["reason"] or "mailcap" in site["reason"]
                          for site in answer)


def test_an_incident_in_logs(follow):
    """The page's answer, over a log of 20 MB instead of a gigabyte."""
    assert follow("logs.md", SIZE="20M")["began"] == "03:17"


def test_a_report_with_citations(follow, tmp_path):
    """Every quotation is in its source; the one that the model invented is not in the answer."""
    answer = follow("report.md")
    for citation in answer["citations"]:
        assert citation["quote"] in (tmp_path / "minutes" / citation["path"]).read_text()
    assert "encrypted" in (tmp_path / "model.jsonl").read_text() and "encrypted" not in json.dumps(
        answer)


def test_data_analysis_with_pandas(follow):
    """The page's answer, with the pandas of this machine."""
    if subprocess.run([PYTHON, "-c", "import pandas"], capture_output=True).returncode != 0:
        pytest.skip("pandas is not installed")
    assert follow("pandas.md")[0]["region"] == "east"


def test_every_page_is_run():
    """No page of the cookbook is without a test here."""
    with open(__file__, encoding="utf-8") as tests:
        text = tests.read()
    pages = set(os.listdir(PAGES)) - {"index.md"}
    assert len(pages) == 4 and all('follow("%s"' % page in text for page in pages)
