"""The program in a real terminal (tmux), and a model that answers when a test says so."""
import http.server
import itertools
import json
import os
import shlex
import shutil
import subprocess
import threading
import time

from droste_cli import DROSTE, PATIENCE, environment

TMUX = shutil.which("tmux")
NUMBERS = itertools.count()     # a server that ends still has its socket


class Screen:
    """The program in a tmux server of its own, as a shell runs it."""

    def __init__(self, home, *words, columns=80, rows=30, locale="C.UTF-8", command=None, **env):
        self.socket = os.path.join(str(home), "tmux%d" % next(NUMBERS))
        utf8 = ["-u"] if "UTF-8" in locale else []
        kept = environment(home, LC_ALL=locale, **env)
        kept.pop("TERM", None) if "TERM" not in env else None
        assignments = " ".join("%s=%s" % (name, shlex.quote(kept[name])) for name in (
            "HOME", "DROSTE_HOME", "XDG_CONFIG_HOME", "LC_ALL", *env))
        line = command or " ".join(shlex.quote(str(word)) for word in [DROSTE, *words])
        script = "trap : INT; cd %s; export %s; %s; echo \"[left with $?]\"; exec cat" % (
            shlex.quote(str(home)), assignments, line)
        self.base = [TMUX, "-S", self.socket, "-f", "/dev/null", *utf8]
        subprocess.run([*self.base, "new-session", "-d", "-x", str(columns), "-y", str(rows), "sh",
                        "-c", script],
                       check=True, env=kept, timeout=PATIENCE)

    def tmux(self, *words):
        return subprocess.run([*self.base, *words], check=True, capture_output=True,
                              timeout=PATIENCE).stdout.decode(
            "utf-8", "replace")

    def text(self, colours=False, scrollback=False):
        """The lines of the screen, without empty ones at the end."""
        words = ["capture-pane",
                 "-p"] + (["-e"] if colours else []) + (["-S", "-"] if scrollback else [])
        return self.tmux(*words).rstrip()

    def wait(self, condition):
        """Waits until condition(text of the screen) holds, or the text contains the string."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + PATIENCE
        while True:
            text = self.text(scrollback=True)
            if holds(text):
                return text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)    # between looks; what is waited for is the condition

    def type(self, *keys):
        """Presses keys by tmux's names; other words are typed as they are."""
        self.tmux("send-keys", *keys)

    def line(self, text):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def resize(self, columns, rows=30):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def left(self):
        """Waits for the program's end; its status."""
        text = self.wait("[left with ")
        return int(text.rsplit("[left with ", 1)[1].split("]")[0])

    def close(self):
        subprocess.run([*self.base, "kill-server"], capture_output=True, timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Model:
    """A server that answers each request with the first reply that fits, piece by piece.

    A reply is (a part of the last message, pieces): a str is streamed, a threading.Event is waited
    for, an int is a status to refuse with (a dict behind it: the headers).
    """

    def __init__(self, *replies):
        self.replies = list(replies)
        self.lock = threading.Lock()
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.answer(self, str(body["messages"][-1]["content"]))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def flags(self):
        return ["--model", "openai/gpt-5-mini", "--base-url",
                "http://127.0.0.1:%d/v1" % self.server.server_port]

    def answer(self, handler, last):
        with self.lock:
            at = next(i for i, (part, *_) in enumerate(self.replies) if part in last)
            _, *pieces = self.replies.pop(at)
        if isinstance(pieces[0], int):
            kind = "server_error" if pieces[0] >= 500 else "invalid_request_error"
            text = json.dumps({"error": {"message": pieces[1], "type": kind}}).encode()
            handler.send_response(pieces[0])
            for name, value in (pieces[2] if len(pieces) > 2 else {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        for piece in pieces:
            if isinstance(piece, str):
                self.send(handler, {"choices": [{"index": 0, "delta": {"content": piece}}]})
            elif not piece.wait(PATIENCE):
                return
        self.send(handler, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                            "usage": {"prompt_tokens": 1000, "completion_tokens": 100}})
        handler.wfile.write(b"data: [DONE]\n\n")

    def send(self, handler, value):
        handler.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        handler.wfile.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
