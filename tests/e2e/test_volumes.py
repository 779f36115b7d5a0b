"""Volumes: what is written stays, at every isolation and for everybody, shared as docs/volumes.md
says."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

from harness import NOBODY, finish, refused, repl, wait_until
from droste_cli import Terminal

LEVELS = ("full", "light", "landlock", "process")


@pytest.fixture
def place():
    """A directory for volumes that all users can reach: at landlock root's guest is another
    user."""
    path = tempfile.mkdtemp(prefix="droste-test-volumes-")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def volumes(anybody, place):
    """The program as anybody, with its volumes there."""
    if anybody.prefix:
        os.chown(place, NOBODY, NOBODY)
    anybody.env["DROSTE_VOLUME_ROOT"] = place
    return anybody


@pytest.fixture
def own(droste, place):
    droste.env["DROSTE_VOLUME_ROOT"] = place
    return droste


def cell(droste, code, *flags, name="v", **options):
    result = droste.cell(code, "--volume-name", name, *flags, **options)
    assert result["status"] in ("ok", "submitted"), result
    return result["submit"]


def put(droste, path, text, name="v"):
    return droste("volume", "put", name, "-", path, input=text)


def got(droste, path, name="v"):
    result = droste("volume", "get", name, path, "-")
    assert result.status == 0, result
    return result.out


# ---- what stays ----

@pytest.mark.parametrize("level", LEVELS)
def test_what_is_written_is_there_in_a_later_session(volumes, level):
    """In another process, at any other isolation, for the host, and under the names that the seeds
    use."""
    cell(volumes, """
import json, os, pathlib
here = os.environ["DROSTE_VOLUME"]
os.makedirs(here + "/artifacts/deep", exist_ok=True)
with open(here + "/artifacts/deep/results.json", "w") as f:
    json.dump({"count": 42}, f)
pathlib.Path(here, "artifacts", "report.json").write_text("[]")
""", "--isolation", level)
    for other in LEVELS:
        assert cell(volumes,
                    "import json, os; SUBMIT(**json.load(open(os.environ['DROSTE_VOLUME'] + "
                    "'/artifacts/deep/results.json')))", "--isolation", other) == {"count": 42}
        cell(volumes,
             "import os; open(os.environ['DROSTE_VOLUME'] + '/artifacts/deep/results.json', "
             "'a').write(' ')",
             "--isolation", other)
    assert json.loads(got(volumes, "artifacts/deep/results.json")) == {"count": 42}


@pytest.mark.parametrize("level", ("full", "light"))
def test_a_volume_has_drostes_names(volumes, level):
    """A new one is empty, at /data alone; no other product's path is in the sandbox unless its
    layout is asked for, and then an empty volume gets that one's directories, while one that holds
    something stays as it is."""
    code = (
        "import os; SUBMIT(names=os.listdir('/data'), root=MEMORY_ROOT, "
        "other=os.path.exists('/home'))")
    assert cell(volumes, code, "--isolation", level) == {"names": [], "root": "/data",
                                                         "other": False}
    cell(volumes, "save_to_volume('/home/daytona/memory/kept', 'x')", "--isolation", level)
    seen = cell(volumes, code, "--isolation", level, "--layout", "daytona")
    assert seen == {"names": ["kept"], "root": "/home/daytona/memory", "other": True}
    refused(volumes("exec", "-c", "1", "--layout", "other"), 2,
            "layout 'other' is not one of droste, daytona")


@pytest.mark.parametrize("level", ("full", "light"))
def test_both_mount_points_are_one_directory(volumes, level):
    """With Daytona's layout: /data and /home/daytona/memory, with the directories that skills for
    it expect; nothing else of the host's is writable."""
    seen = cell(volumes, """
import os, pathlib
open("/data/x", "w").write("seen")
def tried(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as e:
        return type(e).__name__
SUBMIT(text=open("/home/daytona/memory/x").read(), names=sorted(os.listdir("/data")), owner=os.stat("/data").st_uid,
       shm=os.listdir("/dev/shm"), others=[tried(p) for p in ("/x", "/home/x", "/home/daytona/x", "/usr/x")])
""", "--isolation", level, "--layout", "daytona")
    assert seen["text"] == "seen" and seen["owner"] == 1000 and seen["shm"] == []
    assert {"artifacts", "buffers", "knowledge", "logs", "memories", "memory", "meta", "sessions",
            "skills",
            "uploads"} <= set(seen["names"])
    assert "written" not in seen["others"]


