"""scripts/check-prose and scripts/check-format: what they find, and what they leave alone."""
import os
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDE = "word " * 21
HIDDEN = "A file is read once. Who" + " opens it waits."     # a test's own text is not prose
ENGINE = "The sh" + "elf keeps them."


def check(*arguments, cwd=ROOT):
    return subprocess.run([os.path.join(cwd, "scripts", "check-prose"), *arguments],
                          capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name, text", [
    ("a.md", WIDE), ("a.c", "/* %s\n */\n" % WIDE), ("a.c", "int x; // %s\n" % WIDE),
    ("a.h", "/*\n * %s\n */\n" % WIDE), ("a.py", '"""%s"""\n' % WIDE), ("a.py", "# %s\n" % WIDE),
    ("a.md", HIDDEN), ("a.c", "/* %s */\n" % HIDDEN), ("a.py", "# %s\n" % HIDDEN),
    ("a.md", ENGINE), ("a.c", "static int pa" + "ce_set(void);\n")])
def test_prose_that_does_not_conform_is_found(name, text, tmp_path):
    """Wide lines, hidden actors and private words, in Markdown and in comments."""
    (tmp_path / name).write_text(text)
    done = check(str(tmp_path / name))
    assert done.returncode == 1 and "/%s:" % name in done.stdout, done.stdout


@pytest.mark.parametrize("name, text", [
    ("a.md", "| %s |\n" % WIDE), ("a.md", "```sh\n%s\n```\n" % WIDE),
    ("a.md", "[a link](https://example.org/%s)\n" % ("x" * 100)),
    ("a.c", 'const char *s = "%s";\n' % WIDE), ("a.py", "x = '%s'\n" % WIDE),
    ("a.md", "Who opens a file? The reader does."), ("a.md", "`Who` is a name, who knows."),
    ("a.md", "The engine that is idle is used again."),
    ("a.c", 'static int space; /* at its own pace */ const char *s = "pace";\n')])
def test_tables_code_and_plain_sentences_are_left_alone(name, text, tmp_path):
    """The twins: what looks alike and is allowed."""
    (tmp_path / name).write_text(text)
    done = check(str(tmp_path / name))
    assert done.returncode == 0, done.stdout


def test_every_file_of_the_repository_is_checked(tmp_path):
    """Without arguments: tracked files and new ones, but not those that git ignores."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(os.path.join(ROOT, "scripts", "check-prose"), tmp_path / "scripts")
    (tmp_path / "new.md").write_text("A plain line.\n")
    (tmp_path / "ignored.md").write_text(WIDE)
    (tmp_path / ".gitignore").write_text("ignored.md\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert check(cwd=str(tmp_path)).returncode == 0
    (tmp_path / "new.md").write_text(WIDE)
    done = check(cwd=str(tmp_path))
    assert done.returncode == 1 and "new.md:1: " in done.stdout and "ignored" not in done.stdout


@pytest.mark.parametrize("text, wide", [
    ("x = [%s]\n" % ("1, " * 40), True), ("x = 1  # %s\n" % WIDE, True),
    ('def f():\n    """%s"""\n' % WIDE, True),
    ("x = '%s'\n" % ("x" * 100), True), ("x = [1, 2]\n", False),
    ('x = """\n%s\n"""\n' % WIDE, False), ("# https://example.org/%s\n" % ("x" * 100), True)])
def test_wide_lines_of_python_are_found(text, wide, tmp_path):
    """Code, comments and docstrings, but not the lines of a string of several lines."""
    (tmp_path / "a.py").write_text(text)
    done = subprocess.run([os.path.join(ROOT, "scripts", "check-width"), str(tmp_path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == wide and ("a.py:" in done.stdout) == wide, done.stdout


def test_the_formatter_is_asked(tmp_path):
    """A source that is not formatted fails the check by its name; its formatted twin passes."""
    if not shutil.which("clang-format-14"):
        pytest.skip("clang-format-14 is not installed")
    for directory in ("scripts", "src", "guest", "include", "tests", "bench", "examples"):
        (tmp_path / directory).mkdir()
    for name in ("scripts/check-format", ".clang-format"):
        shutil.copy(os.path.join(ROOT, name), tmp_path / name)
    (tmp_path / "src" / "a.c").write_text("int x;\n")
    program = [str(tmp_path / "scripts" / "check-format")]
    assert subprocess.run(program, capture_output=True, timeout=60).returncode == 0
    (tmp_path / "src" / "a.c").write_text("int  x ;\n")
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "src/a.c: not formatted" in done.stdout
