"""The kernels of other languages, for code contexts of E2B's API.

Such a context is a Python session as any other. It starts a program, gives it the code, and passes
on what that writes, so that output, interrupts and ends work as they do for Python. A program gets
requests on a socket, and answers each with a line of JSON.
"""
import codecs
import contextlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time


class Failed(Exception):
    """The code has failed, with a traceback of its own language."""

    traceback = None

    def _render_traceback_(self):
        return [self.traceback or f"{type(self).__name__}: {self}\n"]


class ExitStatus(Failed):
    """The code's last command failed."""


class KernelDied(Failed):
    """The code has ended its program, or there is none; the next code starts another one."""


class Shown:
    """A value of another language, by its forms."""

    def __init__(self, forms):
        self.text = forms.pop("text/plain", "")
        self.forms = forms

    def __repr__(self):
        return self.text

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.forms


class Kernel:
    """A program, which is started when it is needed, and again when it has ended."""

    name = needs = ""
    patience = 1    #: seconds that an interrupted program has to answer; then it ends

    def __init__(self):
        self.process, self.env = None, {}

    def start(self):
        if self.process is not None:
            for f in (self.process.stdout, self.process.stderr, self.control):
                f.close()
        self.control, theirs = socket.socketpair()
        self.env = dict(os.environ)
        with theirs:
            try:
                self.process = subprocess.Popen(
                    self.command(theirs.fileno()), stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(theirs.fileno(),))
            except FileNotFoundError:
                raise KernelDied(f"the sandbox has no program {self.name}: {self.needs}") from None

    def changes(self):
        """The variables that have changed since the last time, and those that are no more."""
        now = dict(os.environ)
        changed = {k: v for k, v in now.items() if self.env.get(k) != v}
        gone = [k for k in self.env if k not in now]
        self.env = now
        return changed, gone

    def descendants(self):
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    parents[int(pid)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                pass
        found = [self.process.pid]
        for one in found:       # grows
            found += [pid for pid, parent in parents.items() if parent == one]
        return found[1:]

    def interrupt(self):
        """Interrupts what the program has started; True if it will answer."""
        started = self.descendants()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        return bool(started)

    def read(self, f):
        try:
            return os.read(f.fileno(), 65536)
        except ConnectionError:     # of the socket: the program has ended
            return b""

    def pump(self, seconds=None):
        """Passes output on until the program answers; None if it ends, or the time does."""
        streams = {self.process.stdout: sys.stdout, self.process.stderr: sys.stderr}
        decoders = {f: codecs.getincrementaldecoder("utf-8")("replace") for f in streams}
        deadline = time.monotonic() + seconds if seconds else None
        answer, ended = b"", False
        with selectors.DefaultSelector() as selector:
            for f in (*streams, self.control):
                selector.register(f, selectors.EVENT_READ)
            while True:
                left = max(deadline - time.monotonic(), 0) if deadline else None
                over = ended or answer.endswith(b"\n")
                ready = [key.fileobj for key, _ in selector.select(0 if over else left)]
                for f in ready:
                    data = self.read(f)
                    if not data:
                        selector.unregister(f)
                        ended = ended or f == self.control
                    elif f == self.control:
                        answer += data
                    else:
                        streams[f].write(decoders[f].decode(data))
                if not ready and (over or left == 0):
                    return json.loads(answer) if over and answer else None

    def run(self, code):
        if self.process is None or self.process.poll() is not None:
            self.start()
        try:
            self.control.sendall(self.request(code, *self.changes()))
            answer = self.pump()
        except KeyboardInterrupt:
            if not self.interrupt() or self.pump(self.patience) is None:
                self.process.kill()
                self.process.wait()
            raise
        except ConnectionError:     # it ended at once
            answer = self.pump()
        if answer is None:
            raise KernelDied(f"{self.name} ended: {self.process.wait()}")
        return self.result(answer)


class Bash(Kernel):
    name, needs = "bash", "install it on the machine of the server"

    def command(self, fd):
        return ["bash", "-c", f"exec bash --noprofile --norc <&{fd} 3>&{fd} {fd}>&-"]

    def request(self, code, changed, gone):
        lines = [f"export {k}={shlex.quote(v)}" for k, v in changed.items()]
        lines += [f"unset {k}" for k in gone]
        lines.append(f"eval {shlex.quote(code)} </dev/null 3>&-")
        lines.append("""printf '{"status": %d}\\n' $? >&3""")
        return ("\n".join(lines) + "\n").encode()

    def result(self, answer):
        if answer["status"] != 0:
            raise ExitStatus(answer["status"])


class Node(Kernel):
    """JavaScript and TypeScript; `source` is node_kernel.js."""

    name, needs = "node", "install Node.js on the machine of the server"

    def __init__(self, source, language):
        super().__init__()
        self.source, self.language = source, language

    def command(self, fd):
        return ["node", "--expose-internals", "--eval",
                f"(function () {{ {self.source} }})()", "--", str(fd)]

    def request(self, code, changed, gone):
        return json.dumps({"code": code, "language": self.language, "changed": changed,
                           "gone": gone}).encode() + b"\n"

    def interrupt(self):
        super().interrupt()
        self.control.sendall(b'{"interrupt": true}\n')
        return True

    def result(self, answer):
        error = answer.get("error")
        if error:
            failure = type(error["name"], (Failed,), {})(error["value"])
            failure.traceback = error["traceback"]
            raise failure
        return Shown(answer["forms"]) if "forms" in answer else None
