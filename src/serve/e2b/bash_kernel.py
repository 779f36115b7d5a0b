"""The kernel of bash, for code contexts of E2B's API.

The context is a Python session as any other. It starts a shell, gives it the code, and passes on
what that writes, so that output, interrupts and ends work as they do for Python.
"""
import codecs
import json
import os
import selectors
import shlex
import signal
import subprocess
import sys


class ExitStatus(Exception):
    """The code's last command failed."""


class KernelDied(Exception):
    """The code has left the shell; the next starts another one."""


class Bash:
    """A shell, which is started when it is needed, and again when it has ended."""

    def __init__(self):
        self.process, self.env = None, {}

    def start(self):
        if self.process is not None:
            for f in (self.process.stdin, self.process.stdout, self.process.stderr):
                f.close()
            os.close(self.control)
        read, write = os.pipe()
        self.process = subprocess.Popen(    # its answers go to its descriptor 3
            ["bash", "-c", f"exec bash --noprofile --norc 3>&{write} {write}>&-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            pass_fds=(write,))
        os.close(write)
        self.control, self.env = read, dict(os.environ)

    def changes(self):
        """The variables that have changed since the last time, and those that are no more."""
        now = dict(os.environ)
        changed = {k: v for k, v in now.items() if self.env.get(k) != v}
        gone = [k for k in self.env if k not in now]
        self.env = now
        return changed, gone

    def words(self, code, changed, gone):
        lines = [f"export {k}={shlex.quote(v)}" for k, v in changed.items()]
        lines += [f"unset {k}" for k in gone]
        lines.append(f"eval {shlex.quote(code)} </dev/null 3>&-")
        lines.append("""printf '{"status": %d}\\n' $? >&3""")
        return ("\n".join(lines) + "\n").encode()

    def interrupt(self):
        """Interrupts what the shell has started, or else ends it."""
        children = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    if int(f.read().rpartition(")")[2].split()[1]) == self.process.pid:
                        children.append(int(pid))
            except OSError:
                pass
        for pid in children:
            os.kill(pid, signal.SIGINT)
        if not children:
            self.process.kill()
            self.process.wait()

    def pump(self):
        """Passes output on until the shell answers; None if it ends."""
        streams = {self.process.stdout: sys.stdout, self.process.stderr: sys.stderr}
        decoders = {f: codecs.getincrementaldecoder("utf-8")("replace") for f in streams}
        answer, ended = b"", False
        with selectors.DefaultSelector() as selector:
            for f in (*streams, self.control):
                selector.register(f, selectors.EVENT_READ)
            while True:
                over = ended or answer.endswith(b"\n")
                ready = [key.fileobj for key, _ in selector.select(0 if over else None)]
                for f in ready:
                    data = os.read(f if f == self.control else f.fileno(), 65536)
                    if not data:
                        selector.unregister(f)
                        ended = ended or f == self.control
                    elif f == self.control:
                        answer += data
                    else:
                        streams[f].write(decoders[f].decode(data))
                if over and not ready:
                    return json.loads(answer) if answer else None

    def run(self, code):
        if self.process is None or self.process.poll() is not None:
            self.start()
        changed, gone = self.changes()
        self.process.stdin.write(self.words(code, changed, gone))
        self.process.stdin.flush()
        try:
            answer = self.pump()
        except KeyboardInterrupt:
            self.interrupt()
            if self.process.poll() is None:
                self.pump()
            raise
        if answer is None:
            status = self.process.wait()
            raise KernelDied(f"bash ended: {status}")
        if answer["status"] != 0:
            raise ExitStatus(answer["status"])
