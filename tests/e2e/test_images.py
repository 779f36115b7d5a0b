"""`--image` of local sandboxes: what is unpacked, and what is refused."""
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import pytest

import oci
import roots
from droste_cli import DROSTE
from harness import NOBODY, wait_until

PYTHON = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                      "python")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A layer with Python."""
    place = str(tmp_path_factory.mktemp("image") / "root")
    roots.make_root(place)
    return oci.tree(place)


@pytest.fixture
def home(tmp_path):
    for directory in (tmp_path, *tmp_path.parents):    # an ordinary user gets here
        if str(directory) == tempfile.gettempdir():
            break
        os.chmod(directory, 0o755)
    os.makedirs(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def run(home):
    def start(image, *words, code="pass", **more):
        return subprocess.run([DROSTE, "exec", "--image", image, *words, "-c", code], text=True,
                              capture_output=True, timeout=120, env=environment(home), **more)
    return start


def environment(home):
    return {**os.environ, "DROSTE_HOME": str(home), "DROSTE_DATABASE": "none"}


def left(home):
    """What is in the directory of images, except notes of names."""
    place = home / "images"
    names = os.listdir(place) if place.exists() else []
    return sorted(name for name in names if not name.startswith(".name-"))


def test_layers_whiteouts_links_and_variables_apply(run, home, tmp_path, base):
    set_user_id = oci.special("opt/set", tarfile.REGTYPE, mode=0o4755)
    below = oci.layer([("opt/gone/a", "1"), ("opt/gone/b", "2"), ("opt/one", "3"),
                       ("opt/kept", "4"), (set_user_id, ""),
                       oci.special("opt/link", tarfile.SYMTYPE, "/etc/release-of-test"),
                       oci.special("opt/hard", tarfile.LNKTYPE, "opt/kept")])
    above = oci.layer([("opt/.wh.one", ""), ("opt/gone/new", "5"), ("opt/gone/.wh..wh..opq", "")])
    layers = [base, below, above]
    config = oci.config_of(layers, env=["PATH=/usr/bin", "COLOR=green", "HOME=/root"])
    oci.write_layout(tmp_path / "layout", layers, config=config)
    out = run("oci:%s:latest" % (tmp_path / "layout"), code="""
import os
import select
print(sorted(os.listdir("/opt")), os.listdir("/opt/gone"), os.environ["COLOR"],
      os.environ["HOME"], os.stat("/opt/hard").st_ino == os.stat("/opt/kept").st_ino,
      os.stat("/opt/set").st_mode & 0o7777 == 0o755, open("/opt/link").read())
