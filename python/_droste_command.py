"""The `droste` command of a Python environment: starts the program that the package contains.

It is not a part of the package, so that a start does not import that: the interpreter takes some
10 ms, the program itself one.
"""
import importlib.util
import os
import shutil
import sys
from typing import Optional


def program() -> str:
    """Returns the path of the program: the package's own, or the one that a checkout has built."""
    spec = importlib.util.find_spec("droste")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("droste: the package droste is not installed for %s" % sys.executable)
    package = os.path.abspath(spec.submodule_search_locations[0])
    paths = [os.path.join(package, "bin", "droste")]
    checkout = os.path.dirname(os.path.dirname(package))
    if os.path.exists(os.path.join(checkout, "meson.build")):
        paths.append(os.path.join(checkout, os.environ.get("BUILD", "build"), "droste"))
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    raise SystemExit(
        "droste: %s has no program bin/droste; `pip install --force-reinstall droste` restores it"
        % package)


def run(path: str, arguments: "list[str]", python: Optional[str] = None) -> None:
    """Becomes the program; sandboxes run `python` unless the environment names an interpreter."""
    if python:
        os.environ.setdefault("DROSTE_PYTHON", python)
    os.execv(path, ["droste", *arguments])


def main() -> None:
    """Runs `droste` as installed in an environment's bin."""
    # The command finds interpreters by itself; this one serves where there is no other.
    alone = not os.environ.get("VIRTUAL_ENV") and shutil.which("python3") is None
    run(program(), sys.argv[1:], sys.executable if alone else None)
