"""Servers of this machine that sandboxes may reach, which rules list by address."""
import contextlib
import http.server
import threading

import pytest

METADATA = "169.254.169.254"
FETCH = """
import urllib.request, urllib.error
def fetch(where):
    try:
        return urllib.request.urlopen("http://%s/" % where, timeout=30).read().decode()
    except urllib.error.HTTPError as e:
        return e.code
    except OSError as e:
        return "no network"
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.headers.get("Authorization", "hello").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def destination(address):
    with http.server.ThreadingHTTPServer((address, 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield "%s:%d" % (address, made.server_address[1])
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def where():
    with destination("127.0.0.2") as found:
        yield found


@pytest.fixture(scope="module")
def elsewhere():
    with destination("127.0.0.3") as found:
        yield found
