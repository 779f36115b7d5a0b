"""The files of Jupyter's clients: nothing outside of the permitted directory, and no half file."""
import base64
import hashlib
import json
import os
import socket
import stat
import subprocess
import threading
from urllib.parse import quote

import pytest

from server_process import DROSTE, Server
from test_keys import create

ID = "00000000-0000-0000-0000-000000000000"
SECRET = "not for clients"


class Files:
    """A server with a directory, and an outside that no client may reach."""

    def __init__(self, home):
        self.top, self.outside = home / "notebooks", home / "outside"
        self.top.mkdir()
        self.outside.mkdir()
        (self.outside / "secret").write_text(SECRET)
        self.writer, self.reader, self.other = (
            create(home, name, "--scopes", scopes) for name, scopes in (
                ("writer", "read,sandboxes"), ("reader", "read"), ("other", "runs")))
        self.server = Server(home, "--notebooks", str(self.top))

    def ask(self, method, path, body=None, query="", key=None):
        target = "/api/contents" + (quote("/" + path) if path else "") + query
        return self.server.ask(
            method, target, body, {"Authorization": "token " + (key or self.writer)})

    def get(self, path, query=""):
        answer = self.ask("GET", path, None, query)
        assert answer.status == 200, answer.body
        return answer.json

    def put(self, path, content, form="text", **more):
        return self.ask("PUT", path, {"type": "file", "format": form, "content": content, **more})

    def listed(self, path=""):
        return sorted(entry["name"] for entry in self.get(path)["content"])


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("contents"))
    yield files
    assert (files.outside / "secret").read_text() == SECRET
    assert os.listdir(files.outside) == ["secret"]
    assert files.server.stop() == 0


@pytest.fixture
def files(started):
    """Each test begins with an empty directory."""
    subprocess.run(["find", str(started.top), "-mindepth", "1", "-delete"], check=True)
    return started


def notebook(*sources, **metadata):
    return {"cells": [{"cell_type": "code", "id": "c%d" % i, "execution_count": None, "outputs": [],
                       "metadata": metadata, "source": source} for i, source in enumerate(sources)],
            "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_text_and_bytes_come_back_as_they_were(files):
    made = files.put("a é.txt", "über\r\n")
    assert made.status == 201 and made.json["path"] == "a é.txt" and made.json["content"] is None
    assert made.headers["Location"] == "/api/contents/a%20%C3%A9.txt"
    assert (files.top / "a é.txt").read_bytes() == "über\r\n".encode()
    read = files.get("a é.txt")
    assert (read["content"], read["format"], read["mimetype"], read["size"], read["writable"]) == (
        "über\r\n", "text", "text/plain", 7, True)
    data = bytes(range(256)) * 5
    assert files.put("b.png", base64.encodebytes(data).decode(), "base64").status == 201
    read = files.get("b.png")
    assert base64.b64decode(read["content"]) == data
    assert (read["format"], read["mimetype"], read["type"]) == ("base64", "image/png", "file")
    assert base64.b64decode(files.get("a é.txt", "?format=base64")["content"])[-1:] == b"\n"
    assert files.ask("GET", "b.png", None, "?format=text").status == 400
    described = files.get("b.png", "?content=0")
    assert described["content"] is described["format"] is None and described["size"] == len(data)
    assert files.put("a é.txt", "").status == 200 and files.get("a é.txt")["content"] == ""


def test_a_notebook_is_lines_in_its_file_and_text_for_clients(files):
    book = notebook("a = 1\nb = '\x7fé\u2028'", "")
    saved = files.ask("PUT", "n.ipynb", {"type": "notebook", "content": book})
    assert saved.status == 201 and saved.json["type"] == "notebook"
    written = (files.top / "n.ipynb").read_text()
    assert json.loads(written)["cells"][0]["source"] == ["a = 1\n", "b = '\x7fé\u2028'"]
    assert written.startswith('{\n "cells": [\n  {\n   "cell_type": "code",\n')
    read = files.get("n.ipynb")
    assert (read["content"], read["format"], read["type"]) == (book, "json", "notebook")
    assert files.get("n.ipynb", "?type=file")["content"] == written
    assert files.ask("GET", "n.ipynb", None, "?type=directory").status == 400


def test_more_lines_than_fit_stay_one_text(files):
    """Each line of a notebook's file takes memory of its own while it is written."""
    for lines, kind in ((1000, list), (1000000, str)):
        book = notebook("x\n" * lines)
        assert files.ask("PUT", "n.ipynb", {"type": "notebook", "content": book}).status < 300
        written = json.loads((files.top / "n.ipynb").read_text())["cells"][0]["source"]
        assert type(written) is kind and files.get("n.ipynb")["content"] == book


def test_no_notebook_says_itself_that_it_is_trusted(files):
    """A client would show scripts of it."""
    book = notebook("1", trusted=True, kept=True)
    (files.top / "n.ipynb").write_text(json.dumps(book))
    assert files.get("n.ipynb")["content"]["cells"][0]["metadata"] == {"kept": True}
    files.ask("PUT", "m.ipynb", {"type": "notebook", "content": book})
    assert "trusted" not in (files.top / "m.ipynb").read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"nbformat": 4}', "[" * 200,
                                  '{"nbformat": 3, "metadata": {}, "worksheets": []}'])
