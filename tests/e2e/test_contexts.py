"""Several contexts: their values and names in the guest, what the model is told of them, and what
the record keeps."""
import json
import os

import pytest

from harness import answered, repl, system_prompts, wait_until, when, write_replay


@pytest.fixture
def files(tmp_path):
    """A text, a JSON list, and a directory."""
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.json").write_text("[1, 2]")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f.txt").write_text("in d")
    return tmp_path


def three(files):
    return ["--context", files / "a.txt", "--context", "numbers=%s" % (files / "b.json"),
            "--context", "folder=%s" % (files / "d")]


ALL = [["alpha"] * 2, [[1, 2]] * 2, [{"f.txt": "in d"}] * 2]
NAMES = "[[context, context_0], [context_1, numbers], [context_2, folder]]"


def test_guest_has_each_under_its_names(ask, files):
    """By number, the first as `context`, and by the name that was given."""
    answered(ask([repl("SUBMIT(%s)" % NAMES)], *three(files)), ALL)


def test_one_context_has_both_names(ask, files):
    """As before, and there is no context_1."""
    answered(ask([repl("SUBMIT([context, context_0, 'context_1' in globals()])")], "--context",
                 files / "a.txt"),
             ["alpha", "alpha", False])


def test_the_prompt_names_each_context_and_contains_none(ask, files, droste):
    """Name, type, size and source; the text of a file that is longer than its preview is not
    there."""
    (files / "a.txt").write_text("alpha " * 50 + "omega")
    answered(
        ask([when(
        "There are 3 contexts:\n- `context_0`, also `context`, is a str of 305 characters, from ",
        repl("SUBMIT(1)"))], *three(files)), 1)
    system = system_prompts(droste)[0]
    assert "`context_0`, `context_1` and so on" in system
    exported = droste("runs", "export", "--all").out
    assert "- `context_1`, also `numbers`, is a list of 2 items, from " in exported
    assert ("- `context_2`, also `folder`, is a dict of 1 keys whose values have 4 characters in "
            "all, from ") in exported
    assert "omega" not in exported and "in d" not in exported


def test_the_prompt_of_one_context_names_no_others(ask, files, droste):
    """The twin: with one, there is no word of numbers."""
    answered(ask([when("`context`, also `a`, is a str", repl("SUBMIT(a)"))], "--context",
                 "a=%s" % (files / "a.txt")), "alpha")
    assert "context_" not in system_prompts(droste)[0]


def test_file_with_that_name_wins(ask, files):
    """NAME=PATH is a file where there is one that is called so; else it names one."""
    (files / "x=y.txt").write_text("file")
    (files / "y.txt").write_text("named")
    answered(ask([repl("SUBMIT([context, 'x' in globals()])")], "--context", "x=y.txt", cwd=files),
             ["file", False])
    (files / "x=y.txt").unlink()
    answered(ask([repl("SUBMIT([context, x])")], "--context", "x=y.txt", cwd=files),
             ["named", "named"])


def test_standard_input_may_be_one_of_them(droste, replay, files):
    """With a name or without; twice it is refused."""
    model = replay(repl("SUBMIT([context, piped])"))
    result = droste("run", "--question", "q", "--json", "--model", model, "--context",
                    files / "a.txt",
                    "--context", "piped=-", input="from a pipe")
    answered(result, ["alpha", "from a pipe"])
    twice = droste("run", "--question", "q", "--model", model, "--context", "-", "--context", "p=-",
                   input="x")
    assert twice.status == 2 and "one context only" in twice.complaint


@pytest.mark.parametrize("name", ["context", "context_7", "history", "answer", "_x", "1a", "a-b",
                                  "class", "é"])
def test_name_that_cannot_be_is_refused(ask, files, name, droste):
    """By name, before anything is run; a path that only looks so is one that does not exist."""
    result = ask([repl("SUBMIT(1)")], "--context", "%s=%s" % (name, files / "a.txt"))
    assert result.status == 2 and name in result.complaint
    assert not os.path.exists(droste.record.path)