""")
    assert out.stdout == ("['gone', 'hard', 'kept', 'link', 'set'] ['new'] green /tmp True True "
                          "made by the tests\n\n"), (out.stdout, out.stderr)


def test_a_docker_archive_and_a_layout_of_one_image_are_unpacked_once(run, home, tmp_path, base):
    digest = oci.write_layout(tmp_path / "layout", [base])
    oci.write_archive(tmp_path / "saved.tar", [base])
    for name in ("oci:%s" % (tmp_path / "layout"), "docker-archive:%s" % (tmp_path / "saved.tar")):
        out = run(name, code="print(42)")
        assert out.stdout == "42\n", out.stderr
    assert left(home) == [digest]


def test_zstd_and_plain_layers_are_read(run, tmp_path, base):
    zstd = shutil.which("zstd")
    packs = {"plain": lambda data: data}
    if zstd:
        packs["zstd"] = lambda data: subprocess.run([zstd, "-q"], input=data, check=True,
                                                    capture_output=True).stdout
    for name, pack in packs.items():
        oci.write_layout(tmp_path / name, [base], pack=pack)
        assert run("oci:%s" % (tmp_path / name), code="print(1)").stdout == "1\n"


HOSTILE = {
    "dot dot": ([("../escaped", "x")], "leads out"),
    "dot dot within": ([("a/../../escaped", "x")], "leads out"),
    "absolute": ([("/escaped", "x")], "leads out"),
    "whiteout of dot dot": ([("a/.wh...", "")], "removes nothing"),
    "whiteout of nothing": ([("a/.wh.", "")], "removes nothing"),
    "hard link out": ([oci.special("a", tarfile.LNKTYPE, "../../etc/passwd")], "leads out"),
    "absolute hard link": ([oci.special("a", tarfile.LNKTYPE, "/etc/passwd")], "leads out"),
    "hard link to nothing": ([oci.special("a", tarfile.LNKTYPE, "b")], "not there"),
    "hard link to itself": ([oci.special("a", tarfile.LNKTYPE, "a")], "not there"),
    "device": ([oci.special("a", tarfile.CHRTYPE)], "a device"),
    "block device": ([oci.special("a", tarfile.BLKTYPE)], "a device"),
    "twice": ([("a", "1"), ("a", "2")], "twice"),
    "file then directory": ([("a", "1"), oci.special("a", tarfile.DIRTYPE)], "twice"),
    "below a file": ([("a", "1"), ("a/b", "2")], "not a directory"),
    "circular links": ([oci.special("a", tarfile.SYMTYPE, "b"),
                        oci.special("b", tarfile.SYMTYPE, "a"), ("a/c", "1")], "not a directory"),
    "deep": ([("/".join(["d"] * 300), "x")], "too long"),
    "long name": ([("n" * 300, "x")], "too long"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_layer_is_refused_and_leaves_nothing(run, home, tmp_path, case):
    entries, why = HOSTILE[case]
    oci.write_layout(tmp_path / "layout", [oci.layer([("before", "1"), *entries])])
    out = run("oci:%s" % (tmp_path / "layout"))
    assert out.returncode != 0 and why in out.stderr, out.stderr
    assert left(home) == []
    assert not list(tmp_path.glob("**/escaped"))


def test_links_of_a_layer_are_followed_within_the_image_only(run, home, tmp_path, base):
    outside = tmp_path / "outside"
    outside.mkdir()
    up = "/".join([".."] * 20)
    layer = oci.layer([oci.special("abs", tarfile.SYMTYPE, str(outside)), oci.special(
        str(outside)[1:], tarfile.DIRTYPE, mode=0o755), ("abs/written", "x"),
        oci.special("up", tarfile.SYMTYPE, up + str(outside)), ("up/also", "x")])
    oci.write_layout(tmp_path / "layout", [base, layer])
    out = run("oci:%s" % (tmp_path / "layout"), code="import os; print(sorted(os.listdir('/abs')))")
    assert os.listdir(outside) == []
    assert out.stdout in ("['also', 'written']\n", ""), out.stderr


def cut(data):
    return data[:len(data) // 2]


def flip(data):
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("damage", [cut, flip, lambda data: b""], ids=["cut", "changed", "empty"])
def test_every_damaged_blob_is_noticed(run, home, tmp_path, damage):
    seen = []
    layers = [oci.layer([("a", "1" * 5000)])]
    oci.write_layout(tmp_path / "whole", layers,
                     damage=lambda name, data: seen.append(name) or data)
    for which in seen:
        place = tmp_path / which
        oci.write_layout(place, layers,
                         damage=lambda name, data: damage(data) if name == which else data)
        out = run("oci:%s" % place)
        assert out.returncode != 0 and "python3" not in out.stderr, out.stderr
        assert left(home) == []


def test_a_bomb_is_refused_before_it_is_written(run, home, tmp_path):
    """A sparse file of 1 TiB, which is a few bytes in the archive."""
    big = tarfile.TarInfo("big")
    big.size = 1 << 40
    header = big.tobuf(tarfile.GNU_FORMAT)
    oci.write_layout(tmp_path / "layout", [header + bytes(1024)])
    out = run("oci:%s" % (tmp_path / "layout"))
    assert out.returncode != 0 and "too large" in out.stderr
    assert left(home) == []


def test_an_image_for_another_machine_is_refused(run, home, tmp_path, base):
    config = oci.config_of([base], architecture="mips")
    oci.write_layout(tmp_path / "layout", [base], config=config)
    out = run("oci:%s" % (tmp_path / "layout"))
    assert "linux/mips" in out.stderr and left(home) == []


@pytest.mark.parametrize("json", ["[]", "{}", '{"manifests": [1]}', '{"manifests": {}}', "[[[[",
                                  '{"manifests": [{"digest": "sha256:../../x"}]}',
                                  '{"manifests": [{"digest": "md5:00"}]}'])
def test_a_broken_index_is_refused(run, tmp_path, json):
    (tmp_path / "index.json").write_text(json)
    out = run("oci:%s" % tmp_path)
    assert out.returncode != 0 and out.stderr.startswith("droste: ")


def start_many(home, image, count, code="print(42)"):
    words = [DROSTE, "exec", "--image", image, "-c", code]
    return [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=environment(home)) for _ in range(count)]


def test_programs_that_unpack_an_image_at_once_make_one(home, tmp_path, base):
    digest = oci.write_layout(tmp_path / "layout", [base])
    for host in start_many(home, "oci:%s" % (tmp_path / "layout"), 4):
        out, err = host.communicate(timeout=120)
        assert out == "42\n", err
    assert left(home) == [digest]


def test_a_killed_unpacking_leaves_nothing_for_the_next(run, home, tmp_path, base):
    digest = oci.write_layout(tmp_path / "layout", [base])

    def kill(wait):
        host, = start_many(home, "oci:%s" % (tmp_path / "layout"), 1)
        wait()
        host.send_signal(signal.SIGKILL)
        host.communicate()

    for _ in range(10):
        kill(lambda: wait_until(lambda: left(home), what="the unpacking"))
        if left(home) == [".new-" + digest]:
            break
        shutil.rmtree(home / "images")      # it was done before the signal came
    else:
        pytest.fail("no attempt was killed while it unpacked")
    for delay in (0.02, 0.05, 0.1, 0.2):
        kill(lambda: time.sleep(delay))
    out = run("oci:%s" % (tmp_path / "layout"), code="print(42)")
    assert out.stdout == "42\n", out.stderr
    assert left(home) == [digest]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_reported_and_nothing_is_left(run, home, tmp_path, base):
    oci.write_layout(tmp_path / "layout", [base])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", home], check=True)
    try:
        out = run("oci:%s" % (tmp_path / "layout"))
        assert out.returncode != 0 and "No space left" in out.stderr, out.stderr
        assert left(home) == []
    finally:
        subprocess.run(["umount", home], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="root starts it as another user")
def test_an_ordinary_user_has_images_of_its_own(home, tmp_path, base):
    oci.write_layout(tmp_path / "layout", [base])
    os.chown(home, NOBODY, NOBODY)
    program = shutil.copy(DROSTE, tmp_path / "droste")
    out = subprocess.run(["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY,
                          "--clear-groups", program, "exec", "--isolation", "full", "--image",
                          "oci:%s" % (tmp_path / "layout"), "-c", "print(42)"],
                         capture_output=True, text=True, env=environment(home), cwd="/")
    if "not available here" in out.stderr:
        pytest.skip(out.stderr)
    assert out.stdout == "42\n", out.stderr


def test_a_name_without_skopeo_is_refused_by_name(home):
    empty = home / "bin"
    empty.mkdir()
    out = subprocess.run([DROSTE, "exec", "--image", "python:3.12-slim", "-c", "1"], text=True,
                         capture_output=True, env={**environment(home), "PATH": str(empty)})
    assert out.returncode != 0 and "skopeo" in out.stderr, out.stderr


@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
def test_what_skopeo_cannot_fetch_is_reported_in_its_words(run, home):
    out = run("localhost:1/nobody/nothing:1")
    assert out.returncode != 0 and "skopeo could not fetch" in out.stderr
    assert left(home) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("words", [["image", "pull", "x.example/y:1"],
                                   ["exec", "--image", "x.example/y:1", "-c", "1"]])
def test_what_fetches_an_image_ends_with_a_killed_program(home, words, how):
    """A program of the name skopeo that never ends: what is shown is whose end it follows."""
    directory, started = home / "bin", home / "started"
    directory.mkdir()
    (directory / "skopeo").write_text("#!/bin/sh\necho $$ > %s.new\nmv %s.new %s\nexec sleep 999\n"
                                      % ((started,) * 3))
    (directory / "skopeo").chmod(0o755)
    program = subprocess.Popen([DROSTE, *words], stderr=subprocess.PIPE, env={
        **environment(home), "PATH": "%s:/usr/bin:/bin" % directory})
    while not started.exists():
        assert program.poll() is None, program.stderr.read()
        time.sleep(0.01)
    pid = int(started.read_text())
    end = os.pidfd_open(pid)
    program.send_signal(how)
    program.wait(60)
    assert select.select([end], [], [], 60)[0] == [end]
    os.close(end)


def test_pull_never_fetches_nothing(run):
    out = run("python:3.12-slim", "--pull", "never")
    assert out.returncode != 0 and "--pull never" in out.stderr


def test_image_and_rootfs_exclude_each_other(run, tmp_path):
    out = run("oci:%s" % tmp_path, "--rootfs", str(tmp_path))
    assert out.returncode != 0 and "exclude each other" in out.stderr


@pytest.fixture
def image(home):
    def run(*words):
        return subprocess.run([DROSTE, "image", *words], text=True, capture_output=True,
                              timeout=60, env=environment(home))
    return run


def test_image_pull_ls_inspect_and_rm(image, home, tmp_path):
    """By a name or an id; a file with two names counts once."""
    layer = oci.layer([("data", b"x" * 3000000), oci.special("same", tarfile.LNKTYPE, "data")])
    name = "oci:%s:latest" % (tmp_path / "layout")
    digest = oci.write_layout(tmp_path / "layout", [layer],
                              config=oci.config_of([layer], env=["A=b"]))
    other = oci.write_layout(tmp_path / "other", [oci.layer([("other", "")])])
    assert image("ls", "--json").stdout == "[]\n"
    for source, wanted in ((name, digest), ("oci:%s" % (tmp_path / "other"), other)):
        out = image("pull", source)
        assert out.stdout == wanted + "\n", out.stderr
    listed = {one["id"]: one for one in json.loads(image("ls", "--json").stdout)}
    assert set(listed) == {digest, other}
    assert listed[digest]["names"] == [name] and listed[digest]["bytes"] == 3000000
    assert (listed[digest]["files"], listed[digest]["in_use"], listed[digest]["damaged"]) == (
        2, False, False)
    for which in (name, digest, digest[:8]):
        out = json.loads(image("inspect", which).stdout)
        assert out["config"]["config"]["Env"] == ["A=b"] and out["id"] == digest
    assert "%s       2 MiB\n    [%s]\n" % (digest[:12], json.dumps(name)) in image("ls").stdout
    assert image("rm", digest[:8]).returncode == 0
    assert image("rm", "oci:%s" % (tmp_path / "other")).returncode == 0
    assert os.listdir(home / "images") == []


@contextlib.contextmanager
def unpacking(home, digest):
    """What another program does that unpacks the image, and takes its time."""
    place = home / "images" / (".new-" + digest)
    os.makedirs(place)
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


OTHERS_ANSWER = """
import asyncio, sys
from droste import Interpreter

