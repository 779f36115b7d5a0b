"""kill -9 at any instant of what writes to a volume: what had finished is there, the rest is whole
or absent.

DROSTE_VOLUME_KILLS=500 for as many; by default some of each kind.
"""
import hashlib
import os
import random
import signal
import time

import pytest

from harness import finish, wait_until

KILLS = int(os.environ.get("DROSTE_VOLUME_KILLS", "20"))
FILES = 40
BIG = 3 << 20


class Life:
    """A volume and what must be in it. The model of it changes where a command has surely
    succeeded, and has two states where a command was killed."""

    def __init__(self, droste, random_state):
        self.droste, self.random, self.round = droste, random_state, 0
        self.longest = {}
        assert droste("volume", "create", "v", "--volume-size", "1G").status == 0

    @property
    def place(self):
        return os.path.join(self.droste.data, "volumes", "v")

    def content(self, text):
        """What a source holds: BIG bytes that say which one it is."""
        return (text * (BIG // len(text) + 1))[:BIG]

    def digest(self, below):
        """{path: hash} of all files below a directory of the volume."""
        found = {}
        for directory, _, names in os.walk(os.path.join(self.place, below)):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, os.path.join(self.place, below))] = hashlib.sha256(
                        f.read()).hexdigest()
        return found

    def begin(self, *words, **options):
        """Starts it and kills it somewhere in it, or behind it: True if it had ended well."""
        began = time.monotonic()
        process = self.droste.start(*words, **options)
        spent = self.longest.get(words[:2])
        if spent is None:       # the first of its kind says how long it takes
            result = finish(process)
            assert result.status == 0, result
            self.longest[words[:2]] = time.monotonic() - began
            return True
        time.sleep(self.random.uniform(0, 1.1 * spent))
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        result = finish(process)
        assert result.status in (0, -signal.SIGKILL), result
        return result.status == 0

    def check(self):
        """The next command works, and nothing unfinished is left once somebody was alone."""
        result = wait_until(lambda: self.sweep(), what="the volume")
        assert result.status == 0 and os.listdir(os.path.join(self.place, "aside")) == [], result

    def sweep(self):
        result = self.droste("volume", "limit", "v", "--volume-size", "1G")
        return result if os.listdir(os.path.join(self.place, "aside")) == [] else None


@pytest.fixture
def life(droste):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    return Life(droste, random.Random(seed))


def write_source(life, text):
    path = os.path.join(life.droste.home, "source")
    with open(path, "wb") as f:
        f.write(life.content(text))
    return path


def write_tree(life, text):
    path = os.path.join(life.droste.home, "tree%d" % life.round)
    os.makedirs(os.path.join(path, "deep"))
    for i in range(FILES):
        with open(os.path.join(path, "deep" if i % 2 else ".", "f%d" % i), "wb") as f:
            f.write(text * 1000)
    return path


def put_file(life):
    """The old content or the new one."""
    before = life.digest("data").get("big")
    new = life.content(b"round %d " % life.round)
    done = life.begin("volume", "put", "v", write_source(life, b"round %d " % life.round), "big")
    now, expected = life.digest("data").get("big"), hashlib.sha256(new).hexdigest()
    assert now == expected or (not done and now == before)


def put_tree(life):
    """All of a directory, or none of it; then it goes the same way."""
    source, name = write_tree(life, b"round %d " % life.round), "d%d" % life.round
    done = life.begin("volume", "put", "v", source, name)
    there = {p for p in life.digest("data") if p.startswith(name + "/")}
    assert len(there) == FILES or (not done
                                   and not os.path.exists(os.path.join(life.place, "data", name)))
    if there:
        done = life.begin("volume", "rm", "v", name)
        left = os.path.join(life.place, "data", name)
        assert not os.path.exists(left) or (
            not done and len([p for p in life.digest("data") if p.startswith(name + "/")]) == FILES)
        life.droste("volume", "rm", "v", name)