def test_what_is_no_notebook_is_no_notebook(files, text):
    (files.top / "n.ipynb").write_text(text)
    assert files.ask("GET", "n.ipynb").status == 400
    assert files.get("n.ipynb", "?type=file")["content"] == text
    for content in ([], None, {"nbformat": 3, "cells": [], "metadata": {}}):
        body = {"type": "notebook", "content": content}
        assert files.ask("PUT", "n.ipynb", body).status == 400
    assert (files.top / "n.ipynb").read_text() == text


def test_directories(files):
    assert files.ask("PUT", "d", {"type": "directory"}).status == 201
    assert files.ask("PUT", "d", {"type": "directory"}).status == 200
    files.put("d/one", "1")
    files.put("d/" + ID, "2")
    assert files.listed("d") == [ID, "one"] == files.listed("/d//")
    top = files.get("")
    assert (top["type"], top["path"], top["name"], top["format"]) == ("directory", "", "", "json")
    entry = top["content"][0]
    assert (entry["path"], entry["type"], entry["content"], entry["size"]) == (
        "d", "directory", None, None)
    assert files.get("d/" + ID)["content"] == "2"
    assert files.put("d/one/two", "").status == 404
    assert files.put("none/one", "").status == 404
    assert files.put("d", "").status == 400
    assert files.ask("DELETE", "d").status == 400 and files.listed("d") == [ID, "one"]
    for name in ("d/one", "d/" + ID, "d"):
        assert files.ask("DELETE", name).status == 204
    assert files.listed() == [] and files.ask("DELETE", "/").status == 400


