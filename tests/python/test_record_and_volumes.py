"""droste.runs, volumes, images and packages say what the command line says."""
import json
import os
import subprocess
import tempfile

import oci
import pytest
from wheels import make_wheel

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
    printed = json.loads(cli("runs", "ls", "--json", "--database", database))
    printed = printed["runs"] if isinstance(printed, dict) else printed
    found = droste.runs.ls(database=database)
    assert [run.question for run in found] == ["second\nline?", "first?"]
    assert [run.id for run in found] == [one.get("run") or one["id"] for one in printed]
    for run, one in zip(found, printed):
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


def test_runs_are_exported_as_by_the_command_line(database, tmp_path):
    """Lines and pages, one run or all, as text or as a file; prefixes name a run once."""
    second, first = (run.id for run in droste.runs.ls(database=database))
    for words, call in ((["--all"], {"all": True}), (["--all", "--format", "html"],
                                                     {"all": True, "format": "html"})):
        printed = cli("runs", "export", *words, "--database", database)
        assert droste.runs.export(**call, database=database) == printed
        path = tmp_path / "files" / "out"
        path.parent.mkdir(exist_ok=True)
        path.write_text("old")
        assert droste.runs.export(**call, out=path, database=database) is None
        assert path.read_text() == printed and os.listdir(path.parent) == ["out"]
    lines = droste.runs.export(first, first[:-1], database=database).splitlines()
    assert {json.loads(line)["run"] for line in lines} == {first}
    assert second in droste.runs.export(all=True, database=database)


def test_what_cannot_be_exported(database, tmp_path):
    """Neither or both of a name and all, formats and batches that are none; the file stays."""
    run = droste.runs.ls(database=database)[0].id
    path = tmp_path / "out"
    path.write_text("old")
    for error, names, words in ((droste.ArgumentError, [], {}),
                                (droste.ArgumentError, [run], {"all": True}),
                                (droste.ArgumentError, [run], {"format": "pdf"}),
                                (droste.NotFoundError, ["nothing"], {}),
                                (droste.NotFoundError, [], {"batch": "b.jsonl"})):
        with pytest.raises(error):
            droste.runs.export(*names, **words, out=path, database=database)
    with pytest.raises(droste.IOFailed):
        droste.runs.export(run, out=tmp_path / "no" / "out", database=database)
    assert path.read_text() == "old"


def test_a_batch_is_exported_by_its_results(tmp_path):
    """With the grades, which only its results file has, on the page."""
    database, results = tmp_path / "runs.db", tmp_path / "results.jsonl"
    reply = "```repl\nSUBMIT(answer=3)\n```"
    (tmp_path / "model.jsonl").write_text(json.dumps({"content": reply, "repeat": True}) + "\n")
    done = droste.batch([{"id": "a", "question": "?", "expected": 3},
                         {"id": "b", "question": "?"}], results, grader="exact",
                        model="replay:%s" % (tmp_path / "model.jsonl"), database=database)
    assert done.passed == 1
    page = droste.runs.export(batch=results, format="html", database=database)
    assert '"type":"grade"' in page and "2 runs of results.jsonl" in page
    assert '"task":"a"' in droste.runs.export(batch="results.js", database=database)


def test_rich_results_and_artifacts_of_a_run_are_read(tmp_path):
    """Each form with its type; files with their contents, which are saved below a directory."""
    def model(messages):
        return """```repl
display({"text/plain": "t", "image/png": b"\\x89PNG", "application/json": {"a": [1]}}, raw=True)
display(2)
import os; os.makedirs("out"); open("out/a.txt", "w").write("hello")
SUBMIT(answer=1)
```"""
    database = tmp_path / "runs.db"
    done = droste.RLM(model, database=database, artifacts=["out/*"],
                      artifacts_dir=tmp_path / "saved").run("?")
    cell = next(step.fields for step in droste.runs.steps(done.run, results=True, database=database)
                if step.kind == "cell")
    first, second = cell["results"]
    assert (first.text, first.png, first.json) == ("t", b"\x89PNG", {"a": [1]})
    assert second.bundle == {"text/plain": "2"}
    assert all("results" not in step.fields
               for step in droste.runs.steps(done.run, database=database))
    [found] = droste.runs.artifacts(done.run, database=database)
    assert found[:2] + found[3:] == ("out/a.txt", 5, b"hello")
    assert found.sha256 == done.artifacts[0].sha256
    path = found.save(tmp_path / "again")
    assert path == str(tmp_path / "again" / "out" / "a.txt") and open(path).read() == "hello"
    for bad in (found._replace(name="../a"), found._replace(data=None)):
        with pytest.raises(droste.ArgumentError):
            bad.save(tmp_path / "again")


