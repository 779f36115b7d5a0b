"""scripts/check-prose and scripts/check-format: what they find, and what they leave alone."""
import os
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDE = "word " * 21
HIDDEN = "A file is read once. Who" + " opens it waits."     # a test's own text is no prose
ENGINE = "The sh" + "elf keeps them."


def check(*arguments, cwd=ROOT):
    return subprocess.run([os.path.join(cwd, "scripts", "check-prose"), *arguments],
                          capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name, text", [
    ("a.md", WIDE), ("a.c", "/* %s\n */\n" % WIDE), ("a.c", "int x; // %s\n" % WIDE),
    ("a.h", "/*\n * %s\n */\n" % WIDE), ("a.py", '"""%s"""\n' % WIDE), ("a.py", "# %s\n" % WIDE),
    ("a.md", HIDDEN), ("a.c", "/* %s */\n" % HIDDEN), ("a.py", "# %s\n" % HIDDEN),
    ("a.md", ENGINE)])
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
    ("a.md", "The engine that is idle is used again.")])
def test_tables_code_and_plain_sentences_are_left_alone(name, text, tmp_path):
    """The twins: what looks alike and is allowed."""
    (tmp_path / name).write_text(text)
    done = check(str(tmp_path / name))
    assert done.returncode == 0, done.stdout


@pytest.fixture
def repository(tmp_path):
    """A repository with the script, one file with an exception, and one without."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(os.path.join(ROOT, "scripts", "check-prose"), tmp_path / "scripts")
    (tmp_path / "old.md").write_text(WIDE + "\n" + WIDE + "\n")
    (tmp_path / "new.md").write_text("A plain line.\n")
    (tmp_path / "scripts" / "prose-exceptions").write_text("# The list.\n   2 old.md\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_exceptions_may_only_shrink(repository):
    """A listed file may keep its findings; one more fails, as does a file that is not listed."""
    assert check(cwd=str(repository)).returncode == 0
    (repository / "old.md").write_text((WIDE + "\n") * 3)
    assert check(cwd=str(repository)).returncode == 1
    (repository / "old.md").write_text("")
    (repository / "new.md").write_text(WIDE)
    assert check(cwd=str(repository)).returncode == 1


def test_an_update_lowers_and_never_raises(repository):
    """--update follows a file that moved, keeps what is left, and adds nothing."""
    listed = repository / "scripts" / "prose-exceptions"
    (repository / "below").mkdir()
    os.rename(repository / "old.md", repository / "below" / "old.md")
    (repository / "below" / "old.md").write_text(WIDE)
    (repository / "new.md").write_text(WIDE)
    assert check("--update", cwd=str(repository)).returncode == 1
    assert listed.read_text() == "# The list.\n   1 below/old.md\n"


def test_the_formatter_is_asked(tmp_path):
    """A source that is not formatted fails the check by its name; its formatted twin passes."""
    if not shutil.which("clang-format-14"):
        pytest.skip("clang-format-14 is not installed")
    for directory in ("scripts", "src", "guest", "include", "tests", "bench", "examples"):
        (tmp_path / directory).mkdir()
    for name in ("scripts/check-format", ".clang-format"):
        shutil.copy(os.path.join(ROOT, name), tmp_path / name)
    (tmp_path / "scripts" / "format-exceptions").write_text("# The list.\nsrc/listed.c\n")
    (tmp_path / "src" / "listed.c").write_text("int   x ;\n")
    (tmp_path / "src" / "a.c").write_text("int x;\n")
    program = [str(tmp_path / "scripts" / "check-format")]
    assert subprocess.run(program, capture_output=True, timeout=60).returncode == 0
    (tmp_path / "src" / "a.c").write_text("int  x ;\n")
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "src/a.c: not formatted" in done.stdout
    assert "listed" not in done.stdout
