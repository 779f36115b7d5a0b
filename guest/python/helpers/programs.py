"""Background processes, and the history of executed cells.

Errors about the name of a process are returned as text that begins with `[error: `, as in
volume.py.
"""
from __future__ import annotations

import os
import signal
import time
from typing import Any

from ..core.frames import plain
from ..core.state import state

PROGRAM_LINES, PROGRAM_LINE = 1000, 10000   # lines of output that are kept; bytes of a line
EXECUTIONS, SHOWN = 1000, 200               # history entries that are kept; characters of a preview


class Program:
    """A background process and its latest output."""

    def __init__(self, command: str | list[str]) -> None:
        import collections
        import subprocess
        import threading
        self.lines: collections.deque[str] = collections.deque(maxlen=PROGRAM_LINES)
        self.process = subprocess.Popen(
            command, shell=isinstance(command, str), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        with self.process.stdout as output:
            for line in iter(lambda: output.readline(PROGRAM_LINE), b""):
                self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))

    def ended(self) -> int | None:
        """Returns the exit code; None while the process runs."""
        code = self.process.poll()
        if code is not None:
            self.reader.join(1)     # reads the rest; its children may keep the pipe open
        return code

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def find_program(id: Any) -> tuple[Program | None, str | None]:
    """Returns (program, None) or (None, error text)."""
    program = state.session.programs.get(str(id))
    return program, None if program else "[error: there is no process %r]" % str(id)


def start_background_process(id: Any, cmd: str | list[str]) -> str:
    """Starts a shell command, or a list of words without a shell, in the background.

    It keeps running during later cells. `id` names it for read_process_logs() and kill_process().
    """
    name = str(id)
    program = state.session.programs.get(name)
    if program and program.ended() is None:
        return "[error: the process %r is already running]" % name
    try:
        program = state.session.programs[name] = Program(cmd)
    except (OSError, ValueError) as e:
        return "[error: the process %r did not start: %s]" % (name, e)
    return "the process %r was started, with pid %d" % (name, program.process.pid)


def read_process_logs(id: Any, tail: int = 50) -> str:
    """Returns the last lines that a process printed, and its exit code if it has ended."""
    program, wrong = find_program(id)
    if wrong:
        return wrong
    code = program.ended()
    lines = list(program.lines)[-tail:] if tail > 0 else []
    return "\n".join(lines if code is None else lines + ["[exit code %d]" % code])


def kill_process(id: Any) -> str:
    """Kills a background process with all its children."""
    program, wrong = find_program(id)
    if wrong:
        return wrong
    code = program.ended()
    if code is not None:
        return "the process %r had ended, with exit code %d" % (str(id), code)
    program.kill()
    return "the process %r was killed" % str(id)


def preview(text: Any) -> str:
    text = text if isinstance(text, str) else str(text)
    return plain(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")


def log_execution(code: Any, result: Any, metadata: dict[str, Any] | None = None) -> None:
    """Adds an entry to the session's history.

    `result` is a dict with `stdout`, `stderr` and `final`, or the output as text.
    """
    outcome = result if isinstance(result, dict) else {"stdout": "" if result is None else result}
    state.session.executions.append({
        "timestamp": time.time(), "code_preview": preview(code),
        "stdout_preview": preview(outcome.get("stdout") or ""),
        "stderr_preview": preview(outcome.get("stderr") or ""),
        "had_final": outcome.get("final") is not None,
        "metadata": dict(metadata or {})})
    del state.session.executions[:-EXECUTIONS]


def get_session_history() -> list[dict[str, Any]]:
    """Returns a copy of the history: all completed cells and entries of log_execution()."""
    return list(state.session.executions)


def get_last_execution() -> dict[str, Any] | None:
    """Returns the last entry of the history, or None."""
    return state.session.executions[-1] if state.session.executions else None
