"""Files and commands, where the session stands."""
import ast
import json
import os
import signal

from .programs import SHOWN
from ..core.state import state

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def resolve_path(path):
    """A path as it is, if it is whole; else what it is below REPO_PATH, or the current directory."""
    return os.path.join(state.session.repo or os.getcwd(), os.fspath(path))


def extract_python_ast(path):
    """The classes and functions of a Python file as JSON: a list of objects with `type` (Class, Function), `name`,
    `methods` of a class, and `doc`, the beginning of what is said of it."""
    path, found = resolve_path(path), []
    if not os.path.isfile(path):
        return "File not found."
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [part.name for part in node.body if isinstance(part, FUNCTIONS)]
            entry = {"type": "Class", "name": node.name, "methods": methods}
        elif isinstance(node, FUNCTIONS):
            entry = {"type": "Function", "name": node.name}
        else:
            continue
        entry["doc"] = (ast.get_docstring(node) or "")[:SHOWN]
        found.append(entry)
    return json.dumps(found)


def list_files(path="."):
    """The whole paths of what is in a directory, sorted; none where it does not exist."""
    path = os.path.abspath(path)
    try:
        return sorted(os.path.join(path, name) for name in os.listdir(path))
    except FileNotFoundError:
        return []


def find_files(path=".", pattern="*"):
    """The whole paths below a directory that match a pattern of the shell's, sorted; "**/*.py" looks at every
    depth."""
    import glob
    return sorted(glob.glob(os.path.join(glob.escape(os.path.abspath(path)), pattern), recursive=True))


def read_file(path):
    """A file as text; bytes that are no UTF-8 become U+FFFD."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def run(command, cwd=None, timeout=None):
    """Runs a command of the shell's (or a list of words, without a shell) and waits: a dict with `exit_code`, `stdout`,
    `stderr` and `ok`. After `timeout` seconds it is ended, with all that it started, and TimeoutExpired raised."""
    import subprocess
    with subprocess.Popen(command, shell=isinstance(command, str), cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            if process.returncode is None:      # else its number may be another's by now
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return {"exit_code": process.returncode, "stdout": out, "stderr": err, "ok": process.returncode == 0}