def test_new_files_get_free_names(files):
    def made(path="", **body):
        answer = files.ask("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.json["path"]
    names = [made(type=kind, ext=ext) for kind, ext in (
        ("notebook", ""), ("notebook", ""), ("directory", ""), ("directory", ""), ("file", ".py"),
        ("file", ".py"), ("", ""))]
    assert names == ["Untitled.ipynb", "Untitled1.ipynb", "Untitled Folder", "Untitled Folder 1",
                     "untitled.py", "untitled1.py", "untitled"]
    assert files.get("Untitled.ipynb")["content"]["cells"] == []
    files.put("x.tar.gz", "data")
    assert made("Untitled Folder", copy_from="/x.tar.gz") == "Untitled Folder/x.tar.gz"
    assert made(copy_from="x.tar.gz") == "x-Copy1.tar.gz"
    assert files.get("x-Copy1.tar.gz")["content"] == "data"
    assert files.ask("POST", "x.tar.gz", {}).status == 400
    assert files.ask("POST", "none", {}).status == 404
    for ext in ("/../x", "\n", "x" * 300):
        assert files.ask("POST", "", {"ext": ext}).status == 400


def test_a_file_has_one_checkpoint(files):
    files.put("n.py", "one")
    assert files.ask("GET", "n.py/checkpoints").json == []
    for content in ("two", "three"):
        files.put("n.py", content)
        made = files.ask("POST", "n.py/checkpoints")
        assert made.status == 201 and made.json["id"] == "checkpoint"
        assert made.headers["Location"] == "/api/contents/n.py/checkpoints/checkpoint"
    files.put("n.py", "four")
    assert len(files.ask("GET", "n.py/checkpoints").json) == 1
    assert os.listdir(files.top / ".ipynb_checkpoints") == ["n-checkpoint.py"]
    assert files.listed() == ["n.py"]
    assert files.ask("POST", "n.py/checkpoints/other").status == 404
    assert files.ask("POST", "n.py/checkpoints/checkpoint").status == 204
    assert files.get("n.py")["content"] == "three"
    files.put("n.py", "five")
    assert files.ask("PATCH", "n.py", {"path": "m.py"}).status == 200
    assert files.ask("POST", "m.py/checkpoints/checkpoint").status == 204
    assert files.get("m.py")["content"] == "three"
    assert files.ask("DELETE", "m.py/checkpoints/checkpoint").status == 204
    assert files.ask("DELETE", "m.py/checkpoints/checkpoint").status == 404
    assert files.ask("PUT", "m.py/checkpoints", {}).status == 405
    files.ask("POST", "m.py/checkpoints")
    assert files.ask("DELETE", "m.py").status == 204
    assert os.listdir(files.top) == []


def test_renaming_replaces_nothing(files):
    for name in ("a", "b"):
        files.put(name, name)
    files.ask("PUT", "d", {"type": "directory"})
    moved = files.ask("PATCH", "a", {"path": "/d/c"})
    assert moved.status == 200 and moved.json["path"] == "d/c"
    assert files.ask("PATCH", "d/c", {"path": "b"}).status == 409
    assert files.get("b")["content"] == "b" and files.get("d/c")["content"] == "a"
    assert files.ask("PATCH", "d", {"path": "d/e"}).status == 400
    assert files.ask("PATCH", "d", {"path": "e"}).status == 200
    for body in ({}, {"path": "/"}, {"path": None}, {"path": 1}):
        assert files.ask("PATCH", "b", body).status == 400
    assert files.ask("PATCH", "", {"path": "x"}).status == 405
    assert files.listed() == ["b", "e"]


def test_uploads_in_chunks(files):
    data = os.urandom(100000)
    parts = [base64.b64encode(data[at:at + 40000]).decode() for at in range(0, len(data), 40000)]
    for _ in range(2):      # a second one replaces it
        for chunk, part in zip((1, 2, -1), parts):
            assert chunk == 1 or files.listed() in ([], ["big.bin"])
            assert files.put("big.bin", part, "base64", chunk=chunk).status in (200, 201)
        assert (files.top / "big.bin").read_bytes() == data
    assert os.listdir(files.top) == ["big.bin"]
    for chunk in (2, -1):
        assert files.put("other", "x", chunk=chunk).status == 400
    assert files.put("other", "x", chunk=-2).status == 400
    assert files.listed() == ["big.bin"]


def hidden(files):
    (files.top / ".hidden").write_text(SECRET)
    (files.top / ".dir").mkdir()
    (files.top / ".dir" / "x").write_text(SECRET)
    return [".hidden", ".dir", ".dir/x", "./.hidden"]


def dots(_):
    return ["..", "../outside/secret", "d/../../outside/secret", ".", "d/.", "d/./seen"]


def links(files):
    os.symlink(files.outside / "secret", files.top / "link")
    os.symlink(files.outside, files.top / "directory")
    os.symlink("seen", files.top / "inside")
    os.symlink("../../outside", files.top / "d" / "up")
    os.symlink("/proc/self/root", files.top / "root")
    os.symlink("nothing", files.top / "dangling")
    return ["link", "directory", "directory/secret", "inside", "d/up", "d/up/secret", "dangling",
            "root", "root/etc/passwd"]


def specials(files):
    os.mkfifo(files.top / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files.top / "socket"))
    if os.geteuid() != 0:
        return ["fifo", "socket"]
    os.mknod(files.top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return ["fifo", "socket", "null"]


@pytest.mark.parametrize("names", [hidden, dots, links, specials])
def test_what_no_client_reaches(files, names):
    """Each request that is refused here is answered for an ordinary file and directory."""
    (files.top / "d").mkdir()
    for ordinary in ("seen", "d/seen"):
        (files.top / ordinary).write_text("seen")
    refused = names(files)
    before = {path: os.lstat(files.top / path) for path in refused}

    def asks(path, free):
        """The last one moves it to a name that is free."""
        yield files.ask("GET", path, None, "?content=0")
        yield files.ask("GET", path)
        yield files.put(path, "new")
        yield files.ask("POST", "", {"copy_from": path})
        yield files.ask("POST", path + "/checkpoints")
        yield files.ask("GET", path + "/checkpoints")
        yield files.ask("POST", path + "/checkpoints/checkpoint")
        yield files.ask("DELETE", path + "/checkpoints/checkpoint")
        yield files.ask("PATCH", path, {"path": free})
    for path in refused:
        for answer in asks(path, "free"):
            assert answer.status in (400, 404), (path, answer.body)
            assert set(answer.json) == {"message", "reason"} and SECRET not in answer.body.decode()
        assert files.ask("DELETE", path).status in (400, 404)
        assert files.ask("POST", path, {"type": "file"}).status in (400, 404)
        assert files.put(path + "/new", "new").status in (400, 404)
        assert files.ask("PATCH", "seen", {"path": path}).status in (400, 404, 409)
        assert files.ask("PATCH", "seen", {"path": path + "/new"}).status in (400, 404)
        after = os.lstat(files.top / path)
        assert (after.st_ino, after.st_mtime) == (before[path].st_ino, before[path].st_mtime)
    assert files.listed() == ["d", "seen"] and files.listed("d") == ["seen"]
    assert [answer.status for answer in asks("seen", "free")] == [
        200, 200, 200, 201, 201, 200, 204, 204, 200]
    assert files.put("d/new", "new").status == 201 and files.ask("DELETE", "d/new").status == 204


@pytest.mark.parametrize("target", ["/../outside/secret", "/%2e%2e/outside/secret",
                                    "/%2e%2e%2foutside%2fsecret", "//etc/passwd", "/d%2f..%2f..",
                                    "/%252e%252e/outside/secret", "/..%5coutside%5csecret", "/%ff",
                                    "/a%0ab", "/" + "x" * 256, "/" + "x/" * 3000],
                         ids=lambda target: target[:30])
def test_hostile_targets_name_nothing(files, target):
    token = {"Authorization": "token " + files.writer}
    files.put("seen", "1")
    for method, body in (("GET", None), ("PUT", {"type": "file", "format": "text", "content": ""}),
                         ("DELETE", None)):
        answer = files.server.ask(method, "/api/contents" + target, body, token)
        assert answer.status in (400, 404), answer.body
    assert files.listed() == ["seen"]
    for spelled in ("/seen", "/%73een", "//seen/", "%2fseen"):
        answer = files.server.ask("GET", "/api/contents" + spelled, None, token)
        assert answer.json["content"] == "1"


def test_a_directory_of_checkpoints_that_is_a_link_is_refused(files):
    files.put("a", "1")
    os.symlink(files.outside, files.top / ".ipynb_checkpoints")
    assert files.ask("POST", "a/checkpoints").status == 404
    assert files.put("a", "x", chunk=1).status == 404
    assert files.ask("PATCH", "a", {"path": "b"}).status == 200
    assert os.listdir(files.outside) == ["secret"]
    os.unlink(files.top / ".ipynb_checkpoints")
    assert files.ask("POST", "b/checkpoints").status == 201
    checkpoint = files.top / ".ipynb_checkpoints" / "b-checkpoint"
    checkpoint.unlink()
    os.symlink(files.outside / "secret", checkpoint)
    assert files.ask("GET", "b/checkpoints").json == []
    assert files.ask("POST", "b/checkpoints/checkpoint").status == 404
    assert files.get("b")["content"] == "1"


def test_readers_and_writers_at_once_see_whole_files(files):
    texts = [letter * 100000 for letter in "abcd"]
    files.put("f", texts[0])
    os.chmod(files.top / "f", 0o640)

    def write(text):
        for _ in range(5):
            assert files.put("f", text).status == 200
    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert files.get("f")["content"] in texts
    for writer in writers:
        writer.join()
    assert os.listdir(files.top) == ["f"]
    assert stat.S_IMODE(os.stat(files.top / "f").st_mode) == 0o640


def test_limits_of_size(files):
    with open(files.top / "large", "wb") as sparse:
        sparse.truncate((16 << 20) + 1)
    assert files.ask("GET", "large").status == 413
    assert files.get("large", "?content=0")["size"] == (16 << 20) + 1
    text = "x" * (16 << 20)
    assert files.put("f", text).status == 201 and files.get("f")["size"] == len(text)
    assert files.put("f", text + "y").status == 413
    assert os.stat(files.top / "f").st_size == len(text)
    with open(files.top / "large", "wb") as sparse:
        sparse.truncate((1 << 30) + 1)
    (files.top / ".ipynb_checkpoints").mkdir()
    os.rename(files.top / "large", files.top / ".ipynb_checkpoints" / ".part-up")
    assert files.put("up", "x", chunk=2).status == 413
    assert files.put("up", "x", chunk=1).status == 200
    assert files.put("up", "y", chunk=-1).status == 201 and files.get("up")["content"] == "xy"


def test_a_file_has_a_hash_if_it_is_asked_for(files):
    """Of its bytes, as they are on the disk; a directory has none."""
    files.put("f.txt", "é\n")
    (files.top / "d").mkdir()
    digest = hashlib.sha256("é\n".encode()).hexdigest()
    for query in ("?hash=1", "?hash=1&content=0"):
        model = files.get("f.txt", query)
        assert (model["hash"], model["hash_algorithm"]) == (digest, "sha256")
    assert files.get("f.txt")["hash"] is None and files.get("d", "?hash=1")["hash"] is None
    assert files.ask("GET", "f.txt", None, "?hash=2").status == 400


def test_files_are_downloaded_as_they_are(files):
    """Of any size, and never as a page of the server."""
    data = bytes(range(256)) * (80 << 10)
    (files.top / "a b").mkdir()
    (files.top / "a b" / "large.html").write_bytes(data)

    def get(path, key=files.writer):
        return files.server.ask("GET", "/files/" + quote(path), None,
                                {"Authorization": "token " + key})
    answer = get("a b/large.html", files.reader)
    assert answer.status == 200 and answer.body == data
    headers = answer.headers
    assert headers["Content-Type"] == "text/html" and headers["Content-Disposition"] == "attachment"
    assert headers["Content-Security-Policy"] == "sandbox"
    assert headers["X-Content-Type-Options"] == "nosniff"
    (files.top / "link").symlink_to(files.outside / "secret")
    for path, status in (("none", 404), ("a b", 400), ("link", 404), (".hidden", 404),
                         ("../outside/secret", 404), ("a b/checkpoints", 404)):
        assert get(path).status == status, path
    assert get("a b/large.html", files.other).status == 403
    assert get("a b/large.html", "x").status == 401


def test_a_full_disk_leaves_the_file_as_it_was(files):
    small = files.top / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=True)
    try:
        assert files.put("small/f", "old").status == 201
        for body in ({"content": "x" * (1 << 20)}, {"content": "x" * (1 << 20), "chunk": 1}):
            answer = files.put("small/f", **body)
            assert answer.status == 507 and answer.json["reason"] == "full", answer.body
        assert files.ask("POST", "small/f/checkpoints").status == 201
        assert files.get("small/f")["content"] == "old"
        assert files.put("small/f", "new").status == 200
        found = [name for _, _, names in os.walk(small) for name in names]
        assert sorted(found) == ["f", "f-checkpoint"]
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def test_each_key_may_have_a_directory_of_its_own(tmp_path):
    one, other = (create(tmp_path, name, "--scopes", "sandboxes") for name in ("one", "other"))
    top = tmp_path / "notebooks"
    top.mkdir()
    server = Server(tmp_path, "--notebooks", str(top), "--notebooks-per-key")

    def ask(method, path, key, body=None):
        return server.ask(method, path, body, {"Authorization": "token " + key})
    body = {"type": "file", "format": "text", "content": "mine"}
    assert ask("PUT", "/api/contents/f", one, body).status == 201
    assert ask("GET", "/files/f", one).body == b"mine"
    for path in ("/api/contents/f", "/files/f"):
        assert ask("GET", path, other).status == 404
    assert ask("GET", "/api/contents", other).json["content"] == []
    assert server.stop() == 0
    assert sorted(len(os.listdir(top / name)) for name in os.listdir(top)) == [0, 1]