def test_every_name_of_the_guest_is_reserved(ask, files, droste):
    """What Droste itself puts into the guest cannot be the name of a context; but those of the
    helpers can."""
    code = ("import builtins\nSUBMIT(names=[n for n, v in vars(builtins).items()\n"
            "                    if getattr(v, '__module__', '') == 'droste_guest'])")
    names = droste.cell(code, "--helpers", "no")["submit"]["names"]
    helpers = set(droste.cell(code)["submit"]["names"]) - set(names)
    assert len(names) > 10 and len(helpers) > 5
    for name in names:
        assert "Droste's names" in ask(["x"], "--context",
                                       "%s=%s" % (name, files / "a.txt")).complaint
    for name in helpers:
        assert droste.cell("SUBMIT(x=%s)" % name, "--context",
                           "%s=%s" % (name, files / "a.txt"))["submit"] == {"x": "alpha"}


def test_two_of_one_name_are_refused(ask, files):
    """And so is a path that is not there; both say which."""
    path = files / "a.txt"
    assert "called 'x'" in ask(["x"], "--context", "x=%s" % path, "--context",
                               "x=%s" % path).complaint
    assert "missing.txt" in ask(["x"], "--context", path, "--context", "x=missing.txt").complaint


def test_new_session_has_all_again(ask, files):
    """After the death of a sandbox, under all names."""
    answered(ask([repl("import os; os._exit(1)"),
                  when("the contexts are there again", repl("SUBMIT(%s)" % NAMES))], *three(files)),
             ALL)


def test_a_rolled_back_session_has_them_still(ask, files):
    """With checkpoint=auto, a block that kills the sandbox is undone: the model is told, and goes
    on with what it had before."""
    answered(ask([repl("x = 1", "x = 2; import os; os._exit(1)"),
                  when("What it did to variables is undone", repl("SUBMIT([x, %s])" % NAMES))],
                 "--checkpoint", "auto", *three(files)),
             [1, ALL])


def test_children_have_their_own(ask, files):
    """A child's context is what its parent gives, a list or a dict too; of the parent's it has
    none."""
    code = "SUBMIT([rlm_query('q', context=[context_1, {'a': context}]), rlm_query('q')])"
    child = repl(
        "SUBMIT([context, context_0 if context else '', 'context_1' in globals(), 'numbers' in "
        "globals()])")
    answered(ask([repl(code), {"content": child, "depth": 1}, {"content": child, "depth": 1}],
                 *three(files)),
             [[[[1, 2], {"a": "alpha"}]] * 2 + [False, False], ["", "", False, False]])


def test_questions_of_a_conversation_bring_theirs(ask, droste, tmp_path, files):
    """The next numbers are theirs, with their names; those of the question before are there too."""
    first = answered(ask([repl("SUBMIT(1)")], "--context", files / "a.txt", "--context",
                         "numbers=%s" % (files / "b.json")), 1)
    notice = "There is one more context, `context_2`, also `folder`: a dict of 1 keys"
    result = droste("run", "--continue", first["run"], "--question", "And now?", "--json",
                    "--context", "folder=%s" % (files / "d"),
                    "--model", write_replay(tmp_path / "next.jsonl",
                                            when(notice, repl("SUBMIT(%s)" % NAMES))))
    answered(result, ALL)


def test_exec_has_them(droste, files):
    """As in a run."""
    assert droste.cell("SUBMIT(all=%s)" % NAMES, *three(files))["submit"]["all"] == ALL


def test_repl_has_them(droste, files):
    """And a new session in the place of one that died has them again."""
    result = droste("repl", *three(files),
                    input="import os\nprint(%s)\nos._exit(1)\nprint(numbers, context_2)\n" % NAMES)
    assert result.out == "%s\n[1, 2] {'f.txt': 'in d'}\n" % ALL
    assert "loaded again" in result.err


def test_record_has_each(ask, files, droste):
    """A list of what is known of them, with their names; `runs show` has a line of it."""
    answered(ask([repl("SUBMIT(1)")], *three(files)), 1)
    run = droste.record.run["id"]
    line = json.loads(droste("runs", "export", run).out.splitlines()[0])
    assert [(c.get("name"), c["bytes"]) for c in line["context"]] == [(None, 5), ("numbers", 6),
                                                                      ("folder", 25)]
    assert len({c["sha256"] for c in line["context"]}) == 3
    assert "numbers = " in droste("runs", "show", run).out


