"""Files of a session: read, written and listed by the host while the session lives, whatever its
code does meanwhile. docs/files.md has the rules. Code is hostile: what it can put in the place of a
file is refused by the errors that pathlib raises, and costs the host nothing.
"""
import os
import stat
import threading

import pytest

import adapters
import droste

#: a directory of its own for each test: sessions are shared
HERE = "import os, tempfile\nhere = tempfile.mkdtemp(dir=os.getcwd())\nprint(here, end='')"


@pytest.fixture
def here(session):
    """The path of an empty directory in the sandbox; `here` in cells."""
    result = session.execute(HERE)
    assert result.ok, result
    yield result.stdout
    session.files.remove(result.stdout, recursive=True, missing_ok=True)


def names(entries):
    return [entry.name for entry in entries]


def test_what_the_host_writes_code_reads_and_the_other_way(session, here):
    """Bytes arrive as they are, of any size; a str becomes UTF-8."""
    data = bytes(range(256)) * 12000 + b"end"
    assert session.files.write(here + "/a", data) == len(data)
    assert session.files.write(here + "/é.txt", "ü\n") == 3
    assert session.execute(
        "print(len(open(here + '/a', 'rb').read()), open(here + '/é.txt').read(), end='')"
        ).stdout == "%d ü\n" % len(data)
    assert session.execute("open(here + '/b', 'wb').write(open(here + '/a', 'rb').read()[::-1])").ok
    assert session.files.read(here + "/b") == data[::-1]
    assert session.files.read_text(here + "/é.txt") == "ü\n"


def test_relative_paths_begin_where_cells_start(session, here):
    name = os.path.basename(here)
    session.files.write(name + "/x", b"1")
    assert session.execute("print(open(here + '/x').read(), end='')").stdout == "1"


def test_ranges_and_streams(session, here):
    """A range is what a slice would be; a stream yields all of it in order."""
    data = os.urandom(2_500_000)
    session.files.write_stream(here + "/a", [data[:7], data[7:]])
    read = session.files.read
    assert read(here + "/a", offset=10, length=5) == data[10:15]
    assert read(here + "/a", offset=len(data) - 3) == data[-3:]
    assert read(here + "/a", offset=len(data) + 1) == b"" == read(here + "/a", length=0)
    assert b"".join(session.files.stream(here + "/a")) == data
    assert b"".join(session.files.stream(here + "/a", offset=1_000_000,
                                         length=1_200_000)) == data[1_000_000:2_200_000]
    session.files.write(here + "/a", b"+", append=True)
    assert read(here + "/a", offset=len(data)) == b"+"


def test_a_read_has_a_limit(session, here):
    """More than `limit` bytes are refused, as many are read."""
    session.files.write(here + "/a", b"x" * 1000)
    with pytest.raises(droste.ArgumentError, match="limit"):
        session.files.read(here + "/a", limit=999)
    assert len(session.files.read(here + "/a", limit=1000)) == 1000


def test_directories(session, here):
    """Made, listed by levels, moved and removed, with the errors of pathlib."""
    files = session.files
    files.make_dir(here + "/d/e")
    files.make_dir(here + "/d/e")                   # parents=True: it may exist
    with pytest.raises(FileExistsError):
        files.make_dir(here + "/d", parents=False)
    files.write(here + "/d/e/x", b"12345")
    files.write(here + "/d/y", b"")
    assert names(files.list(here)) == ["d"] and names(files.list(here + "/d")) == ["e", "y"]
    assert names(files.list(here, depth=3)) == ["d", "d/e", "d/e/x", "d/y"]
    x = files.list(here, depth=3)[2]
    assert x.size == 5 and x.is_file and not x.is_dir and files.stat(here + "/d").is_dir
    files.move(here + "/d/e/x", here + "/z")
    assert not files.exists(here + "/d/e/x") and files.read(here + "/z") == b"12345"
    with pytest.raises(OSError, match="not empty"):
        files.remove(here + "/d")
    files.remove(here + "/d", recursive=True)
    assert names(files.list(here)) == ["z"]
    files.remove(here + "/z")
    with pytest.raises(FileNotFoundError):
        files.remove(here + "/z")
    files.remove(here + "/z", missing_ok=True)


