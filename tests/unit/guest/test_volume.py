"""The helpers for volumes and the workspace, in a directory: where a path leads, and what is
written."""
import os

import pytest


@pytest.fixture
def volume(guest, tmp_path):
    """The place of the session's volume."""
    place = tmp_path / "volume"
    place.mkdir()
    guest.state.session.volume = str(place)
    return place


@pytest.fixture
def repo(guest, tmp_path):
    """A workspace with a repository in it."""
    place = tmp_path / "workspace" / "repo"
    place.mkdir(parents=True)
    guest.state.session.workspace, guest.state.session.repo = str(place.parent), str(place)
    return place


@pytest.mark.parametrize("path", ["a/b.txt", "/data/a/b.txt", "/home/daytona/memory/a/b.txt",
                                  " a/b.txt\n", "a//./b.txt",
                                  "x/../a/b.txt", "/data//a/b.txt"])
def test_a_path_is_below_the_volume_by_any_of_its_names(guest, volume, path):
    assert guest.save_to_volume(path, "text") == str(volume / "a" / "b.txt")
    assert guest.load_from_volume(path) == guest.load_from_volume(volume / "a" / "b.txt") == "text"


@pytest.mark.parametrize("path, message", [
    ("", "volume path cannot be empty"), (" \n", "volume path cannot be empty"),
    (None, "volume path cannot be empty"),
    (5, "volume path cannot be empty"), (b"a", "volume path cannot be empty"),
    ("a\0b", "invalid volume path: 'a\\x00b'"),
    ("..", "invalid volume path: .."), ("../volume2/x", "invalid volume path"),
    ("/etc/passwd", "invalid volume path: /etc/passwd"),
    (".", "invalid volume path: ."), ("/data", "invalid volume path: /data"),
    ("/datax", "invalid volume path: /datax"),
    ("link/x", "invalid volume path: link/x"), ("a/../../x", "invalid volume path")])
def test_any_other_is_told(guest, volume, path, message):
    """As text, also to who reads, and nothing is written."""
    os.symlink("/tmp", volume / "link")
    (volume.parent / "volume2").mkdir()
    for result in (guest.save_to_volume(path, "x"), guest.load_from_volume(path)):
        assert result.startswith("[error: " + message) and result.endswith("]")
    assert os.listdir(volume) == ["link"] and os.listdir(volume.parent / "volume2") == []


def test_a_link_within_the_volume_is_followed(guest, volume):
    """The twin."""
    (volume / "real").mkdir()
    os.symlink("real", volume / "link")
    guest.save_to_volume("link/x", "text")
    assert (volume / "real" / "x").read_text() == "text"


def test_without_a_volume_every_helper_says_so(guest):
    for result in (guest.save_to_volume("a", "b"), guest.load_from_volume("a"),
                   guest.workspace_write("a", "b"),
                   guest.workspace_append("a", "b"), guest.workspace_read("a")):
        assert result == "[error: no volume mounted at /data]"
    assert guest.workspace_list() == []     # a list, of which each item is a path


@pytest.mark.parametrize("content, data", [("é\r\n", "é\r\n".encode()), (b"\xff\0", b"\xff\0"),
                                           (bytearray(b"x"), b"x"),
                                           (memoryview(b"y"), b"y"), (12, b"12"), (None, b"None"),
                                           ("\udcff", b"\xff"), ("", b"")])
def test_files_contain_exactly_what_was_written(guest, volume, content, data):
    """Bytes are bytes, also where they are added; the rest is text, whose lines end as they do."""
    path = guest.save_to_volume("f", content)
    assert (volume / "f").read_bytes() == data
    guest.workspace_append("f", content)
    guest.workspace_append("f", content)
    assert (volume / "workspace" / "f").read_bytes() == 2 * data
    assert guest.load_from_volume(path) == data.decode("utf-8", "surrogateescape")


def test_a_file_is_written_whole_or_not_at_all(guest, volume, monkeypatch):
    """What cannot be written leaves the old one and nothing beside it; so does what cannot take its
    place."""
    guest.save_to_volume("f", "old")
    with pytest.raises(UnicodeEncodeError):
        guest.save_to_volume("f", "\ud800")
    for call in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(guest.os, call,
                           lambda *a: (_ for _ in ()).throw(OSError(28, "no space")))
            with pytest.raises(OSError, match="no space"):
                guest.save_to_volume("f", "new")
        assert os.listdir(volume) == ["f"] and guest.load_from_volume("f") == "old"