def test_the_machine_is_described_as_by_the_command_line(tmp_path):
    """Environments, their features, the checks, and the prompts."""
    printed = json.loads(cli("env", "ls", "--json"))
    assert [one._asdict() for one in droste.host.environments()] == printed
    for row in json.loads(cli("env", "show", "docker", "--json")):
        assert droste.host.Feature(row["feature"], row["settings"].split(), row["supported"],
                                   row["text"]) in droste.host.features("docker")
    with pytest.raises(droste.ArgumentError):
        droste.host.features("nowhere")
    with pytest.raises(droste.UnsupportedError):
        droste.host.collect_orphans(env="local")
    prompts = {prompt.name: prompt.text for prompt in droste.host.prompts()}
    assert prompts["system"] + "\n" == cli("prompts", "system")
    assert all(name in prompts for name in
               (line.split()[0] for line in cli("prompts").splitlines()))


def test_the_machine_is_checked_as_by_doctor(tmp_path):
    """The same checks with the same states, with settings as keywords."""
    found = droste.host.diagnose(python="/nowhere/python")
    assert [one.state for one in found if one.name == "python"] == ["missing"]
    printed = json.loads(cli("doctor", "--json"))
    assert [(one.name, one.state) for one in droste.host.diagnose(python="/usr/bin/python3")] == [
        (one["name"], one["state"]) for one in printed["checks"]]


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


def test_snapshots_and_limits_are_those_of_the_command_line(tmp_path):
    """Made by one and seen by the other; restored, removed, and refused under a name in use."""
    root, volumes = {"volume_root": tmp_path / "volumes"}, droste.volumes
    where = ("--volume-root", root["volume_root"])
    (tmp_path / "a").write_bytes(b"12345")
    volumes.create("mine", **root)
    volumes.put("mine", tmp_path / "a", "a", **root)
    assert volumes.snapshots("mine", **root) == []
    assert volumes.snapshot("mine", "first", **root) == 5
    cli("volume", "snapshot", "mine", "second", *where)
    found = volumes.snapshots("mine", **root)
    assert [one.name for one in found] == ["first", "second"]
    assert all(one.size >= 5 and one.files >= 1 for one in found)
    volumes.delete("mine", "a", **root)
    assert volumes.restore("mine", "first", **root) == 5
    assert volumes.read("mine", "a", **root) == b"12345"
    with pytest.raises(droste.ArgumentError):
        volumes.snapshot("mine", "first", **root)
    with pytest.raises(droste.NotFoundError):
        volumes.restore("mine", "third", **root)
    volumes.remove_snapshot("mine", "first", **root)
    assert [one.name for one in volumes.snapshots("mine", **root)] == ["second"]
    with pytest.raises(droste.NotFoundError):
        volumes.remove_snapshot("mine", "first", **root)
    changed = volumes.limit("mine", size="1M", files=50, **root)
    assert (changed.size_limit, changed.files_limit) == (1 << 20, 50)
    assert volumes.limit("mine", files=60, **root)[2:] == (1 << 20, 60)
    with pytest.raises(droste.ArgumentError):
        volumes.limit("mine", size="much", **root)
    assert volumes.usage("mine", **root).size_limit == 1 << 20


def test_a_volume_in_use_makes_no_snapshot(tmp_path):
    """A session holds it; afterwards the same call works."""
    root = {"volume_root": tmp_path / "volumes"}
    with droste.Interpreter(volume_name="mine", **root) as interp:
        assert interp.execute("open('/data/a', 'w').write('1')").ok
        with pytest.raises(droste.ArgumentError):
            droste.volumes.snapshot("mine", "now", **root)
    assert droste.volumes.snapshot("mine", "now", **root) == 1


def test_a_run_in_progress_is_followed_to_its_end(tmp_path):
    """Another thread runs it: its steps come while they are in progress, and again at their end."""
    import threading
    path, goes_on = tmp_path / "runs.db", threading.Event()

    def model(messages):
        if len(messages) > 1:
            return "```repl\nprint(llm_query('é?'))\nSUBMIT(answer=[1, 'é'])\n```"
        goes_on.wait(600)
        return "answer"
    started = []
    thread = threading.Thread(target=lambda: [
        started.append(event.text) for event in droste.RLM(model, database=path).stream(
            "followed?", context="x") if event.kind == "started"])
    thread.start()
    try:
        while not path.exists() or not droste.runs.ls(database=path):
            thread.join(0.05)
        seen = []
        for step in droste.runs.follow(droste.runs.ls(database=path)[0].id, database=path):
            seen.append(step)
            if step.kind == "call" and step.fields["kind"] == "sub" and not goes_on.is_set():
                assert step.fields["status"] == "running" and "é?" in str(step.fields["request"])
                goes_on.set()
    finally:
        goes_on.set()
        thread.join()
    subs = [step.fields for step in seen if step.kind == "call" and step.fields["kind"] == "sub"]
    assert [one["status"] for one in subs] == ["running", "ok"] and "answer" in subs[1]["reply"]
    assert seen[-1].kind == "end" and seen[-1].fields["status"] == "answered"
    assert seen[-1].fields["answer"] == [1, "é"]
    cells = [step.fields for step in seen if step.kind == "cell"]
    assert cells[-1]["standard_output"] == "answer\n"


