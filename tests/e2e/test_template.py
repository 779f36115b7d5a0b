"""Stored templates: what is stored, what starts from them, and what is refused."""
import json
import os
import signal
import stat

import pytest

from harness import repl, wait_until

ROWS = "rows = [int(line) for line in log.splitlines()]"


@pytest.fixture
def stored(droste, tmp_path):
    """The program with a template `logs`, whose making leaves a line in no file."""
    (tmp_path / "app.log").write_text("".join("%d\n" % n for n in range(1000)))
    created = droste("template", "create", "logs", "--preload", "decimal", "--setup-code",
                     "import fractions", "--context", "log=app.log", "--cell", ROWS,
                     cwd=str(tmp_path))
    assert (created.status, created.out) == (0, "created the template logs\n")
    return droste


def path_of(droste, name):
    return os.path.join(droste.env["DROSTE_HOME"], "templates", name + ".json")


def test_what_is_stored_is_data(stored, tmp_path):
    """JSON that its owner alone can read, with absolute paths and no memory; nothing else is
    there."""
    path = path_of(stored, "logs")
    assert json.load(open(path)) == {
        "version": 1, "settings": {"preload": ["decimal"], "setup-code": "import fractions"},
        "contexts": ["log=%s/app.log" % tmp_path], "cells": [ROWS]}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(path)) == ["logs.json"]
    assert stored("template", "show", "logs").out == open(path).read()


def test_names_are_listed_and_removed(stored):
    assert stored("template", "create", "a.b-c", "--cell", "x = 1").status == 0
    assert stored("template", "ls").out == "a.b-c\nlogs\n"
    assert json.loads(stored("template", "ls", "--json").out) == ["a.b-c", "logs"]
    assert stored("template", "rm", "logs").status == 0
    assert stored("template", "ls").out == "a.b-c\n"
    missing = stored("template", "rm", "logs")
    assert missing.status == 2 and "there is no template 'logs'" in missing.err


def test_without_any_the_list_is_empty(droste):
    assert (droste("template", "ls").out, droste("template", "ls", "--json").out) == ("", "[]\n")


def test_a_template_is_replaced_only_on_request(stored):
    again = stored("template", "create", "logs", "--cell", "x = 1")
    assert again.status == 2 and "already; --replace" in again.err
    assert stored("template", "create", "logs", "--cell", "x = 1", "--replace").status == 0
    assert stored("exec", "--template", "logs", "-c", "print(x)").out == "1\n"


@pytest.mark.parametrize("isolation", ["full", "light", "landlock", "process"])
def test_sandboxes_start_with_all_of_it(stored, isolation):
    """Variables, modules of setup code and preloaded ones; what a session changes is its own."""
    code = ("import sys; print(sum(rows), fractions.Fraction(1, 2), 'decimal' in sys.modules); "
            "rows.clear()")
    for _ in range(2):
        assert stored("exec", "--isolation", isolation, "--template", "logs", "-c",
                      code).out == "499500 1/2 True\n"


def test_the_recipe_is_executed_once_for_a_batch(droste, replay, tmp_path):
    """Sessions of one process share what it made: here, the time at which it was made."""
    made = droste("template", "create", "t", "--cell", "import time; made = time.time_ns()")
    assert made.status == 0
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"id": str(n), "question": "q"}) + "\n" for n in range(4)))
    model = replay(*[repl("SUBMIT(made)")] * 4)
    done = droste("batch", str(tasks), "--out", str(tmp_path / "results.jsonl"), "--template", "t",
                  "--model", model)
    assert done.status == 0, done.err
    results = [json.loads(line) for line in open(tmp_path / "results.jsonl")]
    assert len(results) == 4 and len({r["answer"] for r in results}) == 1


def test_a_run_starts_from_it_and_is_resumed_only_with_the_same(stored, replay):
    """The record names the template with its digest."""
    model = replay(repl("SUBMIT(len(rows))"))
    run = stored("run", "-q", "q", "--template", "logs", "--model", model, "--json")
    assert run.json["answer"] == 1000
    rows = stored.record.rows("SELECT data FROM blobs JOIN runs ON hash = settings")
    settings = json.loads(rows[0]["data"])
    assert settings["template"].startswith("logs@") and settings["preload"] == ["decimal"]


def test_flags_take_precedence_over_its_settings(stored):
    assert stored("template", "create", "small", "--memory", "64M", "--cell", "x = 1").status == 0
    limits = [json.loads(stored("exec", "--json", "-c", "1", "--template", "small", *flags).out)
            ["resources"]["limits"]["memory"]["value"] for flags in ((), ("--memory", "128M"))]
    assert limits == [64 << 20, 128 << 20]


