"""Modal's volumes: what a session has written is there for the next one, and where it is not, that
is an error.

In the fake, as at Modal, a volume in a sandbox is a view as of the sandbox's creation, and a commit
takes its time."""
import asyncio
import json
import re
import subprocess
import warnings

import pytest

import modal_fake
from test_modal import (  # noqa: F401
    answering, cloud, droste, fake, isolated, opened, run, wait_until)

SLOW = 1.0      # seconds of a commit: longer than anything that does not wait for it

WRITE = ("import json\nwith open('/data/results.json', 'w') as f:\n"
         "    json.dump({'count': %d}, f)\nSUBMIT(status='saved')")
READ = "import json\nwith open('/data/results.json') as f:\n    SUBMIT(count=json.load(f)['count'])"

pytestmark = pytest.mark.skipif(modal_fake.missing() is not None, reason=str(modal_fake.missing()))


@pytest.fixture
def slow(isolated):     # noqa: F811
    isolated.commits(SLOW)
    return isolated


def test_what_a_session_wrote_is_there_in_the_next_one(slow):
    """Six times, one after the other in one process: leaving `with` waits until the volume is
    written back."""
    for n in range(3):
        with opened(volume_name="my-data") as interp:
            assert interp.execute(WRITE % n).status == "submitted"
        # other settings: another engine, another bridge
        with opened(volume_name="my-data", timeout=77) as interp:
            assert interp.execute(READ).fields == {"count": n}


def test_closing_waits_also_where_the_cell_has_ended_the_sandbox(slow):
    """What was written before the guest's process ended itself is written back as well."""
    with opened(volume_name="my-data") as interp:
        assert interp.execute(
            "open('/data/a', 'w').write('b'); import os; os._exit(3)").status == "killed"
    with opened(volume_name="my-data", timeout=77) as interp:
        assert interp.execute("SUBMIT(a=open('/data/a').read())").a == "b"


def test_it_is_there_within_asyncio(slow):
    """`async with` and `await shutdown()` wait for the commit, and the loop turns meanwhile."""
    async def main():
        async def turn():
            for _ in range(10):
                await asyncio.sleep(0.01)
            slow.commits(SLOW)      # without turns of the loop, the commit would last
        async with opened(volume_name="a") as interp:
            await interp.execute(WRITE % 7)
            slow.commits(300)
            ticking = asyncio.ensure_future(turn())
        assert ticking.done()
        async with opened(volume_name="a", timeout=77) as interp:
            assert (await interp.execute(READ)).count == 7
            await interp.execute(WRITE % 8)
            await interp.shutdown()
        async with opened(volume_name="a") as interp:
            assert (await interp.execute(READ)).count == 8
    asyncio.run(main())


def test_it_is_there_in_a_notebook(slow):
    """Without `await` in a running loop: `with` waits, and what follows a shutdown() that nobody
    awaits waits for its commit."""
    async def main():
        with opened(volume_name="n") as interp:
            await interp.execute(WRITE % 1)
        with opened(volume_name="n", timeout=77) as interp:
            assert (await interp.execute(READ)).count == 1
        interp = opened(volume_name="n")
        await interp.start()
        await interp.execute(WRITE % 2)
        interp.shutdown()
        interp = opened(volume_name="n")
        await interp.start()
        assert (await interp.execute(READ)).count == 2
        await interp.shutdown()
    asyncio.run(main())


def test_it_is_there_in_the_next_program(slow):
    """`droste exec` twice: the first has ended only when the volume is written back."""
    done = run("exec", "--env", "modal", "--volume-name", "cli", "-c", WRITE % 3)
    assert done.returncode == 0, done.stderr
    done = run("exec", "--env", "modal", "--volume-name", "cli", "-c", READ)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"count": 3}), done.stderr


def writing(place):
    """A model that writes into the volume and submits."""
    path = answering(place)
    path.write_text(path.read_text().replace("SUBMIT(answer=1)",
                                             'open("/data/a", "w").write("b"); SUBMIT(answer=1)'))
    return path


