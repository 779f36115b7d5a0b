"""droste.runs and droste.volumes say what the command line says."""
import json
import os
import subprocess

import pytest

import droste

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")


def cli(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


@pytest.fixture
def database(tmp_path):
    """A record with two runs, one of which asks a model from its code."""
    def model(messages):
        if len(messages) > 1:
            return "```repl\nprint(llm_query('é?'))\nSUBMIT(answer=[1, 'é'])\n```"
        return "re: " + messages[-1]["content"]
    path = tmp_path / "runs.db"
    for question in ("first?", "second\nline?"):
        droste.RLM(model, database=path).run(question, context="x")
    return path


def test_runs_are_those_of_the_command_line(database):
    """Order, ids, status, usage and answers."""
    told = json.loads(cli("runs", "ls", "--json", "--database", database))
    told = told["runs"] if isinstance(told, dict) else told
    found = droste.runs.ls(database=database)
    assert [run.question for run in found] == ["second\nline?", "first?"]
    assert [run.id for run in found] == [one["run"] if "run" in one else one["id"] for one in told]
    for run, one in zip(found, told):
        assert (run.status, run.model,
                run.question) == (one["status"], one["model"], one["question"])
        assert run.answer == [1, "é"] and run.status == "answered" and run.ended >= run.started > 0
    assert [run.id for run in droste.runs.ls(limit=1, database=database)] == [found[0].id]
    assert droste.runs.ls(status="error", database=database) == []
    assert droste.runs.get(found[1].id[:-1], database=database) == found[1]


def test_steps_are_in_order(database):
    """A turn, the loop's call, the cell, and the cell's own call, with texts and JSON."""
    run = droste.runs.ls(database=database)[0]
    steps = droste.runs.steps(run.id, database=database)
    kinds = [step.kind for step in steps]
    assert kinds[0] == "turn" and kinds.count("cell") == 1 and kinds.count("call") == 2
    cell = next(step.fields for step in steps if step.kind == "cell")
    assert cell["submit"] == {"answer": [1, "é"]} and cell["standard_output"] == "re: é?\n"
    call = [step.fields for step in steps if step.kind == "call"][-1]
    assert call["kind"] == "sub" and call["reply"] and call["ended"] >= call["started"]


def test_a_run_is_removed(database, tmp_path):
    first = droste.runs.ls(database=database)[-1]
    assert droste.runs.remove(first.id, database=database) == 1
    assert [run.question for run in droste.runs.ls(database=database)] == ["second\nline?"]
    with pytest.raises(droste.NotFoundError):
        droste.runs.get(first.id, database=database)
    assert droste.runs.ls(database=tmp_path / "none.db") == []
    with pytest.raises(droste.NotFoundError):
        droste.runs.find("a", database=tmp_path / "none.db")


def test_volumes_are_those_of_the_command_line(tmp_path):
    """Created, filled, listed, read, copied and removed by either."""
    root, volumes = {"volume_root": tmp_path / "volumes"}, droste.volumes
    (tmp_path / "a").write_bytes(b"12345")
    volumes.create("mine", **root)
    assert volumes.put("mine", tmp_path / "a", "d/a", **root) == 5
    assert volumes.read("mine", "d/a", **root) == b"12345"
    cli("volume", "put", "mine", tmp_path / "a", "d/b", "--volume-root", root["volume_root"])
    found = volumes.ls("mine", depth=2, **root)
    assert [(one.name, one.size) for one in found if one.is_file] == [("d/a", 5), ("d/b", 5)]
    assert volumes.get("mine", "d", tmp_path / "copy", **root) == 10
    assert sorted(os.listdir(tmp_path / "copy")) == ["a", "b"]
    assert volumes.usage("mine", **root).files >= 3
    assert volumes.usage("mine", **root).size_limit == 10 << 30
    volumes.delete("mine", "d", **root)
    assert volumes.ls("mine", **root) == [] and volumes.names(**root) == ["mine"]
    with pytest.raises(droste.NotFoundError):
        volumes.read("other", "a", **root)
    volumes.remove("mine", **root)
    assert volumes.names(**root) == []
