"""Programs that run beside the cells, and a list of what was executed.

What is wrong with a program's name comes back as text that begins with `[error: `, as volume.py has it.
"""
import os
import signal
import time

from ..core.frames import plain
from ..core.state import state

PROGRAM_LINES, PROGRAM_LINE = 1000, 10000   # lines of a program's output that are kept; bytes of one
EXECUTIONS, SHOWN = 1000, 200               # entries that are kept; characters of a preview


class Program:
    """A command of the shell's, and what it has printed last."""

    def __init__(self, command):
        import collections
        import subprocess
        import threading
        self.lines = collections.deque(maxlen=PROGRAM_LINES)
        self.process = subprocess.Popen(command, shell=isinstance(command, str), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with self.process.stdout as output:
            for line in iter(lambda: output.readline(PROGRAM_LINE), b""):
                self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))

    def ended(self):
        """Its exit code; None while it runs."""
        code = self.process.poll()
        if code is not None:
            self.reader.join(1)     # what it has printed is read; what it has started may print for ever
        return code

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def find_program(id):
    """(the program, None), or (None, what is wrong)."""
    program = state.session.programs.get(str(id))
    return program, None if program else "[error: there is no process %r]" % str(id)


def start_background_process(id, cmd):
    """Starts a command of the shell's (or a list of words, without a shell), which runs on while later cells do.
    `id` is a name for the other two."""
    name = str(id)
    program = state.session.programs.get(name)
    if program and program.ended() is None:
        return "[error: the process %r is running already]" % name
    try:
        program = state.session.programs[name] = Program(cmd)
    except (OSError, ValueError) as e:
        return "[error: the process %r did not start: %s]" % (name, e)
    return "the process %r was started, with pid %d" % (name, program.process.pid)


def read_process_logs(id, tail=50):
    """The last lines that it printed, on either stream, and how it ended if it has."""
    program, wrong = find_program(id)
    if wrong:
        return wrong
    code = program.ended()
    lines = list(program.lines)[-tail:] if tail > 0 else []
    return "\n".join(lines if code is None else lines + ["[exit code %d]" % code])


def kill_process(id):
    """Ends it at once, with all that it started."""
    program, wrong = find_program(id)
    if wrong:
        return wrong
    code = program.ended()
    if code is not None:
        return "the process %r had ended, with exit code %d" % (str(id), code)
    program.kill()
    return "the process %r was killed" % str(id)


def preview(text):
    text = text if isinstance(text, str) else str(text)
    return plain(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")


def log_execution(code, result, metadata=None):
    """Adds an entry to the session's history. `result` is a dict with `stdout`, `stderr` and `final`, or what was
    printed."""
    told = result if isinstance(result, dict) else {"stdout": "" if result is None else result}
    state.session.executions.append({
        "timestamp": time.time(), "code_preview": preview(code), "stdout_preview": preview(told.get("stdout") or ""),
        "stderr_preview": preview(told.get("stderr") or ""), "had_final": told.get("final") is not None,
        "metadata": dict(metadata or {})})
    del state.session.executions[:-EXECUTIONS]


def get_session_history():
    """A copy of the history: an entry for each cell that has ended, and those of log_execution."""
    return list(state.session.executions)


def get_last_execution():
    """The last entry of the history, or None."""
    return state.session.executions[-1] if state.session.executions else None
