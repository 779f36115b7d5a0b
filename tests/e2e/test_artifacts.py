"""Files that a run saves at its end: which, where, under which names, and in the record."""
import hashlib
import json
import os
import re
import subprocess

import pytest

from harness import repl
from lives import Life

MAKE = """
import os
os.makedirs("out/deep", exist_ok=True)
open("out/a.txt", "w").write("hello")
open("out/deep/b.txt", "w").write("b" * 3000000)
"""


def saved(droste, name="art"):
    """The files below a directory and their contents."""
    top = os.path.join(droste.home, name)
    return {os.path.relpath(os.path.join(at, one), top): open(os.path.join(at, one), "rb").read()
            for at, _, names in os.walk(top) for one in names}


def run(droste, replay, code, *flags):
    model = replay({"content": repl(code + "\nSUBMIT(answer=1)"), "repeat": True})
    return droste("run", "?", "--json", "--model", model, "--artifacts-dir", "art", *flags)


def test_matching_files_are_saved_and_recorded(droste, replay):
    """By pattern, with their paths; the record has names, sizes, hashes and contents."""
    r = run(droste, replay, MAKE, "--artifacts", "out/**/*.txt", "--artifacts", "out/a*")
    assert (r.status, r.json["artifacts_error"]) == (0, None), r
    files = {"out/a.txt": b"hello", "out/deep/b.txt": b"b" * 3000000}
    assert saved(droste) == files
    assert [(one["name"], one["size"], one["sha256"]) for one in r.json["artifacts"]] == [
        (name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()]
    shown = droste("runs", "show", r.json["run"], "--save-artifacts", "again")
    assert "artifacts out/a.txt (5 bytes)" in shown.out and saved(droste, "again") == files
    assert re.search(r"saved [1-9]\d* artifacts? below again", shown.err)


def test_without_patterns_nothing_is_saved(droste, replay):
    r = run(droste, replay, MAKE)
    assert (r.status, r.json["artifacts"], saved(droste)) == (0, [], {})


def test_a_pattern_without_a_file_is_reported(droste, replay):
    """By run and by exec, which succeed all the same."""
    r = run(droste, replay, MAKE, "--artifacts", "plots/*")
    assert r.status == 0 and "no file matches the artifacts: plots/*" in r.err, r
    r = droste("exec", "-c", "1", "--artifacts", "plots/*")
    assert r.status == 0 and "no file matches --artifacts" in r.err, r


def test_hostile_files_are_left_out_and_the_others_saved(droste, replay):
    """FIFOs, and names that would control a terminal; names that differ in case are two files."""
    r = run(droste, replay, """
import os
os.mkdir("out")
for name in ("a", "A", "new\\nline", "esc\\x1b[31m", b"\\xff"):
    open(os.path.join(b"out", os.fsencode(name)), "w").write(str(name))
os.mkfifo("out/fifo")
os.symlink("/nowhere", "out/link")
""", "--artifacts", "out/*")
    assert saved(droste) == {"out/a": b"a", "out/A": b"A"}
    assert r.status != 0 and "control characters" in r.json["artifacts_error"]


def test_a_link_on_this_machine_is_not_followed(droste, replay):
    """A directory that is a link stays outside; its twin, a real directory, is used."""
    outside = os.path.join(droste.home, "outside")
    os.makedirs(outside)
    os.makedirs(os.path.join(droste.home, "art"))
    os.symlink(outside, os.path.join(droste.home, "art", "out"))
    r = run(droste, replay, MAKE, "--artifacts", "out/a.txt")
    assert r.status != 0 and r.json["artifacts_error"] and os.listdir(outside) == []
    os.unlink(os.path.join(droste.home, "art", "out"))
    assert run(droste, replay, MAKE, "--artifacts", "out/a.txt").status == 0
    assert saved(droste) == {"out/a.txt": b"hello"}


def test_too_many_files_are_refused(droste, replay):
    """1,001 match: none is saved, and the answer stays; 1,000 are."""
    code = "for i in range(%d): open('f%%d' %% i, 'w').close()"
    r = run(droste, replay, code % 1001, "--artifacts", "f*")
    assert r.json["answer"] == 1 and "1000" in r.json["artifacts_error"] and saved(droste) == {}
    assert len(run(droste, replay, code % 1000, "--artifacts", "f*").json["artifacts"]) == 1000


def test_each_task_of_a_batch_has_a_directory(droste, replay):
    """Named by its id, in which what could leave the directory is written as %XX."""
    with open(os.path.join(droste.home, "tasks.jsonl"), "w") as f:
        for name in ("one", "../two"):
            f.write(json.dumps({"id": name, "question": "?"}) + "\n")
    model = replay({"content": repl(MAKE + "\nSUBMIT(answer=1)"), "repeat": True})
    r = droste("batch", "tasks.jsonl", "--out", "results.jsonl", "--model", model, "--artifacts",
               "out/a.txt", "--artifacts-dir", "art")
    assert r.status == 0, r
    assert saved(droste) == {"one/out/a.txt": b"hello", "%2E.%2Ftwo/out/a.txt": b"hello"}


def test_a_run_whose_code_fails_saves_what_there_is(droste, replay):
    """Without an answer, too."""
    model = replay({"content": repl(MAKE + "\n1/0"), "repeat": True})
    r = droste("run", "?", "--json", "--model", model, "--artifacts", "out/a.txt",
               "--artifacts-dir", "art", "--max-iterations", "1")
    assert r.json["status"] == "exhausted" and saved(droste) == {"out/a.txt": b"hello"}


def test_a_small_record_has_no_contents(droste, replay):
    """Names, sizes and hashes are recorded; the file on this machine is whole."""
    r = run(droste, replay, MAKE, "--artifacts", "out/deep/*", "--max-record-size", "1M")
    assert saved(droste) == {"out/deep/b.txt": b"b" * 3000000}
    shown = droste("runs", "show", r.json["run"], "--save-artifacts", "again")
    assert "not in the record" in shown.out and "1 artifact" in shown.err
    assert not os.path.exists(os.path.join(droste.home, "again"))


@pytest.mark.parametrize("select", ["first", "vote"])
def test_candidates_share_the_files_that_are_saved(droste, serve, tmp_path, select):
    """Each writes another number; all three files are there, with that of the one that is kept."""
    write = "import time\nx = time.monotonic_ns()\nopen('x%d.txt' % x, 'w').write(str(x))\nprint(x)"
    life = Life(droste, serve(turns=[repl(write), repl("SUBMIT(answer=x)")]), tmp_path,
                "--candidates", "3", "--select", select, "--artifacts", "x*.txt",
                "--artifacts-dir", "art")
    r = life.whole()
    assert (r.status, r.json["artifacts_error"]) == (0, None), r
    x = r.json["answer"]
    files = saved(droste)
    assert len(files) == 3 and files["x%d.txt" % x] == b"%d" % x


def test_each_question_of_a_chat_saves_its_files(droste, replay):
    """As they are at its end; a later question writes over an earlier one's."""
    model = replay(*[{"content": repl("open('%s.txt', 'w').write('%s')\nSUBMIT(answer=1)" % names)}
                     for names in (("a", "one"), ("b", "two"), ("a", "three"))])
    done = droste("chat", "--json", "--model", model, "--artifacts", "*.txt", "--artifacts-dir",
                  "art", input="first\nsecond\nthird\n")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [[one["name"] for one in each["artifacts"]] for each in lines] == [
        ["a.txt"], ["a.txt", "b.txt"], ["a.txt", "b.txt"]]
    assert saved(droste) == {"a.txt": b"three", "b.txt": b"two"}
    shown = droste("runs", "show", lines[0]["run"], "--save-artifacts", "again")
    assert shown.status == 0 and saved(droste, "again") == {"a.txt": b"one"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system of its own")
def test_a_full_disk_is_reported_and_leaves_no_partial_file(droste, replay):
    """The answer stays, the error names the disk, and what fits is whole; with room all is."""
    target = os.path.join(droste.home, "art")
    os.mkdir(target)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", target],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here: %s" % mounted.stderr.strip())
    try:
        r = run(droste, replay, MAKE, "--artifacts", "out/**")
        assert r.json["answer"] == 1 and "No space left" in r.json["artifacts_error"], r
        assert saved(droste) == {"out/a.txt": b"hello"}
        assert [one["name"] for one in r.json["artifacts"]] == ["out/a.txt"]
        subprocess.run(["mount", "-o", "remount,size=8m", target], check=True)
        r = run(droste, replay, MAKE, "--artifacts", "out/**")
        assert r.json["artifacts_error"] is None
        assert len(saved(droste)["out/deep/b.txt"]) == 3000000
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)
