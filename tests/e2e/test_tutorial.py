"""The tutorial runs as printed: its files, and each command with its output."""
import os
import re
import subprocess

import pytest

from harness import BUILD, PYTHON, ROOT

PAGE = os.path.join(ROOT, "docs", "tutorial.md")
FILE = re.compile(r"^```\w+ (\S+\.\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n\$ ([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def text():
    with open(PAGE, encoding="utf-8") as page:
        return page.read()


@pytest.fixture
def place(tmp_path):
    """A directory with the files of the page, and the programs that its commands name."""
    for name, content in FILE.findall(text()):
        (tmp_path / name).write_text(content)
    (tmp_path / "bin").mkdir()
    for program, target in (("droste", os.path.join(BUILD, "droste")), ("python3", PYTHON)):
        os.symlink(target, tmp_path / "bin" / program)
    return tmp_path


@pytest.mark.parametrize("command, expected", [pytest.param(*found, id=found[0][:50])
                                               for found in CONSOLE.findall(text())])
def test_a_command_prints_what_the_page_shows(place, command, expected):
    """Standard output and error together, word for word."""
    env = {"PATH": "%s:/usr/bin:/bin" % (place / "bin"), "HOME": str(place), "LANG": "C.UTF-8",
           "DROSTE_PYTHON": PYTHON,
           "PYTHONPATH": os.path.join(ROOT, "python"),
           "DROSTE_LIBRARY": os.path.join(BUILD, "libdroste.so")}
    done = subprocess.run(["sh", "-c", command], cwd=place, env=env, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.stdout == expected


def test_the_page_has_commands_and_files():
    """The patterns above still find what the page is made of."""
    assert len(CONSOLE.findall(text())) >= 9
    assert [name for name, _ in FILE.findall(text())] == ["notes.txt", "model.jsonl", "program.py"]