def test_errors_are_those_of_pathlib(session, here):
    """Each names the path, and the session goes on."""
    files = session.files
    files.write(here + "/a", b"1")
    for kind, call in ((FileNotFoundError, lambda: files.read(here + "/none")),
                       (IsADirectoryError, lambda: files.read(here)),
                       (NotADirectoryError, lambda: files.list(here + "/a")),
                       (NotADirectoryError, lambda: files.read(here + "/a/b")),
                       (FileNotFoundError, lambda: files.write(here + "/no/x", b"")),
                       (FileExistsError, lambda: files.write(here + "/a", b"", exclusive=True))):
        with pytest.raises(kind) as e:
            call()
        assert here in e.value.filename
    for path in ("", "a\0b"):
        with pytest.raises(ValueError):
            files.read(path)
    assert files.read(here + "/a") == b"1"


def test_files_do_not_wait_for_a_running_cell(session, here):
    """The cell runs until the host, which has seen its file, writes another one."""
    code = ("open(here + '/begun', 'w').write('1')\nwhile not os.path.exists(here + '/stop'):\n"
            "    pass\nprint('over')")
    results = []
    cell = threading.Thread(target=lambda: results.append(session.execute(code)))
    cell.start()
    while not session.files.exists(here + "/begun"):
        pass
    session.files.write(here + "/large", b"x" * 3_000_000)
    assert len(session.files.read(here + "/large")) == 3_000_000 and not results
    session.files.write(here + "/stop", b"")
    cell.join()
    assert results[0].stdout == "over\n"


def test_patterns_find_regular_files(session, here):
    """A name once, however many patterns match; directories and what is not a file do not match."""
    session.execute("os.makedirs(here + '/out/deep/er')\n"
                    "for n in ('a.png', 'b.txt', 'deep/c.png', 'deep/er/d.png'):\n"
                    "    open(here + '/out/' + n, 'w').write(n)\n"
                    "os.mkfifo(here + '/out/fifo.png'); os.mkdir(here + '/out/dir.png')")
    found = session.files.glob(here + "/out/*.png")
    assert [os.path.basename(name) for name in names(found)] == ["a.png"] and found[0].size == 5
    assert [os.path.relpath(name, here)
            for name in names(session.files.glob(here + "/**/*.png"))] == [
        "out/a.png", "out/deep/c.png", "out/deep/er/d.png"]


