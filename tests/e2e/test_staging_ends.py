"""Staging that is slow, interrupted, killed or repeated by many at once, and what is left of it."""
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from harness import finish, process_stat, refused, repl, wait_until
from repositories import (  # noqa: F401: with fixtures
    GIT, git, left, own, packs, place, repo, staged, text_of)

SLOW = """#!/bin/sh
echo "$*" >> %s/asked
case "$*" in *fetch*|*ls-remote*) echo $$ > %s/pid; mv %s/pid %s/slow; while ! test -e %s/go; do sleep 0.05; done;; esac
exec /usr/bin/git "$@"
"""


@pytest.fixture
def slow(own, place):
    """A git that waits before it speaks with the host, until there is a file `go`."""
    os.mkdir(place + "/bin")
    with open(place + "/bin/git", "w") as f:
        f.write(SLOW % ((place,) * 5))
    os.chmod(place + "/bin/git", 0o755)
    own.env["PATH"] = place + "/bin:" + own.env["PATH"]
    return own


def waits(place):
    """The process of the git that does."""
    wait_until(lambda: os.path.exists(place + "/slow"), what="git at work")
    with open(place + "/slow") as f:
        return int(f.read())


def ends(pid):
    wait_until(lambda: (process_stat(pid) or "X")[0] in "ZX", what="the end of git")


def test_a_host_that_does_not_answer_times_out(slow, repo, place):
    refused(slow("exec", "-c", "1", "--repo-url", repo.url, "--repo-timeout", "1"), 3,
            "--repo-timeout")
    assert not left(place)
    open(place + "/go", "w").close()
    assert text_of(slow, repo.url)["status"] == "submitted"


def test_an_interrupt_ends_staging(slow, repo, place, replay):
    process = slow.start("run", "--question", "q", "--model", replay(repl("SUBMIT(1)")),
                         "--repo-url", repo.url)
    asked = waits(place)
    process.send_signal(signal.SIGINT)
    result = finish(process)
    ends(asked)
    assert (result.status == 130 and "interrupted while the repository was staged" in result.err
            and not left(place))


def test_other_tasks_of_a_batch_end_while_one_is_staged(slow, repo, place, replay):
    """They are runs of one process and one loop, and the repository's host says nothing all the
    while; an interrupt suspends the task that waits for it, with no line and nothing left, and
    the batch goes on with it."""
    with open(os.path.join(slow.home, "tasks.jsonl"), "w") as f:
        f.write(json.dumps({"id": "waits", "question": "q", "settings": {"repo-url": repo.url}})
                + "\n")
        for i in range(4):
            f.write(json.dumps({"id": "t%d" % i, "question": "q"}) + "\n")
    words = ("batch", "tasks.jsonl", "--out", "results.jsonl", "--concurrency", "2", "--model",
             replay({"content": repl("SUBMIT(1)"), "repeat": True}))
    process = slow.start(*words)
    asked = waits(place)

    def lines():
        with open(os.path.join(slow.home, "results.jsonl")) as f:
            return [json.loads(line)["id"] for line in f if '"answer"' in line]
    wait_until(lambda: os.path.exists(os.path.join(slow.home, "results.jsonl"))
               and len(lines()) == 4, what="the others' results")
    assert process_stat(asked) and left(place)
    process.send_signal(signal.SIGINT)
    finish(process)
    ends(asked)
    assert sorted(lines()) == ["t0", "t1", "t2", "t3"] and not left(place)
    open(place + "/go", "w").close()
    assert slow(*words).status == 0
    assert sorted(lines()) == ["t0", "t1", "t2", "t3", "waits"] and not left(place)


def test_a_git_that_is_killed_is_an_error_and_leaves_nothing(slow, repo, place):
    """The next session stages as usual."""
    process = slow.start("exec", "-c", "1", "--repo-url", repo.url)
    os.kill(waits(place), signal.SIGKILL)
    refused(finish(process), 1, "git was killed by signal 9")
    assert not left(place)
    open(place + "/go", "w").close()
    assert text_of(slow, repo.url)["status"] == "submitted"


def test_a_host_that_is_killed_leaves_a_cache_that_is_whole_or_made_anew(slow, repo, place):
    """It is killed in the middle of a fetch; git dies with it, and what it has begun is not taken
    for the whole."""
    commit = repo.head
    process = slow.start("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", commit)
    asked = waits(place)
    (cache,) = os.listdir(os.path.join(place, "cache/droste/repos"))
    cache = os.path.join(place, "cache/droste/repos", cache)
    assert os.path.exists(cache + "/busy") and left(place)
    process.kill()
    finish(process)
    ends(asked)
    # as a git that was killed leaves them
    for lock in ("shallow.lock", "refs/droste/%s.lock" % commit):
        os.makedirs(os.path.dirname(os.path.join(cache, "git", lock)), exist_ok=True)
        open(os.path.join(cache, "git", lock), "w").close()
    open(place + "/go", "w").close()
    assert text_of(slow, repo.url, commit)["submit"]["text"] == "# second\n"
    assert not os.path.exists(cache + "/busy") and not left(place)


