"""droste runs export: JSON lines that a stranger can read, whatever the record holds."""
import json
import os
import re
import resource
import sqlite3
import subprocess

import pytest
from droste_cli import DROSTE, PATIENCE, ROOT, droste, environment, fill, lines, recording

TURNS = ["""I look.
```repl
print(len(context)); reply = llm_query("Say it")
```""", """```repl
1/0
```
```repl
SUBMIT(answer={"it": reply})
```"""]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home whose record has an answered run and, newer, one without an answer."""
    home = tmp_path_factory.mktemp("home")
    (home / "c.txt").write_text("x" * 1234)
    model = recording(home, *TURNS, {"content": "said", "depth": 1})
    assert droste(home, "run", "--question", "What?", "--context", "c.txt", "--model",
                  model).returncode == 0
    model = recording(home, "no code", name="short.jsonl")
    assert droste(home, "run", "--question", "Unanswered?", "--model", model).returncode == 1
    return home


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A record with a tree of runs and a hostile one, written by the store's own functions."""
    home = tmp_path_factory.mktemp("filled")
    for kind in ("tree", "hostile"):
        fill(home, kind)
    return home


def ids(home):
    """The oldest first."""
    return [run["run"] for run in json.loads(droste(home, "runs", "ls", "--json").stdout)][::-1]


def schema():
    jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed")
    with open(os.path.join(ROOT, "docs", "record.schema.json")) as text:
        rules = json.load(text)
    jsonschema.Draft202012Validator.check_schema(rules)
    return jsonschema.Draft202012Validator(rules)


@pytest.mark.parametrize("which", ["home", "filled"])
def test_every_line_follows_the_schema(which, request):
    """Of real runs, of a tree, and of one whose every text is hostile."""
    rules = schema()
    exported = lines(droste(request.getfixturevalue(which), "runs", "export", "--all"))
    assert {line["type"] for line in exported} == {"run", "turn", "call", "cell", "end"}
    for line in exported:
        rules.validate(line)


def test_the_schema_refuses_what_is_no_line(home):
    """A member too many, one too few, one of another type: the schema is not satisfied by
    anything."""
    rules = schema()
    good = lines(droste(home, "runs", "export", ids(home)[0]))[0]
    for bad in ({**good, "more": 1}, {k: v for k, v in good.items() if k != "model"},
                {**good, "depth": "0"},
                {**good, "schema": 2}, {**good, "type": "step"}):
        assert not rules.is_valid(bad)
    assert rules.is_valid(good)


def test_the_page_of_the_format_names_every_member():
    """docs/record.md has what the schema has."""
    with open(os.path.join(ROOT, "docs", "record.md")) as text:
        page = text.read()
    with open(os.path.join(ROOT, "docs", "record.schema.json")) as text:
        rules = json.load(text)
    for kind in ("run", "turn", "call", "cell", "end"):
        section = re.search(r"^### `%s`.*?(?=^##|\Z)" % kind, page, re.M | re.S).group()
        general = page.partition("### ")[0]
        for member in rules["$defs"][kind]["properties"]:
            assert "`%s`" % member in section + general, (kind, member)


def test_the_lines_are_what_show_has(home):
    """The same members with the same values as `runs show --json`, in the same order."""
    run = ids(home)[0]
    shown = json.loads(droste(home, "runs", "show", run, "--json").stdout)
    exported = lines(droste(home, "runs", "export", run))
    assert [line["type"] for line in exported] == ["run", "turn", "call", "cell", "call", "turn",
                                                   "call", "cell", "cell",
                                                   "end"]
    for line in (exported[0], exported[-1]):
        for member in set(line) - {"schema", "type"}:
            assert line[member] == shown[member], member
    steps = [step for turn in shown["turns"] for step in turn["steps"]]
    recorded = [line for line in exported if line["type"] in ("call", "cell")]
    for step, line in zip(steps, recorded):
        assert {k: v for k, v in step.items() if k != "step"} == \
            {k: v for k, v in line.items() if k not in ("schema", "type", "run", "turn")}
    assert exported[-1]["answer"] == {"it": "said"} and exported[-1]["usage"]["cost"] is None
    assert exported[0]["context"]["bytes"] == 1234 and exported[4]["cell"] == exported[3]["id"]


def test_children_come_between_the_steps_of_their_parents(filled):
    """Each line names what came before it: its run, its turn, its cell; and ends come innermost
    first."""
    exported = lines(droste(filled, "runs", "export", "root"))
    begun, cells, ended = set(), set(), []
    for line in exported:
        if line["type"] == "run":
            assert line["parent"] is None or line["parent"] in begun
            assert line["parent_cell"] is None or line["parent_cell"] in cells
            begun.add(line["run"])
        else:
            assert line["run"] in begun and line["run"] not in ended
        if line["type"] == "cell":
            cells.add(line["id"])
        if line["type"] == "call":
            assert line["cell"] is None or line["cell"] in cells
        if line["type"] == "end":
            ended.append(line["run"])
    assert ended == ["grandchild", "child-one", "child-two", "root"]
    alone = lines(droste(filled, "runs", "export", "child-one"))
    assert {line["run"] for line in alone} == {"child-one", "grandchild"}


def test_several_runs_are_exported_as_they_are_named(home):
    """One behind the other; --all begins with the oldest."""
    older, newer = ids(home)
    def order(*words):
        return [line["run"] for line in lines(droste(home, "runs", "export", *words))
                if line["type"] == "run"]
    assert order(newer, older) == [newer, older]
    assert order("--all") == [older, newer]


