"""The real program, for the tests of its commands: run to its end, or driven through a terminal."""
import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
FILL = os.path.join(os.path.dirname(DROSTE), "tests", "fill_record")
PATIENCE = 120      # seconds until a test gives up; nothing is expected to take long


def environment(home, **more):
    """Nothing of the caller's settings, and all that lasts below `home`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith((
                "DROSTE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "AZURE_", "OPENROUTER_",
                "VLLM_", "XDG_")) and name != "VIRTUAL_ENV"}
    kept.update(HOME=str(home), DROSTE_HOME=str(home / "data"),
                XDG_CONFIG_HOME=str(home / "config"),
                TERM="xterm", LC_ALL="C.UTF-8")
    kept.update(more)
    return kept


def droste(home, *words, stdin="", prefix=(), **env):
    """Runs the program to its end."""
    return subprocess.run([*prefix, DROSTE, *map(str, words)], input=stdin, capture_output=True,
                          text=True, errors="replace", cwd=home, timeout=PATIENCE,
                          env=environment(home, **env))


def recording(home, *lines, name="model.jsonl"):
    """A replay file of these replies; a str is the root's next reply."""
    path = home / name
    path.write_text("".join(json.dumps({"content": line} if isinstance(line, str) else line) + "\n"
                            for line in lines))
    return "replay:" + name


def fill(home, *words):
    """Writes into the record below `home` what no run of today makes (tests/e2e/fill_record.c)."""
    data = os.path.join(home, "data")
    os.makedirs(data, exist_ok=True)
    subprocess.run([FILL, os.path.join(data, "runs.db"), *map(str, words)], check=True,
                   timeout=PATIENCE)


def lines(result):
    """The lines of an export, read."""
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def plain(text):
    """Without what only moves the cursor or paints."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text)


class Terminal:
    """The program on a terminal of its own, a hundred columns wide."""

    def __init__(self, home, *words, **env):
        self.output = ""
        self.at = 0
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(home)
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
                os.execve(DROSTE, [DROSTE, *map(str, words)], environment(home, **env))
            finally:
                os._exit(127)

    def read(self, seconds):
        """Takes what comes within the time; False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:     # EIO: the other side is closed
            return False
        self.output += self.decode(data)
        return bool(data)

    def expect(self, text):
        """Waits until the text comes after what was expected last; gives what came before it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            shown = plain(self.output)
            found = shown.find(text, self.at)
            if found >= 0:
                before = shown[self.at:found]
                self.at = found + len(text)
                return before
            if time.monotonic() > deadline or not self.read(0.2) and plain(self.output) == shown:
                raise AssertionError("%r did not come; after what was expected last there is %r"
                                     % (text, shown[self.at:]))

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        """Types a line at the prompt and gives what stands before the next prompt."""
        self.type(text + "\n")
        self.expect(text)
        return self.expect(">>> ")

    def status(self):
        """Waits for the end; the exit status, or minus the signal."""
        deadline = time.monotonic() + PATIENCE
        while self.read(0.1):
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


if not os.access(DROSTE, os.X_OK):
    sys.exit("%s is not built; run make first, or set BUILD" % DROSTE)