def test_a_run_that_has_ended_is_followed_once(database):
    """Every step once, then the end: by both functions, and by the beginning of its id."""
    import asyncio
    run = droste.runs.ls(database=database)[0]
    steps = droste.runs.steps(run.id, database=database)
    found = list(droste.runs.follow(run.id, database=database))
    assert found[:-1] == steps and found[-1] == droste.runs.Step("end", run._asdict())

    async def all_of():
        return [step async for step in droste.runs.afollow(run.id, database=database)]
    assert asyncio.run(all_of()) == found


def test_what_cannot_be_followed(database, tmp_path):
    with pytest.raises(droste.NotFoundError):
        next(droste.runs.follow("no-such-run", database=database))
    with pytest.raises(droste.NotFoundError):
        next(droste.runs.follow("any", database=tmp_path / "none.db"))
    for interval in (0, -1, float("nan")):
        with pytest.raises(droste.ArgumentError):
            next(droste.runs.follow(droste.runs.ls(database=database)[0].id, interval=interval,
                                    database=database))


def test_old_runs_are_collected(database, tmp_path):
    """By number and by age, as `droste runs gc` does; without either, no run goes."""
    newest, oldest = droste.runs.ls(database=database)
    assert droste.runs.gc(database=database).runs == 0
    assert droste.runs.gc(older=3600, database=database).runs == 0
    assert droste.runs.gc(older=0, keep=2, database=database).runs == 0
    freed = droste.runs.gc(keep=1, database=database)
    assert (freed.runs, freed.interrupted) == (1, 0)
    assert [run.id for run in droste.runs.ls(database=database)] == [newest.id]
    assert droste.runs.gc(keep=0, database=database).runs == 1
    assert droste.runs.gc(database=tmp_path / "none.db").runs == 0
    for wrong in ({"older": -1}, {"keep": -1}, {"older": float("nan")}):
        with pytest.raises(droste.ArgumentError):
            droste.runs.gc(database=database, **wrong)


def test_images_are_those_of_the_command_line(tmp_path, monkeypatch):
    """Pulled, listed with the same facts, found by a name and by an id, and removed."""
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path / "data"))
    layers = [oci.layer([("é", "text")])]
    digest = oci.write_layout(tmp_path / "layout", layers)
    name = "oci:%s" % (tmp_path / "layout")
    assert droste.images.ls() == []
    image = droste.images.pull(name)
    (printed,) = json.loads(cli("image", "ls", "--json"))
    assert (image.id, image.names, image.size, image.files) == (digest, [name], 4, 1)
    assert {key: printed[key] for key in ("id", "path", "names", "bytes", "files")} == {
        "id": image.id, "path": image.path, "names": image.names, "bytes": image.size,
        "files": image.files}
    assert image.config["rootfs"]["diff_ids"] == ["sha256:" + oci.sha256(layers[0])]
    assert not image.in_use and not image.damaged and image.made > 0
    assert droste.images.ls() == [droste.images.get(digest[:8])] == [droste.images.get(name)]
    os.unlink(os.path.join(os.path.dirname(image.path), "config.json"))
    assert droste.images.get(digest).damaged and droste.images.get(digest).config is None
    droste.images.remove(digest)
    for missing in (droste.images.get, droste.images.remove):
        with pytest.raises(droste.NotFoundError, match="no image"):
            missing(digest)
    with pytest.raises(droste.ProtocolError):
        (tmp_path / "layout" / "index.json").write_text("[]")
        droste.images.pull(name)


def test_package_sets_are_those_of_the_command_line(tmp_path, monkeypatch):
    """Built once, listed with the same facts, removed by the beginning of an id, and collected."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheels = {"find_links": str(tmp_path), "package_index": "none"}
    for directory in (tmp_path, *tmp_path.parents):     # the build's sandbox gets here
        if str(directory) == tempfile.gettempdir():
            break
        directory.chmod(0o755)
    make_wheel(str(tmp_path), "hello", {"hello.py": "word = 'hello'\n"})
    assert droste.packages.ls() == []
    path = droste.packages.build(packages=["hello"], **wheels)
    assert droste.packages.build(packages=["hello"], **wheels) == path
    (one,) = droste.packages.ls()
    (printed,) = json.loads(cli("packages", "ls", "--json"))
    assert (one.path, one.packages, one.damaged) == (path, ["hello==1.0"], False)
    assert (one.id, one.python, one.size, one.files) == (
        printed["id"], printed["python"], printed["bytes"], printed["files"])
    assert droste.packages.gc() == (0, 0) and droste.packages.ls() != []
    droste.packages.remove(one.id[:8])
    with pytest.raises(droste.NotFoundError):
        droste.packages.remove(one.id)
    droste.packages.build(packages=["hello"], **wheels)
    assert droste.packages.gc(0).sets == 1 and droste.packages.ls() == []
    with pytest.raises(droste.ArgumentError):
        droste.packages.build()