def test_malformed_bodies_write_nothing(files):
    files.put("f", "1")
    for body in ({"type": "file", "content": "x"}, {"type": "file", "format": "text"},
                 {"type": "file", "format": "base64", "content": "a"},
                 {"type": "file", "format": "base64", "content": "é==="},
                 {"type": "file", "format": "json", "content": {}}, {"type": "link"}, "{", "[]",
                 {"type": "file", "format": "text", "content": ["x"]}, {"type": 1}, {"chunk": "1"}):
        assert files.ask("PUT", "f", body).status == 400, body
    for query in ("?type=link", "?format=gif", "?content=2"):
        assert files.ask("GET", "f", None, query).status == 400
    assert files.get("f", "?type=file&format=text&content=1&unknown=1")["content"] == "1"


def test_keys_that_read_do_not_write(files):
    files.put("f", "1")
    body = {"type": "file", "format": "text", "content": "2"}
    assert files.ask("GET", "f", key=files.reader).json["content"] == "1"
    for method, path, sent in (("PUT", "f", body), ("POST", "", {}), ("DELETE", "f", None),
                               ("PATCH", "f", {"path": "g"}), ("POST", "f/checkpoints", None)):
        assert files.ask(method, path, sent, key=files.reader).status == 403
        assert files.ask(method, path, sent, key=files.writer[:-1] + "x").status == 401
    assert files.ask("GET", "f", key=files.other).status == 403
    assert files.ask("PUT", "f", body).status == 200 and files.listed() == ["f"]


@pytest.mark.parametrize("what", ["none", "file"])
def test_a_directory_that_cannot_be_opened_is_reported_before_serving(tmp_path, what):
    (tmp_path / "file").write_text("")
    words = [DROSTE, "serve", "--listen", "127.0.0.1:0", "--notebooks", str(tmp_path / what)]
    for more in (["--check"], []):
        done = subprocess.run(
            words + more,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, text=True, capture_output=True)
        assert done.returncode != 0 and str(tmp_path / what) in done.stderr
