"""Requests of a run's sandbox to the network are in its record, refused ones included."""
import http.server
import json
import os
import sqlite3
import subprocess
import threading

import pytest
from browser import CHROMIUM, FLAGS

FETCH = """```repl
import urllib.request, urllib.error
def fetch(url):
    try:
        return len(urllib.request.urlopen(url).read())
    except urllib.error.HTTPError as e:
        return e.code
SUBMIT([fetch("http://%s/a?b"), fetch("http://%s/missing"), fetch("http://169.254.169.254/latest")])
```"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        Handler.authorization = self.headers.get("Authorization")
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(bytes(5000))

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield "127.0.0.2:%d" % made.server_address[1]
        made.shutdown()
        thread.join()


def test_requests_are_recorded_and_shown(droste, ask, server, tmp_path):
    database = tmp_path / "runs.db"
    done = ask([FETCH % (server, server)], "--allow-net", server, "--database", str(database))
    run = done.json
    assert run["answer"] == [5000, 404, 403], done
    with sqlite3.connect(database) as db:
        rows = db.execute("SELECT method, host || ':' || port, path, address, refused, status,"
                          " received >= 5000, sent > 0, seconds >= 0, turn, cell IS NOT NULL"
                          " FROM requests ORDER BY id").fetchall()
    assert rows == [("GET", server, "/a?b", server, 0, 200, 1, 1, 1, 1, 1),
                    ("GET", server, "/missing", server, 0, 404, 0, 1, 1, 1, 1),
                    ("GET", "169.254.169.254:80", "/latest", None, 1, 403, 0, 0, 1, 1, 1)]
    shown = droste("runs", "show", run["run"], "--database", str(database)).out
    assert "GET %s/a?b  200" % server in shown
    assert "GET 169.254.169.254:80/latest  refused: 169.254.169.254:80 is not allowed" in shown
    lines = droste("runs", "export", run["run"], "--database", str(database)).out.splitlines()
    exported = json.loads(lines[-1])["requests"]
    assert [(r["path"], r["refused"], r["status"], r["turn"]) for r in exported] == [
        ("/a?b", False, 200, 1), ("/missing", False, 404, 1), ("/latest", True, 403, 1)]
    assert json.loads(droste("runs", "show", run["run"], "--json", "--database",
                             str(database)).out)["requests"] == exported
    if CHROMIUM:
        page = tmp_path / "page.html"
        droste("runs", "export", run["run"], "--format", "html", "--out", str(page), "--database",
               str(database))
        drawn = subprocess.run(
            [CHROMIUM, *FLAGS, "--user-data-dir=%s" % (tmp_path / "browser"), "--dump-dom",
             str(page)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "HOME": str(tmp_path)}, check=True).stdout
        network = drawn.partition(">Network</h2>")[2]
        assert "%s/missing</td><td>404" % server in network
        assert "169.254.169.254:80/latest</td><td class=\"failure\">refused" in network
    removed = droste("runs", "rm", run["run"], "--database", str(database))
    with sqlite3.connect(database) as db:
        assert db.execute("SELECT count(*) FROM requests").fetchone() == (0,), removed


def test_the_record_has_a_placeholder_and_not_the_secret(droste, ask, server, tmp_path):
    """Neither has what is shown; the server got the secret."""
    value, database = "sk-live-0123456789", tmp_path / "runs.db"
    (tmp_path / "key").write_text(value)
    done = ask(["""```repl
import os, urllib.request
ask = urllib.request.Request("http://%s/a?key=" + os.environ["KEY"],
                             headers={"Authorization": "Bearer " + os.environ["KEY"]})
SUBMIT([urllib.request.urlopen(ask).status, os.environ["KEY"]])
```""" % server], "--allow-net", server, "--database", str(database),
               "--secret", "KEY=@%s for http://%s" % (tmp_path / "key", server))
    status, placeholder = done.json["answer"]
    assert status == 200 and Handler.authorization == "Bearer " + value
    with sqlite3.connect(database) as db:
        assert db.execute("SELECT path FROM requests").fetchall() == [("/a?key=" + placeholder,)]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert value.encode() not in stored and placeholder.encode() in stored
    assert value not in done.out + done.err + droste(
        "runs", "show", done.json["run"], "--database", str(database)).out