@pytest.fixture
def interrupted(droste, serve, files):
    """A run that was killed while its code waited for `hang`, with its own contexts and one from a
    pipe."""
    server = serve(turns=[repl("llm_query('hang')\nSUBMIT([%s, context_3, piped])" % NAMES)])
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    pipe = files / "pipe"
    pipe.write_text("from a pipe")
    with open(pipe) as f:
        process = droste.start("run", "--question", "q", "--json", "--model", "turns",
                               "--sub-model", "digest",
                               *three(files), "--context", "piped=-", env=env, stdin=f)
    wait_until(lambda: server.stats()["requests"] == 2, what="the call")
    process.kill()
    process.communicate()
    return lambda: droste("runs", "resume", droste.record.run["id"], "--json",
                          env={"OPENAI_API_KEY": "k"})


def test_resumed_run_has_all_again(interrupted):
    """Those of files are read again, the one of the pipe is in the record."""
    answered(interrupted(), [ALL, "from a pipe", "from a pipe"])


def test_resumed_run_wants_each_as_it_was(interrupted, files, droste):
    """One that changed is named, and the run stays as it is; when it is back, the run goes on."""
    (files / "b.json").write_text("[3]")
    result = interrupted()
    assert result.status == 2 and "b.json" in result.complaint and "has changed" in result.complaint
    (files / "b.json").write_text("[1, 2]")
    answered(interrupted(), [ALL, "from a pipe", "from a pipe"])


# ---- what a context may be ----

@pytest.mark.parametrize("command", ["exec", "run", "batch"])
def test_a_pipe_or_a_device_is_no_context(droste, replay, tmp_path, command):
    """A FIFO would be waited for, for ever where nobody writes, and /dev/zero read until the memory
    ends: both are refused by name, and in a batch only the task that names one."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "good.txt").write_text("good")
    model = ["--model", replay({"content": repl("SUBMIT(context[:4])"), "repeat": True})]
    for path in (tmp_path / "fifo", "/dev/zero"):
        if command == "batch":
            (tmp_path / "tasks").write_text("".join(
                json.dumps({"id": id, "question": "q", "context": str(p)}) + "\n"
                for id, p in (("bad", path), ("ok", tmp_path / "good.txt"))))
            out = tmp_path / ("out-%s" % os.path.basename(path))
            droste("batch", tmp_path / "tasks", "--out", out, *model)
            lines = {line["id"]: line for line in map(json.loads, out.read_text().splitlines())}
            assert lines["ok"]["answer"] == "good" and "give a regular file" in json.dumps(
                lines["bad"])
            continue
        words = ["-c", "1"] if command == "exec" else ["--question", "q"]
        result = droste(command, *words, "--context", path, *model)
        assert result.status == 2
        assert "give a regular file or a directory, or - for standard input" in result.err


def test_standard_input_may_be_a_pipe(droste):
    """The allowed twin."""
    result = droste("exec", "-c", "SUBMIT(context)", "--context", "-", "--json", input="piped")
    assert json.loads(result.out)["submit"] == {"output": "piped"}


def test_a_context_has_a_size(droste, tmp_path):
    """A sparse file of a terabyte is refused before any of it is read, and so is standard input
    where it becomes too long, or the sum of the files of a directory; what is just small enough
    goes."""
    (tmp_path / "d").mkdir()
    for name in ("a", "b"):
        (tmp_path / "d" / name).write_bytes(b"x" * 3000)
    (tmp_path / "just").write_bytes(b"x" * 4096)
    with open(tmp_path / "sparse", "wb") as f:
        f.truncate(1 << 40)
    refused = droste("exec", "-c", "1", "--context", tmp_path / "sparse")
    assert refused.status == 2
    assert "larger than the 4096 MiB that context-size allows" in refused.err
    small = ["exec", "-c", "SUBMIT(len(context))", "--json", "--context-size", "4K", "--context"]
    assert json.loads(droste(*small, tmp_path / "just").out)["submit"] == {"output": 4096}
    assert json.loads(droste(*small, "-", input="x" * 4096).out)["submit"] == {"output": 4096}
    for path, text in (("-", "x" * 4097), (tmp_path / "d", None)):
        result = droste(*small, path, input=text)
        assert result.status == 2 and "context-size" in result.err + result.out