def test_without_a_volume_there_is_none(own):
    """Neither place exists, and the helpers say so as the followed systems do."""
    seen = own.cell(
        "import os; SUBMIT(there=[os.path.exists(p) for p in ('/data', '/home/daytona/memory')], "
        "said="
        "[save_to_volume('a', 'b'), load_from_volume('a')], files=workspace_list(), "
        "env='DROSTE_VOLUME' in os.environ)",
        "--isolation", "full")["submit"]
    assert seen == {"there": [False, False], "said": ["[error: no volume mounted at /data]"] * 2,
                    "files": [], "env": False}


@pytest.mark.parametrize("level", LEVELS)
def test_the_helpers_do_what_those_of_the_followed_systems_do(volumes, level):
    """Paths are relative or begin with the place; what is wrong comes back as text. What is written
    is on the disk before it has its name, the name after that, and who has the old file open has
    that one still."""
    seen = cell(volumes, """
import os, stat
here = os.environ["DROSTE_VOLUME"]
asked, fsync = [], os.fsync
def watched(fd):
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        asked.append("directory")
    else:
        asked.append(os.path.exists(here + "/reports/a.txt"))
    fsync(fd)
os.fsync = watched
full = save_to_volume("reports/a.txt", "one")
workspace_append("n/b.txt", "2")
os.remove(here + "/workspace/n/b.txt")
os.fsync = fsync
old = open(full)
os.symlink("/etc", here + "/link")
SUBMIT(asked=asked, full=full == here + "/reports/a.txt",
       loaded=[load_from_volume(p) for p in ("reports/a.txt", "/data/reports/a.txt", full)],
       again=load_from_volume(save_to_volume("reports/a.txt", b"two\\r\\n")),
       old=old.read(),
       missing=load_from_volume("nothing") == "[error: file not found: %s/nothing]" % here,
       wrong=[save_to_volume(p, "x") for p in ("", "../x", "/etc/x", "link/x", ".")],
       workspace=[workspace_write("n/a.txt", "1") == here + "/workspace/n/a.txt", workspace_append("n/a.txt", "2") != "",
                  workspace_read("n/a.txt"), workspace_list(), workspace_list("*.md"), workspace_list("n/*")],
       outside=[workspace_read("../reports/a.txt"), workspace_write("", "x")],
       moved=[os.rename(here + "/workspace", here + "/w"), os.symlink("/tmp", here + "/workspace"), workspace_write("x", "y")][2],
       left=sorted(os.listdir(here + "/reports")))
""", "--isolation", level)
    assert seen == {"asked": [False, "directory", True], "old": "one",
                    "full": True, "loaded": ["one"] * 3, "again": "two\r\n", "missing": True,
                    "wrong": ["[error: volume path cannot be empty]"]
                    + ["[error: invalid volume path: %s]" % p
                      for p in ("../x", "/etc/x", "link/x", ".")],
                    "workspace": [True, True, "12", ["n/a.txt"], [], ["n/a.txt"]],
                    "outside": ["[error: invalid workspace path: ../reports/a.txt]",
                                "[error: workspace path cannot be empty]"],
                    "moved": "[error: invalid workspace path: x]", "left": ["a.txt"]}


def test_rules_let_cells_write_to_the_volume(own):
    """And nowhere else but their own directory, as ever."""
    seen = cell(own, "open('/data/a', 'w').write('x'); save_to_volume('b', 'y')\n"
                "try:\n    open('/dev/shm/x', 'w')\nexcept PermissionError:\n    "
                "SUBMIT(text=open('/home/daytona/memory/a').read())",
                "--layout", "daytona", "--rules", "yes", "--isolation", "full")
    assert seen == {"text": "x"}