def snapshot(life):
    """A whole one or none; the data do not change."""
    before, name = life.digest("data"), "s%d" % life.round
    done = life.begin("volume", "snapshot", "v", name)
    assert life.digest("data") == before
    there = os.path.isdir(os.path.join(life.place, "snapshots", name))
    assert there or not done
    if there:
        assert life.digest("snapshots/" + name) == before
        done = life.begin("volume", "rm", "v", "--snapshot", name)
        left = os.path.isdir(os.path.join(life.place, "snapshots", name))
        assert not left or (not done and life.digest("snapshots/" + name) == before)


def restore(life):
    """The data of before or those of the snapshot, whole."""
    kept = life.digest("data")
    assert life.droste("volume", "snapshot", "v", "r%d" % life.round).status == 0
    life.droste("volume", "put", "v", write_tree(life, b"since %d " % life.round),
                "since%d" % life.round)
    now = life.digest("data")
    done = life.begin("volume", "restore", "v", "r%d" % life.round)
    became = life.digest("data")
    assert became == kept or (not done and became == now)
    assert life.droste("volume", "rm", "v", "--snapshot", "r%d" % life.round).status == 0
    life.droste("volume", "rm", "v", "since%d" % life.round)


SESSION = """
import os
for i in range(200):
    with open("/data/plain-%(round)d-%%d" %% i, "w") as f:
        f.write("text " * 1000)
    save_to_volume("saved-%(round)d", ("%%d " %% i) * 20000)
    print(i, flush=True)
"""


def session(life):
    """What a session said that it had written is there, and what it saved is one of its texts,
    whole."""
    process = life.droste.start("exec", "-c", SESSION % {"round": life.round}, "--volume-name", "v",
                                "--isolation", "full")
    wanted = life.random.randrange(20)
    last = -1
    for line in process.stdout:
        last = int(line)
        if last >= wanted:
            break
    time.sleep(life.random.uniform(0, 0.01))
    os.killpg(process.pid, signal.SIGKILL)
    rest = finish(process).out.split()
    last = int(rest[-1]) if rest else last
    data = os.path.join(life.place, "data")
    for i in range(last + 1):
        with open(os.path.join(data, "plain-%d-%d" % (life.round, i))) as f:
            assert f.read() == "text " * 1000
    with open(os.path.join(data, "saved-%d" % life.round)) as f:
        text = f.read()
    number = text.split(" ", 1)[0]
    assert text == (number + " ") * 20000 and int(number) >= last
    life.check()        # its guest is gone now: only then is what it had open closed
    for name in os.listdir(data):
        if name.startswith(("plain-", "saved-", ".")):
            os.unlink(os.path.join(data, name))


def make_and_remove(life):
    """A volume is there whole, or not at all."""
    name, root = "w%d" % life.round, os.path.join(life.droste.data, "volumes")
    done = life.begin("volume", "create", name)
    there = os.path.isdir(os.path.join(root, name))
    assert there or not done
    if there:
        assert life.droste("volume", "du", name).status == 0
        assert life.droste("volume", "put", name, write_tree(life, b"x"), "t").status == 0
        done = life.begin("volume", "rm", name)
        left = os.path.isdir(os.path.join(root, name))
        assert not left or (not done and life.droste("volume", "get", name, "t/f0", "-").out
                            == "x" * 1000)
        life.droste("volume", "rm", name)
    assert life.droste("volume", "create",
                       "z").status == 0 and life.droste("volume", "rm", "z").status == 0
    assert not [n for n in os.listdir(root) if n.startswith((".new", ".gone"))]


KINDS = (put_file, put_tree, snapshot, restore, session, make_and_remove)


def test_a_kill_leaves_all_or_nothing(life):
    """At some moment of each kind of command, one after the other on one volume."""
    for life.round in range(KILLS + len(KINDS)):        # the first of each kind is measured
        KINDS[life.round % len(KINDS)](life)
        life.check()