def test_it_is_there_after_a_run(slow, tmp_path):
    """A run ends when the volume of its session is written back."""
    done = run("run", "--env", "modal", "--volume-name", "r", "--model",
               "exec:" + str(writing(tmp_path)), "--question", "q")
    assert done.returncode == 0, done.stderr
    done = run("exec", "--env", "modal", "--volume-name", "r", "-c",
               "print(open('/data/a').read())")
    assert done.stdout == "b\n", done.stderr


# ---- a commit that fails ----

def failing(fake):      # noqa: F811
    fake.fail("commit", status="INTERNAL", message="the disk is on fire", times=9)


WORDS = "volume lost was not written back"


def test_a_commit_that_fails_is_an_error(isolated):     # noqa: F811
    """shutdown() raises it, and leaves nothing."""
    interp = opened(volume_name="lost").start().owner
    assert interp.execute(WRITE % 1).ok
    failing(isolated)
    with pytest.raises(droste.Error, match=WORDS + ".*on fire"):
        interp.shutdown()
    assert not interp.alive


def test_what_the_block_raised_is_not_hidden_by_it(isolated):       # noqa: F811
    """The block's own exception leaves `with`; the commit's is a warning beside it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            with opened(volume_name="lost") as interp:
                interp.execute(WRITE % 1)
                failing(isolated)
                1 / 0
    assert [w for w in caught if WORDS in str(w.message)]


def test_it_is_an_error_within_asyncio(isolated):       # noqa: F811
    async def main():
        interp = opened(volume_name="lost")
        await interp.start()
        await interp.execute(WRITE % 1)
        failing(isolated)
        with pytest.raises(droste.Error, match=WORDS):
            await interp.shutdown()
    asyncio.run(main())


def test_it_is_an_error_of_a_program(isolated, tmp_path):       # noqa: F811
    """`droste exec` and `droste run` end with a status that says so, and an answer is printed
    nevertheless."""
    failing(isolated)
    done = run("exec", "--env", "modal", "--volume-name", "lost", "-c", "print(1)")
    assert done.returncode == 4 and WORDS in done.stderr and done.stdout == "1\n", (done.returncode,
                                                                                    done.stderr)
    failing(isolated)
    done = run("run", "--env", "modal", "--volume-name", "lost", "--model",
               "exec:" + str(writing(tmp_path)), "--question", "q", "--json")
    outcome = json.loads(done.stdout)
    assert done.returncode != 0 and outcome["status"] == "error" and WORDS in json.dumps(
        outcome["error"]), outcome
    assert outcome["answer"] == 1


ASKING = """#!/usr/bin/python3
import json, sys
ROOT = '''try:
    said = str(rlm_query("please-write"))
except Exception as e:
    said = str(e)
SUBMIT(said=said, there=str(rlm_query("please-look")))'''
WRITE = 'open("/data/a", "w").write("b"); SUBMIT(answer="written")'
LOOK = 'import os; SUBMIT(answer=os.path.exists("/data/a"))'
for line in sys.stdin:
    m = json.loads(line)
    code = ROOT if "of-the-root" in line else WRITE if "please-write" in line else LOOK
    print(json.dumps({'id': m['id'], 'text': '```repl\\n' + code + '\\n```'}), flush=True)
"""


def asked(place):
    """What a run submits whose code asks a child that writes into the volume, and then one that
    looks there."""
    path = place / "asking"
    path.write_text(ASKING)
    path.chmod(0o755)
    done = run("run", "--env", "modal", "--volume-name", "lost", "--model", "exec:" + str(path),
               "--question", "of-the-root", "--json")
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "answered", done
    return outcome["answer"]


def test_what_a_child_wrote_is_there_for_the_next_child(slow, tmp_path):     # noqa: F811
    """rlm_query() returns when the child's volume is written back."""
    assert asked(tmp_path) == {"said": "written", "there": "True"}