@pytest.mark.parametrize("command", ("run", "chat", "repl", "batch"))
def test_every_command_has_it(own, replay, command):
    """As `exec`, which all other tests use."""
    model = replay({"content": repl("save_to_volume('from', '%s')" % command, "SUBMIT(1)"),
                    "repeat": True})
    flags = ["--volume-name", "v", "--model", model]
    if command == "run":
        result = own("run", "--question", "q", *flags)
    elif command == "chat":
        result = own("chat", *flags, input="q\n")
    elif command == "repl":
        result = own("repl", "--volume-name", "v", input="save_to_volume('from', 'repl')\n")
    else:
        with open(os.path.join(own.home, "t.jsonl"), "w") as f:
            f.write('{"id": 1, "question": "q"}\n')
        result = own("batch", "t.jsonl", "--out", "r.jsonl", *flags)
    assert result.status == 0, result
    assert got(own, "from") == command


def test_children_of_a_run_share_it_and_the_prompt_names_it(own, replay):
    """Sandboxes that wait in a pool have none. The record says which volume it was, and so does
    the model's first message; without one nobody is told."""
    model = replay({"content": repl("save_to_volume('a', 'parent')\nx = rlm_query('child')",
                                    "SUBMIT(x)"), "contains": "is it"},
                   {"content": repl("SUBMIT(load_from_volume('a'))"), "depth": 1})
    result = own("run", "--question", "What is it?", "--json", "--model", model, "--volume-name",
                 "v", "--pool", "2")
    assert result.json["answer"] == "parent", result
    (run, _) = own.record.runs
    (prompt, *_) = [line["request"][0]["content"] for line in own.lines("call")
                    if line["kind"] == "root"]
    assert "`/data`" in prompt and "save_to_volume" in prompt
    assert [run["limits"]["volume"] for run in own.lines("run")] == ["v", "v"]
    assert "\nvolume    v\n" in own("runs", "show", run["id"]).out
    own("run", "--question", "What is it?", "--model", replay(repl("SUBMIT(1)")))
    *_, alone = own.lines("call")
    assert "/data" not in alone["request"][0]["content"] and "volume" not in own.lines("run")[-1][
        "limits"]


SLOW = """#!/usr/bin/python3
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    first = "Turn 1 of" in json.dumps(asked["messages"][-1])
    while not first and not os.path.exists("go"):
        time.sleep(0.05)
    code = "open('/data/log', 'a').write('one\\\\n')" if first else "SUBMIT(open('/data/log').read())"
    print(json.dumps({"id": asked["id"], "text": "```repl\\n%s\\n```" % code}), flush=True)
"""


def slow_model(droste):
    """A model whose second turn waits for the file `go`."""
    path = os.path.join(droste.home, "slow")
    with open(path, "w") as f:
        f.write(SLOW)
    os.chmod(path, 0o755)
    return path


def test_a_run_that_is_resumed_finds_the_volume_as_it_is_now(own):
    """Its cells run again, and write again; what others wrote meanwhile is not undone."""
    process = own.start("run", "--question", "q", "--json", "--model", "exec:" + slow_model(own),
                        "--volume-name", "v")
    wait_until(lambda: os.path.exists(own.record.path) and own.record.runs
               and [c for c in own.record.cells if c["ended_ms"]], what="a cell")
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    open(os.path.join(own.home, "go"), "w").close()
    again = own("runs", "resume", own.record.run["id"], "--json")
    assert again.status == 0 and again.json["answer"] == "one\none\n", again


# ---- sharing ----

def start_holding(droste, name="v", seconds=600):
    """A session that has the volume until it is killed, and has written `held`."""
    process = droste.start("exec", "-c", "save_to_volume('held', 'x')\nprint('here', flush=True)\n"
                           "import time; time.sleep(%d)" % seconds, "--volume-name", name,
                           "--isolation", "full")
    assert process.stdout.readline() == b"here\n"
    return process


