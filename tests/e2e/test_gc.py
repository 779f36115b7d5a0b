"""What `runs rm` and `runs gc` leave of real runs with children: everything of the others, and
nothing of theirs."""
import json

import pytest

from harness import finish, repl, wait_until
from lives import Life, begun, kill

# A root, two children with a context that is also the root's, and a child of each; their values are
# those of every other such run.
TREE = {
    "": [repl("a = rlm_query_batched(['child', 'child'], context=context, model='turns-child')"),
         repl("SUBMIT([a, llm_query('end', model='digest')])")],
    "child": [repl("SUBMIT([rlm_query('grand', context=context, model='turns-grand')])")],
    "grand": [repl("SUBMIT([len(context), llm_query('same', model='digest')])")],
}
RUNS = 5

TABLES = (("runs", "id"), ("turns", "run"), ("cells", "run"), ("calls", "run"))


@pytest.fixture
def lives(droste, serve, tmp_path):
    """Runs of one server, all with the same context."""
    return Life(droste, serve(turns=TREE), tmp_path)


def exported(droste, run):
    result = droste("runs", "export", run)
    assert result.status == 0, result
    return result.out


def tree_of(droste, root):
    """The ids of a run and those below it."""
    return {json.loads(line)["run"] for line in exported(droste, root).splitlines()}


def left_of(droste, ids):
    """Rows that belong to one of these runs."""
    return [row for table, column in TABLES
            for row in droste.record.rows("SELECT %s AS run FROM %s" % (column, table))
            if row["run"] in ids]


def unreferenced(droste):
    """Values that no row refers to, whichever columns there are."""
    record = droste.record
    columns = record.rows(
        "SELECT m.name AS own, f.\"from\" AS at FROM sqlite_schema m, "
        "pragma_foreign_key_list(m.name) f"
        " WHERE m.type = 'table' AND f.\"table\" = 'blobs'")
    assert len(columns) > 10
    used = {row["v"] for c in columns
            for row in record.rows("SELECT %s AS v FROM %s" % (c["at"], c["own"]))}
    return [row["hash"] for row in record.rows("SELECT hash FROM blobs") if row["hash"] not in used]


def test_a_removed_tree_takes_its_own_and_leaves_what_others_share(droste, lives):
    """Three runs with the same texts: one is removed with its children, the second stays as it was
    to the byte, the third can still be gone on with; then the collector takes the second, too."""
    first, second = (lives.whole().json["run"] for _ in range(2))
    assert len(tree_of(droste, first)) == RUNS
    before, own = exported(droste, second), tree_of(droste, first)
    blobs = {row["hash"] for row in droste.record.rows("SELECT hash FROM blobs")}
    removed = droste("runs", "rm", first, "--json").json
    assert removed["runs"] == RUNS and left_of(droste, own) == []
    assert exported(droste,
                    second) == before and droste.record.is_whole and unreferenced(droste) == []
    gone = blobs - {row["hash"] for row in droste.record.rows("SELECT hash FROM blobs")}
    # nearly all are the second's as well
    assert len(gone) == removed["values"] < len(blobs) / 2
    third = lives.whole().json["run"]
    own = tree_of(droste, second)
    collected = droste("runs", "gc", "--keep", "1", "--json").json
    assert collected["runs"] == RUNS and left_of(droste, own) == [] and unreferenced(droste) == []
    assert tree_of(droste, third) == {run["id"]
                                      for run in droste.record.runs} and droste.record.is_whole


def test_a_run_that_can_go_on_keeps_what_it_needs(droste, serve, tmp_path):
    """Killed in a child, with a context from a pipe: the collector ends it and its children as
    interrupted, takes the run beside it with the same texts, and it is resumed all the same, paying
    for nothing twice."""
    turns = {"": [
        repl("a = rlm_query('child', context=context, model='turns-child')\nSUBMIT([a, context])")],
             "child":
             [
        repl(
        "SUBMIT([context, llm_query('once', model='digest'), len(llm_query('hang', "
        "model='digest'))])")]}
    server = serve(turns=turns)
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    prices = tmp_path / "prices"
    prices.write_text("* 1 1\n")
    pipe = tmp_path / "pipe"
    pipe.write_text("from a pipe")
    words = ["run", "--question", "q", "--json", "--model", "turns", "--context", "-", "--prices",
             prices]

    def begin():
        with open(pipe) as f:
            return droste.start(*words, env=env, stdin=f)

    def in_flight(runs):
        calls = droste.record.calls if begun(droste) else []
        return (len(calls) == 4 * runs // 2 and calls[-1]["status"] == "running"
                and calls[-1]["key"] in server.stats()["idempotency"])

    process = begin()
    wait_until(lambda: in_flight(2), what="the first")
    kill(process)
    first = droste.record.runs[0]["id"]
    assert droste("runs", "resume", first, env=env).status == 0
    process = begin()
    wait_until(lambda: in_flight(4), what="the second")
    kill(process)
    second = [run["id"] for run in droste.record.runs if not run["parent"]][1]
    before = server.stats()["requests"]
    collected = droste("runs", "gc", "--keep", "1", "--json").json
    assert (collected["runs"], collected["interrupted"]) == (2, 2)
    ended = droste.record.runs
    assert [run["status"] for run in ended] == ["interrupted"] * 2 and unreferenced(droste) == []
    assert [run["calls"] for run in ended] == [4, 3] and droste.record.is_whole
    result = droste("runs", "resume", second, "--json", env=env)
    assert result.status == 0 and result.json["answer"][1] == "from a pipe" and result.json[
        "answer"][0][2] == 12, result
    assert server.stats()["requests"] == before + 1 and len(result.json["resumed"]["repeated"]) == 1


def test_what_goes_on_is_kept_with_all_its_children(droste, serve):
    """A child that is at work keeps the whole tree, whose other children have ended; afterwards it
    goes."""
    server = serve(turns={
        "": [repl("a = rlm_query('child', model='turns-child')\nb = llm_query('hang')\nSUBMIT(1)")],
        "child": [repl("SUBMIT(1)")]})
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    process = droste.start("run", "--question", "q", "--model", "turns", env=env)
    wait_until(lambda: begun(droste) and len(droste.record.calls) == 3, what="the call")
    ids = [run["id"] for run in droste.record.runs]
    assert [run["status"] for run in droste.record.runs] == ["running", "answered"]
    assert droste("runs", "gc", "--keep", "0", "--json").json["runs"] == 0
    assert droste("runs", "rm", ids[0]).status == 2 and len(left_of(droste, set(ids))) > 5
    kill(process)
    finish(process)
    assert droste("runs", "gc", "--keep", "0", "--json").json["runs"] == 2
    assert left_of(droste, set(ids)) == [] and droste.record.rows("SELECT * FROM blobs") == []