def test_a_file_and_its_name_reach_the_disk(guest, volume, monkeypatch):
    """The file before it takes the other's place, the directory behind; what is added, too."""
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(guest.os, "fsync",
                        lambda fd: (done.append(os.readlink("/proc/self/fd/%d" % fd)), fsync(fd)))
    monkeypatch.setattr(guest.os, "replace", lambda a, b: (done.append("replace"), replace(a, b)))
    guest.save_to_volume("d/f", "x")
    assert done[0].startswith(str(volume / "d" / ".")) and done[1:] == ["replace",
                                                                        str(volume / "d")]
    guest.workspace_append("g", "x")
    assert done[-1] == str(volume / "workspace" / "g")


def test_what_is_not_there_is_told(guest, volume):
    (volume / "d").mkdir()
    for name in ("nothing", "d"):
        assert guest.load_from_volume(name) == "[error: file not found: %s]" % (volume / name)


def test_a_workspace_is_below_the_volume(guest, volume):
    full = guest.workspace_write("/data/workspace/n/a.txt", "1")
    assert full == str(volume / "workspace" / "n" / "a.txt") == guest.workspace_append("n/a.txt",
                                                                                       "2")
    assert guest.workspace_read("/home/daytona/memory/workspace/n/a.txt") == "12"
    guest.workspace_write("b.md", "")
    assert guest.workspace_list() == ["b.md", "n/a.txt"]
    assert guest.workspace_list("*.txt") == guest.workspace_list("n/*") == guest.workspace_list(
        "a.*") == ["n/a.txt"]
    guest.save_to_volume("outside.txt", "x")
    assert guest.workspace_read(
        "../outside.txt") == "[error: invalid workspace path: ../outside.txt]"


def test_a_workspace_is_the_repository_where_there_is_one(guest, volume, repo):
    """Whatever volume there is; no path leads out of it, nor a link that the code has put in its
    place."""
    assert guest.workspace_write("a.txt",
                                 "1") == str(repo / "a.txt") and guest.workspace_list() == ["a.txt"]
    assert guest.workspace_read(str(repo / "a.txt")) == "1"
    assert guest.workspace_read("../a.txt") == "[error: invalid workspace path: ../a.txt]"
    os.rename(repo, repo.parent.parent / "moved")
    os.symlink("/tmp", repo)
    assert guest.workspace_write("x", "y") == "[error: invalid workspace path: x]"


def test_both_names_of_a_workspace_are_its_own(guest, monkeypatch):
    """The functions take paths with either, wherever it is; with Daytona's layout it is seen in
    both places."""
    for place in ("/workspace", "/home/daytona/workspace"):
        guest.state.session.workspace, guest.state.session.repo = place, place + "/repo"
        for path in ("/workspace/repo/a", "/home/daytona/workspace/repo/a", "a"):
            assert guest.in_workspace(path) == (place + "/repo/a", None)
    assert guest.workspace_places() == ["/home/daytona/workspace", "/workspace"]
    guest.state.session.workspace, guest.state.session.volume = "/workspace", "/data"
    assert guest.workspace_places() == ["/workspace"] and guest.volume_places() == ["/data"]
    monkeypatch.setattr(guest.os.path, "isdir", lambda path: path == "/home/daytona/memory")
    assert guest.volume_places() == ["/data", "/home/daytona/memory"]
    guest.state.session.volume = guest.state.session.workspace = "/real/place"
    assert guest.volume_places() == guest.workspace_places() == ["/real/place"]


def test_the_session_gets_their_paths(guest, monkeypatch):
    """By variables of the environment, and by names that the code has."""
    for name in ("DROSTE_VOLUME", "MEMORY_ROOT", "WORKSPACE_ROOT", "REPO_PATH"):
        monkeypatch.setenv(name, "before")
    for name in ("MEMORY_ROOT", "WORKSPACE_ROOT", "REPO_PATH", "CONTEXT_PATHS"):
        monkeypatch.setattr(guest.builtins, name, None, raising=False)
    guest.enter_volume("/data")
    assert (os.environ["DROSTE_VOLUME"], os.environ["MEMORY_ROOT"], guest.builtins.MEMORY_ROOT) == (
        "/data", "/data", "/data")
    guest.enter_volume("/real/place")
    assert guest.builtins.MEMORY_ROOT == os.environ["MEMORY_ROOT"] == "/real/place"
    guest.enter_workspace({"root": "/w", "repo": "/w/repo", "paths": ["/w/a"]})
    assert (guest.builtins.WORKSPACE_ROOT, guest.builtins.REPO_PATH,
            guest.builtins.CONTEXT_PATHS) == ("/w", "/w/repo", ["/w/a"])
    assert (os.environ["WORKSPACE_ROOT"], os.environ["REPO_PATH"]) == ("/w", "/w/repo")