def test_sessions_share_a_volume_at_once(own):
    """What one has written the other reads while both live, and both may write."""
    process = start_holding(own)
    assert cell(own,
                "save_to_volume('other', 'y'); SUBMIT(load_from_volume('held'))") == {"output": "x"}
    assert got(own, "other") == "y" and put(own, "third", "z").status == 0
    assert cell(own, "SUBMIT(load_from_volume('third'))") == {"output": "z"}
    process.kill()
    finish(process)


def test_what_exchanges_all_of_it_needs_it_alone(own):
    """While a session has it, snapshot, restore and rm say who; afterwards they work."""
    cell(own, "save_to_volume('a', '1')")
    assert own("volume", "snapshot", "v", "s").status == 0
    process = start_holding(own)
    for words in (("snapshot", "v", "t"), ("restore", "v", "s"), ("rm", "v"),
                  ("rm", "v", "--snapshot", "s")):
        refused(own("volume", *words), 2, "process %d" % process.pid)
    process.kill()
    finish(process)
    wait_until(lambda: own("volume", "restore", "v", "s").status == 0, what="the volume")
    assert own("volume", "get", "v", "held").status == 2 and got(own, "a") == "1"
    (kept,) = own("volume", "du", "v", "--json").json["snapshots"]
    assert kept["name"] == "s" and "snapshot s " in own("volume", "du", "v").out
    assert own("volume", "rm", "v").status == 0