def test_a_child_whose_volume_lacks_what_it_wrote_is_an_error(isolated, tmp_path):     # noqa: F811
    """Its parent's code hears it; the run above, whose own volume was written back, is answered."""
    isolated.fail("commit", status="INTERNAL", message="the disk is on fire", times=1,
                  volume="lost")
    assert WORDS in asked(tmp_path)["said"]


def shown(run_id):
    """A run as the record has it."""
    return json.loads(run("runs", "show", run_id, "--json").stdout)


def test_a_child_whose_volume_was_not_written_back_is_an_error_in_its_record(     # noqa: F811
        isolated, tmp_path, monkeypatch):
    """The child is an error in its own record, with its answer; the run above it and the child
    after it are answered."""
    monkeypatch.setenv("DROSTE_DATABASE", str(tmp_path / "record.db"))
    isolated.fail("commit", status="INTERNAL", message="the disk is on fire", times=1,
                  volume="lost")
    assert WORDS in asked(tmp_path)["said"]
    root = json.loads(run("runs", "ls", "--json").stdout)[0]
    children = re.findall(r"^  (\S+), (\w+) in .*: please-(\w+)$",
                          run("runs", "show", root["run"]).stdout, re.M)
    assert root["status"] == "answered" and [child[1:] for child in children] == [
        ("error", "write"), ("answered", "look")]
    writer = shown(children[0][0])
    assert WORDS in writer["error"] and writer["answer"] == "written", writer


def test_a_run_whose_volume_was_not_written_back_is_an_error_in_its_record(     # noqa: F811
        isolated, tmp_path, monkeypatch):
    """As the command's result does: an error, with the answer. One whose volume was written back is
    answered."""
    monkeypatch.setenv("DROSTE_DATABASE", str(tmp_path / "record.db"))
    words = ("run", "--env", "modal", "--volume-name", "lost", "--model",
             "exec:" + str(writing(tmp_path)), "--question", "q", "--json")
    for status in ("answered", "error"):
        one = shown(json.loads(run(*words).stdout)["run"])
        assert (one["status"], one["answer"]) == (status, 1) and (WORDS in str(one["error"])) == (
            status == "error"), one
        failing(isolated)


def test_a_machine_that_is_gone_is_an_error(isolated):      # noqa: F811
    """The sandbox has ended by itself before it could be written back: that is said, with why."""
    interp = opened(volume_name="gone").start().owner
    assert interp.execute(WRITE % 1).ok
    isolated.finish("INTERNAL_FAILURE")
    with pytest.raises(droste.Error, match="volume gone was not written back.*has ended"):
        interp.shutdown()


