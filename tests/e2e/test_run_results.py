"""Rich results of the cells of runs: in events, in the record, in its exports."""
import base64
import json
import os
import subprocess

import pytest
from droste_cli import DROSTE, PATIENCE, droste, environment, lines, recording
from harness import wait_until
from test_export import schema

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")

SHOW = """```repl
import base64
class Table:
    def __repr__(self): return "a table"
    def _repr_html_(self): return "<table><tr><td>1</table>"
display(Table())
display({"image/png": base64.b64decode(%r), "application/x-own+json": {"a": [1, "\u00e9"]}}, raw=True)
```""" % base64.b64encode(PNG).decode()
SUBMIT = "```repl\nSUBMIT(answer=1)\n```"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a run whose first cell shows two results."""
    home = tmp_path_factory.mktemp("home")
    model = recording(home, SHOW, SUBMIT)
    assert droste(home, "run", "--question", "Show", "--model", model).returncode == 0
    return home


def droste_run(home):
    return json.loads(droste(home, "runs", "ls", "--json").stdout)[0]["run"]


def cells(home, *flags):
    return [line for line in lines(droste(home, "runs", "export", "--all", *flags))
            if line["type"] == "cell"]


def test_the_export_has_the_results(home):
    """Text as text, JSON as it is, bytes as base64, in order; a cell without results has []."""
    shown, submitted = cells(home)
    assert shown["results"] == [
        {"text/plain": "a table", "text/html": "<table><tr><td>1</table>"},
        {"image/png": base64.b64encode(PNG).decode(),
         "application/x-own+json": {"a": [1, "\u00e9"]}}]
    assert submitted["results"] == [] and shown["stdout"].startswith("a table\n")
    rules = schema()
    for line in lines(droste(home, "runs", "export", "--all")):
        rules.validate(line)


def test_show_as_json_has_the_results(home):
    shown = json.loads(droste(home, "runs", "show", droste_run(home), "--json").stdout)
    steps = [step for turn in shown["turns"] for step in turn["steps"] if step["step"] == "cell"]
    assert steps[0]["results"] == cells(home)[0]["results"]


@pytest.mark.parametrize("size", [1, 2, 3, 65535, 65536, 65537, 200000])
def test_bytes_of_any_size_become_base64(tmp_path, size):
    """Also where the record gives them in several pieces that are not multiples of three bytes."""
    code = "display({'image/png': bytes(i * i %% 251 for i in range(%d))}, raw=True)" % size
    model = recording(tmp_path, "```repl\n%s\n```" % code, SUBMIT)
    assert droste(tmp_path, "run", "--question", "Show", "--model", model).returncode == 0
    data = base64.b64decode(cells(tmp_path)[0]["results"][0]["image/png"], validate=True)
    assert data == bytes(i * i % 251 for i in range(size))


def test_results_leave_room_in_the_record(tmp_path):
    """Results beyond a quarter of the record are left out with a note, and the run answers; smaller
    ones are kept."""
    code = "display({'image/png': bytes(%d)}, raw=True)"
    model = recording(tmp_path,
                      *("```repl\n%s\n```" % (code % n) for n in (100000, 300000, 100000)), SUBMIT)
    done = droste(tmp_path, "run", "--question", "Show", "--model", model, "--max-record-size",
                  "1M")
    assert done.returncode == 0, done.stderr
    first, second, third, _ = (cell["results"] for cell in cells(tmp_path))
    assert len(first[0]["image/png"]) > 100000 and len(third[0]["image/png"]) > 100000
    assert second == [{"text/plain":
                       "[1 form of results, 300000 bytes, not recorded: the record may have no "
                       "more results (max-results-size)]"}]


@pytest.mark.parametrize("limit, kept", [("400000", 2), ("350000", 1)])
def test_a_run_has_a_limit_of_its_own_for_results(tmp_path, limit, kept):
    """max-results-size takes the place of the quarter: for all cells of a run together."""
    model = recording(tmp_path, *["```repl\ndisplay({'image/png': bytes(200000)}, raw=True)\n```"] *
                      2, SUBMIT)
    done = droste(tmp_path, "run", "--question", "Show", "--model", model, "--max-record-size",
                  "1M", "--max-results-size", limit)
    assert done.returncode == 0, done.stderr
    shown = [cell["results"] for cell in cells(tmp_path)[:2]]
    assert sum("image/png" in one for results in shown for one in results) == kept
    assert [one["text/plain"] for results in shown for one in results if "text/plain" in one] == [
        "[1 form of results, 200000 bytes, not recorded: the record may have no more results "
        "(max-results-size)]"] * (2 - kept)


def test_the_page_has_images_whole_or_not_at_all(tmp_path):
    """A page has an image of 900 kB, and says of one of 1.1 MB only how large it is."""
    code = "for n in (900000, 1100000): display({'image/png': bytes(n)}, raw=True)"
    model = recording(tmp_path, "```repl\n%s\n```" % code, SUBMIT)
    assert droste(tmp_path, "run", "--question", "Show", "--model", model).returncode == 0
    page = droste(tmp_path, "runs", "export", droste_run(tmp_path), "--format", "html").stdout
    line = next(json.loads(text) for text in page.splitlines() if '"type":"cell"' in text[:60])
    assert len(line["results"][0]["image/png"]) == 1200000 and line["results"][1] == {
        "image/png": None}
    assert line["cut"] == {"results.1.image/png": 1100000}


def test_show_names_the_results(home):
    """Each with its types, sizes and a text, in the order in which the cell showed them."""
    shown = droste(home, "runs", "show", droste_run(home)).stdout
    assert [line for line in shown.splitlines() if line.startswith("  * ")] == [
        "  * 1.1.1 text/plain 7 bytes, text/html 24 bytes: a table",
        "  * 1.1.2 image/png %d bytes, application/x-own+json 16 bytes: {\"a\": [1, \"é\"]}"
        % len(PNG)]


def test_show_saves_the_results(home):
    """As files named by turn, cell and result; nothing else is written. A form without an extension
    of its own has its number in the name."""
    done = droste(home, "runs", "show", droste_run(home), "--save-results", "out/of/run")
    assert done.returncode == 0, done.stderr
    files = {path.name: path.read_bytes() for path in (home / "out/of/run").iterdir()}
    assert files == {"1.1.1.txt": b"a table", "1.1.1.html": b"<table><tr><td>1</table>",
                     "1.1.2.png": PNG,
                     "1.1.2-2.json": '{"a": [1, "é"]}'.encode()}


def test_results_that_cannot_be_saved_are_an_error(home):
    """A file in place of the directory is named; so is a full disk."""
    (home / "taken").write_text("")
    done = droste(home, "runs", "show", droste_run(home), "--save-results", "taken")
    assert done.returncode == 1 and "taken" in done.stderr and not done.stdout
    (home / "full").mkdir()
    (home / "full/1.1.1.txt").symlink_to("/dev/full")
    done = droste(home, "runs", "show", droste_run(home), "--save-results", "full")
    assert done.returncode == 2 and "1.1.1.txt" in done.stderr


def test_results_are_saved_by_show_only(home):
    done = droste(home, "runs", "ls", "--save-results", "out")
    assert done.returncode == 2 and "--save-results" in done.stderr


def names(path):
    return sorted(os.listdir(path))


def test_exec_saves_results_as_they_are_shown(tmp_path):
    """The cell waits for the file of its first result, so it was written before the cell ended; an
    update and clear_output() replace and remove files."""
    shared = tmp_path / "shared"
    shared.mkdir()
    fifo = shared / "go"
    os.mkfifo(fifo)
    code = ("display({'image/png': b'x'}, raw=True, display_id='a')\n"
            "open(%r).read()\nupdate_display({'text/html': 'y'}, raw=True, display_id='a')\n"
            "open(%r).read()\nclear_output()\ndisplay(1)\n[2]" % (str(fifo), str(fifo)))
    cell = subprocess.Popen([DROSTE, "exec", "--read", shared, "--save-results", "out", "-c",
                             code], cwd=tmp_path, env=environment(tmp_path),
                            stdout=subprocess.DEVNULL)
    try:
        for name in ("1.png", "1.html"):
            wait_until(lambda: (tmp_path / "out").exists() and names(tmp_path / "out") == [
                name], PATIENCE)
            with open(fifo, "w"):
                pass
        assert cell.wait(PATIENCE) == 0
    finally:
        cell.kill()
        cell.wait()
    assert names(tmp_path / "out") == ["1.txt", "2.json", "2.txt"]