def test_uploads_and_downloads(session, here, tmp_path):
    """Directories with what is in them; what is neither file nor directory stays where it is."""
    (tmp_path / "up" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "a").write_bytes(b"1" * 100)
    (tmp_path / "up" / "sub" / "b").write_bytes(b"2" * 200)
    assert session.files.upload(tmp_path / "up", here + "/up") == 300
    session.execute("os.symlink('/etc/passwd', here + '/up/link'); os.mkfifo(here + '/up/fifo')\n"
                    "os.chmod(here + '/up/a', 0o4777)")
    assert session.files.download(here + "/up", tmp_path / "down") == 300
    assert sorted(os.listdir(tmp_path / "down")) == ["a", "sub"]
    assert (tmp_path / "down" / "sub" / "b").read_bytes() == b"2" * 200
    assert not os.stat(tmp_path / "down" / "a").st_mode & (stat.S_ISUID | 0o022)
    session.files.download(here + "/up/a", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"1" * 100


def test_a_failed_download_leaves_the_target_alone(session, here, tmp_path):
    (tmp_path / "one").write_bytes(b"before")
    session.files.write(here + "/a", b"x" * 100)
    with pytest.raises(droste.ArgumentError):
        session.files.download(here + "/a", tmp_path / "one", limit=99)
    assert os.listdir(tmp_path) == ["one"] and (tmp_path / "one").read_bytes() == b"before"
    session.files.download(here + "/a", tmp_path / "one", limit=100)
    assert (tmp_path / "one").read_bytes() == b"x" * 100


# -- hostile code

@pytest.mark.needs("files")
def test_links_lead_nowhere_that_code_may_not_go(session, here, tmp_path):
    """Links and `..` to a file of the host: refused as for the code itself. A link within: read."""
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    os.chmod(secret, 0o600)
    session.execute("os.symlink(%r, here + '/out'); os.symlink('/etc/shadow', here + '/shadow')\n"
                    "open(here + '/own', 'w').write('own'); os.symlink('own', here + '/in')"
                    % str(secret))
    far = session.isolation in ("remote", "container")      # its /etc is its own
    for path in [here + "/out", here + "/" + "../" * 20
                 + str(secret)] + [here + "/shadow"] * (not far):
        with pytest.raises((FileNotFoundError, PermissionError)):
            session.files.read(path)
        with pytest.raises(OSError, match="No such|denied|Read-only"):
            session.files.write(path, b"x")
    assert secret.read_text() == "the host's"
    assert session.files.read(here + "/in") == b"own"
    assert session.files.stat(here + "/in", follow=False).is_link


def test_what_is_no_file_is_refused_at_once(session, here):
    """A FIFO, a socket and devices: neither read nor written, and nothing waits."""
    session.execute("import socket\nos.mkfifo(here + '/fifo')\ns = socket.socket(socket.AF_UNIX)\n"
                    "os.chdir(here); s.bind('sock'); os.chdir('..')")
    # At landlock, code makes no sockets.
    assert session.files.exists(here + "/sock") or session.isolation == "landlock"
    for path in (here + "/fifo", here + "/sock", "/dev/null", "/dev/zero"):
        if path.endswith("sock") and not session.files.exists(path):
            continue
        for call in (session.files.read, lambda path: session.files.write(path, b"1")):
            with pytest.raises(OSError, match="not a regular file|denied"):
                call(path)
    assert stat.S_ISFIFO(session.files.stat(here + "/fifo").mode)


@pytest.mark.needs("any names")
def test_names_of_any_bytes(session, here):
    """A newline, invalid UTF-8, 255 bytes, a leading `-`: each is listed and read."""
    session.execute("for n in (b'new\\nline', b'\\xff\\xfe', b'n' * 255, b'-rf'):\n"
                    "    open(os.path.join(os.fsencode(here), n), 'wb').write(n)")
    found = session.files.list(here)
    assert sorted(os.fsencode(name) for name in names(found)) == [b"-rf", b"new\nline", b"n" * 255,
                                                                  b"\xff\xfe"]
    for name in names(found):
        assert session.files.read(os.path.join(here, name)) == os.fsencode(name)


def test_a_listing_has_a_limit(session, here):
    """20,000 entries are refused where 10,000 were asked for, and listed where they are allowed."""
    session.execute(
        "for i in range(20000):\n    os.close(os.open('%s/%05d' % (here, i), os.O_CREAT))")
    with pytest.raises(droste.ArgumentError, match="limit"):
        session.files.list(here)
    found = session.files.list(here, limit=20000)
    assert len(found) == 20000 and found[0].name == "00000"


def test_a_file_that_is_replaced_or_grows_is_read_as_it_was(session, here):
    """Between two pieces of one read: the old file's contents, up to its old size."""
    for change in (
        "open(here + '/b', 'wb').write(b'b' * 3000000); os.replace(here + '/b', here + '/a')",
        "open(here + '/a', 'ab').write(b'b' * 3000000)"):
        session.files.write(here + "/a", b"a" * 2_500_000)
        pieces = session.files.stream(here + "/a")
        read = next(pieces)
        assert session.execute(change).ok
        read += b"".join(pieces)
        assert read == b"a" * 2_500_000
        assert b"b" in session.files.read(here + "/a")


@pytest.mark.needs("alone")
def test_code_that_kills_the_file_service_hurts_itself_alone(opened):
    """Code ends every process that it may signal: a call may fail, and the next one works. Where
    Landlock has scopes, code may not signal the service."""
    interp = opened()
    if interp.isolation not in ("full", "light"):
        pytest.skip("%s: code sees other processes than its own there" % interp.isolation)
    interp.files.write("a", b"1")
    for _ in range(3):
        assert interp.execute("import os\nfor p in os.listdir('/proc'):\n"
                              "    try:\n        if p.isdigit() and int(p) not in (1, "
                              "os.getpid()):\n"
                              "            os.kill(int(p), 9)\n    except PermissionError:\n       "
                              " pass").ok
        try:
            interp.files.read("a")
        except droste.LostError:
            pass
        assert interp.files.read("a") == b"1"
    assert interp.execute("6 * 7").echo == "42"


@pytest.mark.needs("alone")
def test_code_cannot_get_into_the_file_service(opened):
    """Its memory is closed to code of the same user; code's own children are open to it."""
    interp = opened()
    if interp.isolation not in ("full", "light"):
        pytest.skip("%s: code sees other processes than its own there" % interp.isolation)
    interp.files.write("a", b"1")
    result = interp.execute('''
import os, subprocess
own = {1, os.getpid()}
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in own]
child = subprocess.Popen(["sleep", "100"])
def is_open(pid):
    try:
        open("/proc/%d/environ" % pid, "rb").close(), open("/proc/%d/mem" % pid, "rb").close()
        return True
    except PermissionError:
        return False
SUBMIT(count=len(others), others=[is_open(pid) for pid in others], child=is_open(child.pid))''')
    assert result.count == 1 and result.others == [False] and result.child


def test_files_end_with_the_session(opened):
    """After its end, a call says so; another session has files of its own."""
    interp = opened()
    interp.files.write("a", b"1")
    files = interp.files
    interp.shutdown()
    with pytest.raises(droste.Error, match="not open"):
        files.read("a")
    interp.start()
    assert not interp.files.exists("a")


def test_a_session_that_dies_ends_its_calls(opened):
    """The sandbox is gone: LostError, not a wait."""
    interp = opened()
    interp.files.write("a", b"1")
    interp.execute("import os; os._exit(3)")
    with pytest.raises(droste.LostError):
        interp.files.read("a")


def test_files_are_there_as_soon_as_a_session_is_open(opened):
    """Before any cell, and while its mounts are still being made: the file is in the sandbox."""
    for _ in range(5):
        interp = opened()
        interp.files.write("a", b"1")
        assert interp.execute("SUBMIT(a=open('a').read())").a == "1"


def test_files_leave_nothing_on_the_host(environment):
    """Descriptors and processes are as before, however the session ended, with a stream open."""
    def use(code):
        interp = environment.open()
        interp.files.write("a", b"x" * 2_000_000)
        pieces = interp.files.stream("a")
        next(pieces)
        interp.execute(code)
        interp.shutdown()

    for code in ("1", "import os; os._exit(3)"):
        use(code)
        before = environment.holdings()
        for _ in range(3):
            use(code)
        assert adapters.wait_for(lambda: all(now <= before[name]
                                             for name, now in environment.holdings().items()))


def test_entries_name_owners_and_where_links_lead(session, environment):
    """Facts of a link are its own; what it leads to is told beside. A broken one leads nowhere."""
    code = ("import os\nos.makedirs('facts/d')\nopen('facts/d/f', 'w').close()\n"
            "os.chmod('facts/d/f', 0o640)\nos.symlink('d/f', 'facts/l')\n"
            "os.symlink('none', 'facts/b')\nprint(os.getuid(), os.path.realpath('facts/d/f'))")
    if environment.id.endswith("landlock"):
        code = code.replace("os.chmod('facts/d/f', 0o640)\n", "")
    uid, path = session.execute(code).stdout.split()
    listed = {info.name: info for info in session.files.list("facts", depth=2)}
    assert sorted(listed) == ["b", "d", "d/f", "l"]
    assert {info.uid for info in listed.values()} == {int(uid)}
    link, broken = listed["l"], session.files.stat("facts/b", follow=False)
    assert link.is_link and (link.target, link.target_mode) == (path, listed["d/f"].mode)
    assert broken.is_link and broken.target.endswith("/none") and broken.target_mode == 0
    assert listed["d/f"].target is None
    names = session.commands.run("stat -c '%U %G' facts/d/f").stdout.split()
    assert [name or "UNKNOWN" for name in (link.user, link.group)] == names \
        or environment.id.endswith("landlock")
    session.files.remove("facts", recursive=True)