def test_an_interrupt_ends_the_wait(isolated):      # noqa: F811
    """Ctrl-C while the volume is written back: the command ends, and says what is not known."""
    import signal
    import os
    from test_modal import DROSTE
    isolated.commits(15)
    host = subprocess.Popen([DROSTE, "exec", "--env", "modal", "--volume-name", "slow", "-c",
                             "print('up', flush=True)"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ)
    # the second one is `sync`
    assert wait_until(lambda: any(s["programs"] == 2 for s in isolated.live()))
    host.send_signal(signal.SIGINT)
    out, err = host.communicate(timeout=120)
    isolated.commits(0)
    assert host.returncode != 0 and "interrupted while the volume was written back" in err, err


# ---- the fake is not kinder ----

def test_nothing_is_seen_before_it_is_committed(isolated):      # noqa: F811
    """What one sandbox writes another does not see, also after it has ended; one that was made
    before does not see it even then."""
    with opened(volume_name="v") as writer, opened(volume_name="v", timeout=77) as reader:
        assert writer.execute(WRITE % 1).ok
        assert reader.execute(
            "import os; SUBMIT(there=os.path.exists('/data/results.json'))").there is False
        writer.shutdown()
        assert reader.execute("SUBMIT(there=os.path.exists('/data/results.json'))").there is False
    with opened(volume_name="v") as late:
        assert late.execute(READ).count == 1


def test_a_fault_that_is_ordered_is_not_taken_by_a_sandbox_that_was_forgotten(
        isolated):      # noqa: F811
    """The commit after a sandbox's end comes when nobody waits for it any more. What the cloud
    forgets has made it; else the fault that the next test orders would be gone before its own
    commit."""
    with opened(volume_name="before") as interp:
        assert interp.execute(WRITE % 1).ok
        isolated.commits(2)
    assert wait_until(lambda: not isolated.live())
    isolated.forget()
    isolated.fail("commit", status="INTERNAL", message="the disk is on fire", times=1)
    interp = opened(volume_name="lost").start().owner
    assert interp.execute(WRITE % 1).ok
    with pytest.raises(droste.Error, match=WORDS):
        interp.shutdown()


# ---- droste volume ----

def volume(*words, **more):
    return run("volume", *words, "--env", "modal", **more)


def test_the_volume_command_copies_and_lists(isolated, tmp_path):       # noqa: F811
    """put, ls, tree and get are about Modal's volume, with the words that they have for those of
    this machine; a session sees what was put."""
    with opened(volume_name="my-data") as interp:
        assert interp.execute(
            "import os\nos.makedirs('/data/d/e')\nopen('/data/d/one', "
            "'w').write('1')\nopen('/data/d/e/two', 'w').write('22')\n"
            "os.symlink('/etc/passwd', '/data/d/link')").ok
    (tmp_path / "local.csv").write_text("a,b\n" * 1000)
    done = volume("put", "my-data", str(tmp_path / "local.csv"), "uploads/sales.csv")
    assert (done.returncode, done.stdout) == (0, "put 1 file, 4000 bytes\n"), done.stderr
    with opened(volume_name="my-data") as interp:
        assert interp.execute("SUBMIT(n=len(open('/data/uploads/sales.csv').read()))").n == 4000
    listed = json.loads(volume("ls", "my-data", "d", "--json").stdout)
    assert [(e["path"], e["kind"], e["size"]) for e in listed["entries"]
            if e["kind"] == "file"] == [("one", "file", 1)]
    assert [e["path"] for e in listed["entries"]] == ["e", "link", "one"]
    assert volume("tree", "my-data", "/data/d").stdout == "e/\n  two\nlink  (link)\none\n"
    done = volume("get", "my-data", "d", str(tmp_path / "got"))
    assert done.returncode == 0 and (tmp_path / "got" / "e" / "two").read_text() == "22" and not (
        tmp_path / "got" / "link").exists(), done.stderr
    assert volume("get", "my-data", "uploads/sales.csv", "-").stdout == "a,b\n" * 1000


def test_the_volume_command_refuses_what_it_cannot(isolated, tmp_path):     # noqa: F811
    """A volume that is not there is not made; a path that is not there, one that leads out, and
    verbs for this machine's volumes."""
    for words, status, text in ((("ls", "nowhere"), 2, "nowhere"),
                                (("du", "my-data"), 4, "with volumes of this machine"),
                                (("ls",), 4, "name one")):
        done = volume(*words)
        assert done.returncode == status and text in done.stderr, (words, done)
    assert "nowhere" not in isolated.volumes()
    with opened(volume_name="refusing") as interp:
        assert interp.execute("import os; os.symlink('/etc', '/data/etc')").ok
    for path, text in (("none", "there is no such file"), ("../etc/passwd", "out of the volume"),
                       ("etc/passwd", "there is a link")):
        done = volume("get", "refusing", path, str(tmp_path / "x"))
        assert done.returncode != 0 and text in done.stderr, (path, done)
    assert not (tmp_path / "x").exists()


def test_what_was_put_is_durable_or_an_error(isolated, tmp_path):       # noqa: F811
    (tmp_path / "f").write_text("x")
    with opened(volume_name="my-data") as interp:
        assert interp.execute("1").ok
    isolated.fail("commit", status="INTERNAL", message="the disk is on fire", times=9)
    done = volume("put", "my-data", str(tmp_path / "f"))
    assert done.returncode == 4 and "was not written back" in done.stderr and done.stdout == "", (
        done)
