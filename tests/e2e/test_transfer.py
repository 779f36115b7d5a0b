"""droste exec --put, --get and --artifacts: files to and from a sandbox."""
import os

import pytest

CODE = """
import os
os.makedirs("out/deep")
data = open("in.csv").read()
open("out/deep/b.png", "w").write(data * 3)
open("out/a.png", "w").write("a")
open("out/a.txt", "w").write("not wanted")
os.mkfifo("out/fifo.png")
os.symlink("/etc/passwd", "out/link.png")
"""


@pytest.fixture
def home(droste):
    with open(os.path.join(droste.home, "data.csv"), "w") as file:
        file.write("1,2\n")
    return droste.home


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def files_below(path):
    return sorted(os.path.relpath(os.path.join(at, name), path) for at, _, names in os.walk(path)
                  for name in names)


def test_files_go_in_before_the_code_and_out_after_it(droste, home):
    """Artifacts are regular files by pattern, each once; a single file goes where it is told."""
    result = droste("exec", "-c", CODE, "--put", "data.csv:in.csv", "--get", "out/a.txt:taken.txt",
                    "--artifacts", "out/**/*.png", "--artifacts", "out/a*", "--artifacts-dir",
                    "saved/here")
    assert result.status == 0, result
    assert read(home, "taken.txt") == "not wanted"
    found = files_below(os.path.join(home, "saved/here"))
    # The sandbox has a passwd of its own, which the link shows.
    assert [name for name in found
            if "link" not in name] == ["out/a.png", "out/a.txt", "out/deep/b.png"]
    assert read(home, "saved/here/out/deep/b.png") == "1,2\n" * 3
    assert "saved saved/here/out/deep/b.png (12 bytes)\n" in result.err
    for name in found:
        assert not os.path.islink(os.path.join(home, "saved/here", name))


def test_artifacts_of_code_that_raises_are_saved(droste, home):
    """The exit status is that of the code."""
    result = droste("exec", "-c", CODE + "1 / 0", "--put", "data.csv:in.csv", "--artifacts",
                    "/tmp/out/a.png")
    assert result.status == 1
    assert files_below(os.path.join(home, "artifacts")) == ["tmp/out/a.png"]


def test_an_existing_file_is_replaced_or_left_alone(droste, home):
    """A file that is not there leaves the target as it was, and says so."""
    result = droste("exec", "-c", "open('a', 'w').write('new')", "--get", "none:data.csv")
    assert result.status != 0 and "none" in result.complaint and "No such file" in result.err
    assert read(home, "data.csv") == "1,2\n"
    result = droste("exec", "-c", "open('a', 'w').write('new')", "--get", "a:data.csv")
    assert result.status == 0 and read(home, "data.csv") == "new"
    assert not [name for name in os.listdir(home) if name.startswith("data.csv.")]


@pytest.mark.parametrize("words, message", [
    (["--put", "data.csv"], "LOCAL:PATH"), (["--put", "none.csv:a"], "none.csv"),
    (["--put", "data.csv:/none/a"], "/none/a")])
def test_what_cannot_be_sent_stops_before_the_code(droste, home, words, message):
    result = droste("exec", "-c", "print('ran')", *words)
    assert result.status != 0 and message in result.complaint and result.out == ""


def test_too_many_artifacts_are_refused_by_number(droste, home):
    """1,001 files are refused, 1,000 are saved."""
    code = "import os\nos.mkdir('o')\nfor i in range(%d): open('o/%%d' %% i, 'w').close()"
    result = droste("exec", "-c", code % 1001, "--artifacts", "o/*")
    assert result.status != 0 and "1000 files" in result.complaint
    assert not os.path.exists(os.path.join(home, "artifacts"))
    result = droste("exec", "-c", code % 1000, "--artifacts", "o/*")
    assert result.status == 0 and len(files_below(os.path.join(home, "artifacts"))) == 1000