async def main():
    there = Interpreter(image=sys.argv[1], database="none")
    starting = asyncio.ensure_future(there.execute("SUBMIT(x=2)"))
    async with Interpreter(database="none") as other:
        for n in range(5):
            assert (await other.execute("SUBMIT(x=%d)" % n)).x == n
        print(starting.done(), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, input)
        print((await starting).x)
    await there.shutdown()

asyncio.run(main())
"""


def test_other_sessions_answer_while_an_image_is_unpacked(home, tmp_path, base):
    digest = oci.write_layout(tmp_path / "layout", [base])
    with subprocess.Popen([sys.executable, "-c", OTHERS_ANSWER, "oci:%s" % (tmp_path / "layout")],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**environment(home), "PYTHONPATH": PYTHON}) as program:
        with unpacking(home, digest):
            assert program.stdout.readline() == "False\n"
        assert program.communicate("\n", timeout=60)[0] == "2\n"
    assert left(home) == [digest]


@pytest.mark.parametrize("words", [["run", "?", "--model", "replay:model.jsonl", "--image"],
                                   ["image", "pull"]], ids=lambda words: words[0])
def test_an_interrupt_ends_the_wait_for_an_image(image, home, tmp_path, words):
    digest = oci.write_layout(tmp_path / "layout", [oci.layer([("a", "1")])])
    name = "oci:%s" % (tmp_path / "layout")
    (tmp_path / "model.jsonl").write_text('{"content": "SUBMIT(1)"}\n')
    with unpacking(home, digest):
        with subprocess.Popen([DROSTE, *words, name], stderr=subprocess.PIPE, text=True,
                              env=environment(home), cwd=tmp_path) as program:
            lock = os.stat(home / "images" / (".new-" + digest)).st_ino
            while not waits_at(program.pid, lock):
                assert program.poll() is None
                time.sleep(0.02)
            program.send_signal(signal.SIGINT)
            errors = program.communicate(timeout=60)[1]
    assert program.returncode == 130 and "interrupted" in errors, (program.returncode, errors)
    assert image("pull", name).stdout == digest + "\n"
    assert left(home) == [digest]


def waits_at(pid, inode):
    """The process has opened the file of this inode."""
    for fd in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(OSError):
            if os.stat("/proc/%d/fd/%s" % (pid, fd)).st_ino == inode:
                return True
    return False


@pytest.mark.parametrize("which", ["", "ab", "0123456789", "..", "oci:/nowhere", ".name-a"])
def test_image_rm_and_inspect_refuse_what_is_not_there(image, which, home, tmp_path):
    digest = oci.write_layout(tmp_path / "layout", [oci.layer([("a", "")])])
    assert image("pull", "oci:%s" % (tmp_path / "layout")).returncode == 0
    for verb in ("rm", "inspect"):
        out = image(verb, which)
        assert out.returncode == 2 and "no image has the name or id" in out.stderr, out.stderr
    assert digest in left(home)


def test_an_image_in_use_is_not_removed_and_named_and_then_it_is(image, home, tmp_path, base):
    digest = oci.write_layout(tmp_path / "layout", [base])
    name = "oci:%s" % (tmp_path / "layout")
    code = "import time; print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([DROSTE, "exec", "--image", name, "-c", code],
                          stdout=subprocess.PIPE, text=True, env=environment(home)) as user:
        assert user.stdout.readline() == "1\n"     # before, it may be between unpacking and using
        assert json.loads(image("ls", "--json").stdout)[0]["in_use"]
        out = image("rm", name)
        assert out.returncode == 2, out.stderr
        assert "the image '%s' (%s) is in use" % (name, digest[:12]) in out.stderr
        user.terminate()
    wait_until(lambda: image("rm", name).returncode == 0, what="the end of its sandbox")
    assert os.listdir(home / "images") == []


@pytest.mark.parametrize("damage", ["changed", "no configuration", "no root"])
def test_a_damaged_image_is_reported_and_can_be_removed(image, run, home, tmp_path, damage):
    digest = oci.write_layout(tmp_path / "layout", [oci.layer([("a", "")])])
    name = "oci:%s" % (tmp_path / "layout")
    assert image("pull", name).returncode == 0
    place = home / "images" / digest
    if damage == "changed":
        (place / "config.json").write_text((place / "config.json").read_text() + " ")
    elif damage == "no configuration":
        os.unlink(place / "config.json")
    else:
        shutil.rmtree(place / "root")
    assert "  damaged\n" in image("ls").stdout
    assert json.loads(image("inspect", name).stdout)["config"] is None
    out = run(name)
    assert out.returncode and "`droste image rm %s` removes it" % digest[:12] in out.stderr
    assert image("rm", digest).returncode == 0
    assert "damaged" not in image("ls").stdout
    assert image("pull", name).stdout == digest + "\n"
