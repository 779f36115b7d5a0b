"""Files and commands, relative to the session's current directory."""
from __future__ import annotations

import ast
import json
import os
import signal
from typing import Any

from .programs import SHOWN
from ..core.state import state

def resolve_path(path: Any) -> str:
    """Makes a path absolute, relative to REPO_PATH or the current directory."""
    return os.path.join(state.session.repo or os.getcwd(), os.fspath(path))


def extract_python_ast(path: Any) -> str:
    """Lists the classes and functions of a Python file as JSON.

    Each object has `type` (Class or Function), `name`, `methods` (classes only), and `doc`, the
    beginning of the docstring.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    path, found = resolve_path(path), []
    if not os.path.isfile(path):
        return "File not found."
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [part.name for part in node.body if isinstance(part, functions)]
            entry = {"type": "Class", "name": node.name, "methods": methods}
        elif isinstance(node, functions):
            entry = {"type": "Function", "name": node.name}
        else:
            continue
        entry["doc"] = (ast.get_docstring(node) or "")[:SHOWN]
        found.append(entry)
    return json.dumps(found)


def list_files(path: Any = ".") -> list[str]:
    """Returns the sorted absolute paths of a directory's entries; [] if it does not exist."""
    path = os.path.abspath(path)
    try:
        return sorted(os.path.join(path, name) for name in os.listdir(path))
    except FileNotFoundError:
        return []


def find_files(path: Any = ".", pattern: str = "*") -> list[str]:
    """Returns the sorted absolute paths below a directory that match a glob such as "**/*.py"."""
    import glob
    full = os.path.join(glob.escape(os.path.abspath(path)), pattern)
    return sorted(glob.glob(full, recursive=True))


def read_file(path: Any) -> str:
    """Reads a file as UTF-8 text; invalid bytes become U+FFFD."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def run(command: str | list[str], cwd: Any = None, timeout: float | None = None) -> dict[str, Any]:
    """Runs a shell command, or a list of words without a shell, and waits for it.

    Returns a dict with `exit_code`, `stdout`, `stderr` and `ok`. After `timeout` seconds it kills
    the command with all its children and raises subprocess.TimeoutExpired.
    """
    import subprocess
    with subprocess.Popen(command, shell=isinstance(command, str), cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", errors="replace", start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            if process.returncode is None:      # still running, so the pid is still its own
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return {"exit_code": process.returncode, "stdout": out, "stderr": err,
            "ok": process.returncode == 0}