def test_opening_during_an_exchange_waits_or_fails_clearly(own):
    """A volume that somebody has alone is not given to a session."""
    import fcntl
    own("volume", "create", "v")
    with open(os.path.join(own.env["DROSTE_VOLUME_ROOT"], "v", "lock"), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(own("exec", "-c", "1", "--volume-name", "v"), 2,
                "as a whole by process %d" % os.getpid())
    assert own("exec", "-c", "1", "--volume-name", "v").status == 0


def test_a_session_ends_and_lets_go(own):
    """Also one that is killed, with its host."""
    process = start_holding(own)
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    wait_until(lambda: own("volume", "snapshot", "v", "s").status == 0, what="the volume")


# ---- refusals ----

@pytest.mark.parametrize("name", ("../x", "", "a/b", "%n%n;rm", "-x", ".x", "v\u00e4", "x" * 65,
                                  "a\nb"))
def test_a_name_that_is_none_is_refused(own, name):
    """By commands and by settings, in one line that says what a name is."""
    if name:
        refused(own("exec", "-c", "1", "--volume-name=" + name), 2,
                "use at most 64 letters, digits")
    refused(own("volume", "create", "--", name), 2, "use at most 64 letters, digits")
    assert [n for n in os.listdir(own.env["DROSTE_VOLUME_ROOT"]) if n != ".lock"] == []


@pytest.mark.parametrize("level", ("full", "process"))
def test_a_volume_that_became_a_link_is_refused(own, level):
    """CVE-2024-42472: between two sessions somebody puts a link in its place."""
    cell(own, "save_to_volume('a', '1')")
    root = own.env["DROSTE_VOLUME_ROOT"]
    os.rename(root + "/v", root + "/w")
    os.symlink("w", root + "/v")
    refused(own("exec", "-c", "1", "--volume-name", "v", "--isolation", level), 2, "link")
    refused(own("volume", "get", "v", "a", "-"), 2, "link")
    assert cell(own, "SUBMIT(load_from_volume('a'))", "--isolation", level,
                name="w") == {"output": "1"}
    assert ["link" in line for line in own("volume", "ls").out.splitlines()] == [True, False]


def test_landlock_says_what_keeps_its_guest_out(own):
    """As root the guest is nobody there, and nothing is mounted for it."""
    if os.getuid() != 0:
        pytest.skip("only root's guest is another user")
    os.chmod(own.env["DROSTE_VOLUME_ROOT"], 0o700)
    inner = os.path.join(own.env["DROSTE_VOLUME_ROOT"], "inner")
    refused(own("exec", "-c", "1", "--volume-name", "v", "--volume-root", inner, "--isolation",
                "landlock"), 4,
            "may not enter " + own.env["DROSTE_VOLUME_ROOT"], "--volume-root")
    assert own("exec", "-c", "1", "--volume-name", "v", "--volume-root", inner, "--isolation",
               "full").status == 0


@pytest.mark.parametrize("path, layout, at", (
    ("/data/set", "droste", "/data"), ("/home", "daytona", "/home/daytona/memory"),
    ("/home/daytona/memory", "daytona", "/home/daytona/memory")))
def test_what_the_volume_would_hide_is_refused(own, path, layout, at):
    """A path that is to be shown where the volume is; without the volume, elsewhere, or with names
    that are not that, it is shown."""
    refused(own("exec", "-c", "1", "--volume-name", "v", "--read", path, "--isolation", "full",
                "--layout", layout), 2,
            "'%s'" % path, at)
    if layout == "daytona":
        assert own("exec", "-c", "1", "--volume-name", "v", "--read", path, "--isolation",
                   "full").status == 0
    assert own("exec", "-c", "1", "--read", path, "--isolation", "full").status == 0
    assert own("exec", "-c", "1", "--volume-name", "v", "--read", "/database", "--isolation",
               "full").status == 0


def test_a_directory_that_a_guest_stands_in_is_removed(own):
    """While it keeps putting files into it: the command ends, and the path is gone; its own place
    it cannot leave."""
    process = own.start("exec", "-c", """
import os, time
os.makedirs("/data/d/e")
os.chdir("/data/d/e")
gone, i, end = 0, 0, time.monotonic() + 5
while gone < 1000 and time.monotonic() < end:
    i += 1
    try:
        open("f%d" % (i % 50), "w").close()
    except OSError:
        gone += 1
up = []
for path in ("..", "../..", "../../..", "../../../lock"):
    try:
        up.append(sorted(os.listdir(path)))
    except OSError as e:
        up.append(type(e).__name__)
SUBMIT(up=up)
""", "--json", "--volume-name", "v", "--isolation", "full")
    wait_until(lambda: own("volume", "get", "v", "d/e/f1", "-").status == 0, what="the guest")
    assert own("volume", "rm", "v", "d").status == 0
    assert own("volume", "ls", "v", "d").status == 2
    result = finish(process)
    assert not any("lock" in names or "limits" in names
                   for names in result.json["submit"]["up"]), result


@pytest.mark.parametrize("words", (["put"], ["create", "a", "b"], ["snapshot", "v"],
                                   ["tree", "v", "--depth", "11"],
                                   ["ls", "--limit", "0"], ["du", "v", "--depth", "1"],
                                   ["burn", "v"], []))
def test_words_that_make_no_sense_are_explained(own, words):
    """In a line, with a pointer to the help."""
    result = own("volume", *words)
    assert result.status == 2 and "Try 'droste volume --help'" in result.err


# ---- quotas ----

@pytest.mark.parametrize("level", LEVELS)
def test_a_session_over_the_quota_is_ended(volumes, level):
    """The limit is named, the next session is refused until there is room, and then it works."""
    volumes("volume", "create", "v", "--volume-size", "8M")
    result = volumes.cell("""
import os, time
for i in range(100):
    open(os.environ["DROSTE_VOLUME"] + "/f%d" % i, "wb").write(bytes(1 << 20))
    time.sleep(0.02)
time.sleep(600)
""", "--volume-name", "v", "--isolation", level)
    assert result["status"] == "killed" and result["killed"] == "volume size" and not result[
        "alive"], result
    assert "droste volume limit" in result["error"]["message"]
    assert result["resources"]["limits"]["volume-size"] == {"value": 8 << 20, "by": "host"}
    used = volumes("volume", "du", "v", "--json").json
    assert used["size"] > used["size_limit"] == 8 << 20
    refused(volumes("exec", "-c", "1", "--volume-name", "v"), 4, "droste volume rm v PATH")
    assert volumes("volume", "rm", "v", *["f%d" % i for i in range(7)]).status in (0, 2)
    assert volumes("volume", "limit", "v", "--volume-size", "1G").status == 0
    assert volumes("exec", "-c", "1", "--volume-name", "v").status == 0


def test_files_are_counted_too(own):
    """A file counts under each of its names, which take nothing of the disk; closed directories
    hide none."""
    own("volume", "create", "v", "--volume-files", "100")
    result = own.cell("""
import os, time
os.mkdir("/data/closed")
here = os.open("/data/closed", os.O_RDONLY)
os.chmod("/data/closed", 0)
os.chmod("/data/closed", 0o700)
open("/data/closed/f", "w").close()
for i in range(200):
    os.link("/data/closed/f", "/data/closed/f%d" % i)
os.chmod("/data/closed", 0)
time.sleep(600)
""", "--volume-name", "v", "--isolation", "full")
    assert result["killed"] == "volume files", result
    assert own("volume", "du", "v", "--json").json["files"] > 100


def test_below_the_quota_nothing_happens(own):
    """The twin: exactly as many as it may hold, for as long as it takes to be looked at; the next
    session begins."""
    own("volume", "create", "v", "--volume-size", "8M", "--volume-files", "100")
    assert cell(
        own, "import time\nfor i in range(100): open('/data/f%d' % i, 'wb').write(bytes(50000))\n"
        "time.sleep(3)\nSUBMIT(1)", "--isolation", "full") == {"output": 1}
    assert own("volume", "du", "v", "--json").json["files"] == 100
    assert cell(own, "SUBMIT(1)") == {"output": 1}
    assert own("volume", "limit", "v", "--volume-files", "700").status == 0
    limits = own("volume", "limit", "v", "--volume-size", "1M", "--json").json
    assert (limits["size_limit"], limits["files_limit"]) == (1 << 20, 700)


# ---- from outside ----

def test_a_file_cannot_act_on_the_terminal_that_shows_it(own, tmp_path):
    """What a guest has written is shown without control characters, whole letters and all; a pipe
    gets the bytes."""
    text = "\x1b]0;owned\x07x" + "\u00e4" * 40000 + "\x1b[31mend\n"
    cell(own, "save_to_volume('a', %r)" % text)
    assert got(own, "a") == text
    with Terminal(tmp_path, "volume", "get", "v", "a", "-",
                  DROSTE_VOLUME_ROOT=own.env["DROSTE_VOLUME_ROOT"]) as t:
        assert t.status() == 0
        assert "\x1b" not in t.output and "\\x1b]0;owned" in t.output and "\\x1b[31mend" in t.output
        assert t.output.count("\u00e4") == 40000


def test_a_directory_goes_in_and_out(own, tmp_path):
    """Whole, without links, and the names are what they were, also where only a place for them is
    said."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "f").write_bytes(b"\0\xff")
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    own("volume", "create", "v")
    put_in = own("volume", "put", "v", tmp_path / "in", "a/b", "--json")
    assert put_in.json == {"files": 3, "bytes": 2, "left_out": 1}
    refused(own("volume", "put", "v", tmp_path / "in", "a/b"), 2, "not replaced")
    refused(own("volume", "get", "v", "a", "%s/out/" % tmp_path), 2, "no directory")
    assert own("volume", "get", "v", "a", tmp_path / "out").status == 0
    assert (tmp_path / "out" / "b" / "deep" / "f").read_bytes() == b"\0\xff"
    assert sorted(os.listdir(tmp_path / "out" / "b")) == ["deep"]
    assert own("volume", "put", "v", tmp_path / "in" / "deep" / "f").status == 0
    assert own("volume", "get", "v", "f", tmp_path / "out").status == 0
    assert (tmp_path / "out" / "f").read_bytes() == b"\0\xff"


def test_names_are_shown_so_that_they_do_nothing(own):
    """On one line each, and exactly in JSON."""
    cell(own,
         "open(b'/data/a\\n\\x1b[31m\\xff', 'w'); open('/data/-rf', 'w'); open(b'/data/' + b'x' * "
         "255, 'w')", "--isolation", "full")
    shown = own("volume", "ls", "v").out
    assert "\x1b" not in shown and "a\\n" in shown and len([n for n in shown.splitlines()
                                                            if n.endswith("-rf")]) == 1
    entries = own("volume", "ls", "v", "--json").json["entries"]
    (odd,) = [e for e in entries if "path_hex" in e]
    assert bytes.fromhex(odd["path_hex"]) == b"a\n\x1b[31m\xff"
    assert own("volume", "rm", "v", b"a\n\x1b[31m\xff".decode(errors="surrogateescape"), "--",
               "-rf").status == 0 or \
        own("volume", "ls", "v").out.count("-rf") == 0


def test_a_tree_is_shown_so_far(own):
    """Depth and number are bounded, and it is said that there is more."""
    cell(own,
         "import os; os.makedirs('/data/1/2/3/4/5/6'); [open('/data/1/%d' % i, 'w').close() for i "
         "in range(10, 30)]", "--isolation", "full")
    shown = own("volume", "tree", "v", "1", "--depth", "2")
    assert "3/" in shown.out and "4/" not in shown.out
    some = own("volume", "tree", "v", "--limit", "5", "--json").json
    assert len(some["entries"]) == 5 and some["truncated"]
    assert "more than 5" in own("volume", "tree", "v", "--limit", "5").err
    whole = own("volume", "tree", "v")
    assert "4/" in whole.out and "5/" not in whole.out and whole.err == ""
    assert not own("volume", "tree", "v", "--json").json["truncated"]


def test_doctor_knows_where_volumes_are(own):
    """A line of the table; and looking makes none."""
    (line,) = [c for c in own("doctor", "--json", "--volume-name", "v").json["checks"]
               if c["name"] == "volumes"]
    assert line["state"] == "ok" and own.env["DROSTE_VOLUME_ROOT"] in line["text"]
    assert not os.path.exists(own.env["DROSTE_VOLUME_ROOT"] + "/v")


def test_a_full_disk_leaves_what_there_was(own):
    """put, snapshot and restore say so, and what was there is whole; with room again they work."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    root = own.env["DROSTE_VOLUME_ROOT"]
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", root],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here: %s" % mounted.stderr.strip())
    try:
        os.chmod(root, 0o755)
        own("volume", "create", "v")
        put(own, "a", "old " * 50000)
        assert own("volume", "snapshot", "v", "s").status == 0
        put(own, "a", "now " * 50000)
        refused(put(own, "a", "new " * 200000), 1, "the disk is full; free some space")
        filler = os.open(root + "/filler", os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(filler, bytes(4096))
        except OSError:
            os.close(filler)
        refused(own("volume", "snapshot", "v", "t"), 1, "the disk is full")
        refused(own("volume", "restore", "v", "s"), 1, "the disk is full")
        assert got(own, "a") == "now " * 50000
        assert own("volume", "ls", "v", "--snapshots").out == "s\n"
        subprocess.run(["mount", "-o", "remount,size=40m", root], check=True)
        assert own("volume", "restore", "v", "s").status == 0 and got(own, "a") == "old " * 50000
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def test_what_is_got_has_the_modes_that_the_umask_allows(own, tmp_path):
    """A guest makes files that everybody may write to; copies outside have no more than other new
    files there."""
    cell(own,
         "import os\nos.umask(0)\nos.makedirs('/data/d')\nos.chmod('/data/d', "
         "0o777)\nopen('/data/d/f', 'w').close()\n"
              "os.chmod('/data/d/f', 0o777)")
    own.prefix = ["sh", "-c", 'umask 027; exec "$@"', "sh"]
    assert own("volume", "get", "v", "d", tmp_path / "tree").status == 0
    assert own("volume", "get", "v", "d/f", tmp_path / "file").status == 0
    modes = [os.stat(path).st_mode & 0o777 for path in (tmp_path / "tree", tmp_path / "tree" / "f",
                                                        tmp_path / "file")]
    own.prefix = []
    assert modes == [0o750] * 3