def test_broken_values_become_good_lines(filled):
    """What is not UTF-8 is replaced, what is not JSON is a string and is said to be one."""
    exported = lines(droste(filled, "runs", "export", "hostile"))
    end = exported[-1]
    assert end["as_text"] == ["answer"] and end["answer"].startswith(
        "answer </script>") and "\ufffd" in end["answer"]
    call = next(line for line in exported if line["type"] == "call")
    assert call["as_text"] == ["request"] and "\x1b[31m" in call["reply"]


@pytest.mark.parametrize("character", ["é", "€", "🦊"])
def test_characters_are_whole_where_pieces_meet(tmp_path, character):
    """A long text of characters of several bytes comes out as it went in, wherever it is cut for
    reading."""
    reply = "ab" + character * 70001
    model = recording(tmp_path, reply)
    droste(tmp_path, "run", "--question", "q", "--model", model)
    (run,) = ids(tmp_path)
    call = next(line for line in lines(droste(tmp_path, "runs", "export", run))
                if line["type"] == "call")
    assert call["reply"] == reply
    page = droste(tmp_path, "runs", "export", run, "--format", "html").stdout
    call = next(json.loads(line) for line in page.splitlines() if '"type":"call"' in line)
    assert call["cut"] == {"reply": len(reply.encode())}
    assert len(reply) > len(call["reply"]) > 16000 and reply.startswith(call["reply"])


def test_what_has_not_ended_is_null(tmp_path):
    """In a run that was broken off, the end's members are null and not 0."""
    fill(tmp_path, "tree")
    with sqlite3.connect(tmp_path / "data" / "runs.db") as db:
        db.execute(
            "UPDATE runs SET status = 'running', ended_ms = NULL, "
            "owner_start = 1 WHERE id = 'root'")
        db.execute("UPDATE cells SET status = 'running', ended_ms = NULL WHERE run = 'root'")
    exported = lines(droste(tmp_path, "runs", "export", "root"))
    cell = next(line for line in exported if line["type"] == "cell" and line["run"] == "root")
    assert (cell["status"], cell["ended"], cell["seconds"],
            cell["calls"]) == ("interrupted", None, None, None)
    end = exported[-1]
    assert end["status"] == "interrupted" and end["ended"] is None and set(
        end["usage"].values()) == {None}
    for line in exported:
        schema().validate(line)


# ---- the file ----

def test_a_file_is_private_and_replaced_whole(home):
    """--out writes a file for its owner only, and replaces one that is there."""
    out = home / "runs.jsonl"
    out.write_text("old")
    os.chmod(out, 0o644)
    r = droste(home, "runs", "export", "--all", "--out", out)
    assert r.returncode == 0 and r.stdout == "" and r.stderr == ""
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_text() == droste(home, "runs", "export", "--all").stdout
    assert not [name for name in os.listdir(home) if name.startswith("runs.jsonl.")]


def test_a_damaged_record_leaves_the_old_file(tmp_path):
    """Where a value is damaged, the export fails and what was there stays."""
    fill(tmp_path, "tree")
    with sqlite3.connect(tmp_path / "data" / "runs.db") as db:
        db.execute(
            "UPDATE blobs SET data = x'00' WHERE hash = (SELECT reply FROM calls WHERE id = 3)")
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    for words in (["--out", out], ["--out", out, "--format", "html"], []):
        r = droste(tmp_path, "runs", "export", "root", *words)
        assert r.returncode == 1 and "is damaged or missing" in r.stderr and len(
            r.stderr.splitlines()) == 1
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["data", "out.jsonl"]


def test_what_cannot_be_written_is_an_error(home):
    """A full device, and a directory that is not there; a device that takes all is fine."""
    for out in ("/dev/full", "/nonexistent/x"):
        r = droste(home, "runs", "export", "--all", "--out", out)
        assert r.returncode == 1 and out in r.stderr and len(r.stderr.splitlines()) == 1
    with open("/dev/full", "w") as full:
        r = subprocess.run([DROSTE, "runs", "export", "--all"], env=environment(home), stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        assert r.returncode != 0 and len(r.stderr.splitlines()) == 1
    assert droste(home, "runs", "export", "--all", "--out", "/dev/null").returncode == 0


@pytest.mark.parametrize("format", ["jsonl", "html"])
def test_memory_does_not_grow_with_a_value(tmp_path, format):
    """A value of 256 MiB goes through a process that may have 160 MiB."""
    fill(tmp_path, "large", 256)
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20))
    out = tmp_path / "out"
    r = subprocess.run([DROSTE, "runs", "export", "large", "--format", format, "--out", out],
                       env=environment(tmp_path),
                       capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit)
    assert r.returncode == 0, r.stderr
    if format == "html":
        assert 64 << 10 < out.stat().st_size < 1 << 20
        return
    assert out.stat().st_size > 256 << 20
    with open(out, "rb") as text:
        text.readline()
        text.readline()
        cell = json.loads(text.readline())
        assert json.loads(text.readline())["type"] == "end"
    assert len(cell["stdout"]) == 256 << 20 and cell["stdout"].startswith("abcdefghij")


def test_usage_is_explained(home):
    """What is missing, too much, or makes no sense."""
    older = ids(home)[0]
    for words, says in (([], "name the runs"), ([older, "--all"], "name the runs"),
                        ([older, "--format", "xml"], "jsonl, html, otlp"),
                        ([older, "--batch", "results.jsonl"], "name the runs"),
                        (["--all", "--batch", "results.jsonl"], "name the runs"),
                        ([older, "--limit", "3"], "--limit"),
                        ([older, "--full"], "--full")):
        r = droste(home, "runs", "export", *words)
        assert r.returncode == 2 and r.stdout == "" and says in r.stderr
    r = droste(home, "runs", "export", "nosuch")
    assert r.returncode == 2 and "no run begins with" in r.stderr
    assert json.loads(droste(home, "runs", "export",
                             older[:-1]).stdout.splitlines()[0])["run"] == older