def test_a_host_that_is_killed_while_it_writes_files_leaves_nothing_for_long(own, repo, place):
    """At any moment of staging: the next session removes what is left, and has its own."""
    for i in range(3000):
        repo.write("many/%d" % i, "x" * 2000)
    commit = repo.commit()
    text_of(own, repo.url, commit)
    for _ in range(3):
        process = own.start("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", commit)
        wait_until(lambda: left(place), what="a workspace")
        process.kill()
        finish(process)
    assert left(place)
    got = staged(own, "SUBMIT(count=len(list_files('many')))", "--repo-url", repo.url, "--repo-ref",
                 commit)
    assert got["submit"]["count"] == 3000 and not left(place)


def test_a_workspace_in_use_is_not_swept(own, repo, place):
    """The twin of the one above: another session begins while one is at work."""
    process = own.start("exec", "-c",
                        "import os, time\nwhile not os.path.exists('/data/go'): "
                        "time.sleep(0.02)\nSUBMIT(text=read_file('README.md'))",
                        "--repo-url", repo.url, "--volume-name", "v", "--json")
    wait_until(lambda: left(place), what="a workspace")
    text_of(own, repo.url)
    assert len(left(place)) == 1
    staged(own, "open('/data/go', 'w')", "--volume-name", "v")
    assert finish(process).json["submit"]["text"] == "# second\n"


def test_many_sessions_at_once_fetch_once(slow, repo, place):
    """All find that the commit is not there, one gets it, and the others look once more."""
    open(place + "/go", "w").close()
    text_of(slow, repo.url, "v1")

    def asked(word):
        with open(place + "/asked") as f:
            return f.read().count(" %s " % word)
    looked, fetched = asked("rev-parse"), asked("fetch")
    (cache,) = os.listdir(os.path.join(place, "cache/droste/repos"))
    with open(os.path.join(place, "cache/droste/repos", cache, "lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)    # they may look, and not fetch
        processes = [slow.start("exec", "-c", "SUBMIT(text=read_file('README.md'))", "--repo-url",
                                repo.url, "--repo-ref", repo.head, "--json")
                     for _ in range(5)]
        wait_until(lambda: asked("rev-parse") == looked + 5, what="the looks")
    for process in processes:
        result = finish(process)
        assert result.status == 0 and result.json["submit"]["text"] == "# second\n", result
    assert asked("fetch") == fetched + 1


def test_a_damaged_cache_is_made_anew(own, repo, place):
    """A pack that was cut: the session says so, and the next one has all files."""
    commit = text_of(own, repo.url)["repo"]["commit"]
    (pack,) = packs(place)
    os.chmod(pack, 0o644)
    with open(pack, "r+b") as f:
        f.seek(40)
        f.write(b"damaged" * 20)
    assert own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", commit).status != 0
    assert text_of(own, repo.url, commit)["submit"]["text"] == "# second\n"


def test_a_cache_that_lacks_a_file_is_made_anew(own, repo, place):
    """All but one object is there: the session says so, and the next one has all files. Where a
    fetch was killed that is not even tried."""
    commit = text_of(own, repo.url)["repo"]["commit"]

    def lose_a_file():
        (pack,) = packs(place)
        cache = os.path.dirname(os.path.dirname(os.path.dirname(pack)))
        with open(pack, "rb") as f:
            packed = f.read()
        os.unlink(pack)
        subprocess.run(["git", "--git-dir", cache, "unpack-objects", "-q"], env=GIT, input=packed,
                       check=True)
        blob = git(repo.path, "rev-parse", "HEAD:README.md")
        os.unlink(os.path.join(cache, "objects", blob[:2], blob[2:]))
        return os.path.dirname(cache)

    open(os.path.join(lose_a_file(), "busy"), "w").close()
    assert text_of(own, repo.url, commit)["submit"]["text"] == "# second\n"
    lose_a_file()
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", commit), 1,
            "the next attempt fetches it again")
    assert text_of(own, repo.url, commit)["submit"]["text"] == "# second\n"


# Runs a program and says how much memory the largest of its descendants had, in KiB.
MEASURED = """import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as f:
    f.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


def test_gits_memory_is_bounded(own, repo, tmp_path):
    """A pack of some hundred KiB can hold a file of many hundred MiB: it is staged all the same,
    piece by piece."""
    size = 400 << 20
    with open(os.path.join(repo.path, "large"), "wb") as f:
        f.truncate(size)
    repo.commit()
    os.unlink(os.path.join(repo.path, "large"))
    git(repo.path, "gc", "-q")
    own.prefix = [sys.executable, "-c", MEASURED, str(tmp_path / "peak")]
    result = own.cell("import os\nSUBMIT(os.path.getsize('large'))", "--repo-url", repo.url,
                      "--workspace-size", "1G", timeout=120)
    assert result["submit"] == {"output": size}
    assert int((tmp_path / "peak").read_text()) < 250 << 10