def test_repl_and_serve_take_it(stored):
    assert "1000" in stored("repl", "--template", "logs", input="len(rows)\n").out
    refused = stored("serve", "--template", "nothing", "--listen", "127.0.0.1:0")
    assert refused.status == 2 and "there is no template 'nothing'" in refused.err


@pytest.mark.parametrize("words, message", [
    (["create", "x", "--cell", "1 / 0"], "cell 1 ended with 'error': ZeroDivisionError"),
    (["create", "x", "--cell", "import os; os.kill(os.getpid(), 9)"], "signal 9"),
    (["create", "x", "--setup-code", "nowhere"], "NameError"),
    (["create", "x", "--model", "gpt-5"], "templates have no setting 'model'"),
    (["create", "x", "--execute-timeout", "1"], "no setting 'execute-timeout'"),
    (["create", "x", "--context", "-"], "cannot keep standard input"),
    (["create", "x", "--context", "/nowhere/at/all"], "/nowhere/at/all"),
    (["create", "x", "--cell", "import threading; threading.Thread(target=threading.Event().wait,"
      " daemon=True).start()"], "thread"),
    (["create", "../x", "--cell", "1"], "use at most 64 letters"),
    (["create", ".x", "--cell", "1"], "use at most 64 letters"),
    (["show", "no/such"], "use at most 64 letters"),
    (["show", "none"], "there is no template 'none'"),
    (["ls", "--cell", "1"], "--cell does not apply to `template ls`"),
    (["make"], "expected one of: create, ls, show, rm"),
])
def test_what_is_refused_stores_nothing(droste, words, message):
    refused = droste("template", *words)
    assert refused.status != 0 and message in refused.err, refused.err
    assert droste("template", "ls").out == ""


@pytest.mark.parametrize("flags, message", [
    (["--template", "none"], "there is no template 'none'"),
    (["--template", "../logs"], "use at most 64 letters"),
    (["--template", "logs", "--volume-name", "v"], "cannot have a volume"),
    (["--template", "logs@" + "0" * 64], "not the one that the run was started with"),
])
def test_sessions_that_cannot_have_it_are_refused(stored, flags, message):
    refused = stored("exec", "-c", "1", *flags)
    assert refused.status != 0 and message in refused.err, refused.err


@pytest.mark.parametrize("damage", [
    "", "{", "[]", '{"version": 2}', '{"version": 1, "more": 1}', '{"version": 1, "cells": [1]}',
    '{"version": 1, "settings": {"api-key": "x"}}', '{"version": 1, "settings": {"memory": "1"}}',
    '{"version": 1, "contexts": ["relative"]}', '{"version": 1, "cells": "x = 1"}',
    '{"version": 1, "settings": {"memory": {}}}', '{"version": 1, "cells": ' + "[" * 200,
    '{"version": 1, "cells": ["' + "x" * (17 << 20) + '"]}'])
def test_a_damaged_file_is_refused_by_name(stored, damage):
    """It is checked as a new one is; nothing of it is executed."""
    with open(path_of(stored, "logs"), "w") as file:
        file.write(damage)
    for words in (["exec", "-c", "1", "--template", "logs"], ["template", "show", "logs"]):
        refused = stored(*words)
        assert refused.status in (1, 2) and "logs" in refused.err, refused


def test_a_link_or_fifo_in_its_place_is_refused(stored, tmp_path):
    path = path_of(stored, "logs")
    os.rename(path, tmp_path / "other.json")
    os.symlink(tmp_path / "other.json", path)
    assert stored("template", "show", "logs").status != 0
    os.unlink(path)
    os.mkfifo(path)
    refused = stored("template", "show", "logs")
    assert refused.status != 0 and "is a pipe" in refused.err


def test_a_killed_create_leaves_all_or_nothing(droste):
    """Before the recipe has been tried, nothing is stored."""
    mark = os.path.join(droste.home, "mark")
    child = droste.start("template", "create", "slow", "--isolation", "process", "--cell",
                         "open(%r, 'w').close(); import time; time.sleep(600)" % mark)
    wait_until(lambda: os.path.exists(mark), what="the first cell")
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode != 0 and droste("template", "ls").out == ""


def test_names_are_completed(stored):
    for words in (["exec", "--template", ""], ["template", "show", "l"]):
        assert "logs" in stored("completion", "words", "--", *words).out
