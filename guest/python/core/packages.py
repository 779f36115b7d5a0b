"""The packages that a session was opened with, and those that it installs."""
from __future__ import annotations

import os
import re
import sys
from typing import Any

from .frames import shorten
from .state import state

INSTALL = "install_packages"
# A line as in a notebook. Cells that have one are no Python, so other cells compile without this.
PIP_LINE = (r"^([ \t]*)[%!][ \t]*(?:uv[ \t]+)?(?:python3?[ \t]+-m[ \t]+)?pip3?"
            r"(?:[ \t]+([^\n]*?))?[ \t\r]*$")
PIP_FLAGS = ("-q", "-qq", "--quiet", "-U", "--upgrade", "--no-cache-dir", "--user", "--no-input",
             "--disable-pip-version-check", "--root-user-action=ignore", "--break-system-packages",
             "--system")


def enter_packages(site_directory: str) -> None:
    """Makes the packages importable: before those of the interpreter, behind the standard library.

    Their .pth files are executed, as in any site-packages directory. Does nothing in a session that
    continues from another one's memory, which has them already.
    """
    if site_directory in sys.path:
        return
    import site
    before = list(sys.path)
    site.addsitedir(site_directory)
    added = [path for path in sys.path if path not in before]
    at = next((i for i, path in enumerate(before)
               if path.rstrip("/").endswith(("site-packages", "dist-packages"))), len(before))
    sys.path[:] = before[:at] + added + before[at:]
    # For programs that cells start; the module `site` of those ignores .pth files there.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [site_directory] + [p for p in [os.environ.get("PYTHONPATH")] if p])
    os.environ["PATH"] = os.pathsep.join(
        [p for p in [os.environ.get("PATH")] if p] + [os.path.join(site_directory, "bin")])


# -- in a running session

def enter_installed(directory: str, answer: Any) -> list[str]:
    """Makes a set that the host has shown importable, and returns what is in it."""
    import importlib
    enter_packages(os.path.join(directory, answer["set"]))
    importlib.invalidate_caches()
    return list(answer["packages"])


def replace_pip_lines(code: str) -> str | None:
    """Returns the cell with calls in place of lines such as `%pip install numpy`, or None."""
    if "pip" not in code or not re.search(PIP_LINE, code, re.M):
        return None
    state.session.builtins._droste_pip = run_pip_line  # type: ignore[attr-defined]
    return re.sub(PIP_LINE, lambda m: "%s_droste_pip(%r)" % (m[1], m[2] or ""), code, flags=re.M)


def read_requirements(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in file]
    return [line for line in lines if line]


def find_requirements(line: str) -> list[str]:
    """The requirements in the words after `pip`."""
    import shlex
    words = shlex.split(line, comments=True)
    if words[:1] != ["install"]:
        raise ValueError("only `pip install` is known here, not 'pip %s'" % shorten(line, 100))
    found: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word in ("-r", "--requirement"):
            found += read_requirements(next(rest, ""))
        elif word.startswith("-") and word not in PIP_FLAGS:
            raise ValueError("pip install: the option %s has no effect here" % shorten(word, 100))
        elif not word.startswith("-"):
            found.append(word)
    return found


def run_pip_line(line: str) -> None:
    """Does what such a line says, and prints what was installed."""
    requirements = find_requirements(line)
    install = state.session.tools.get(INSTALL)
    if install is None:
        raise PermissionError("code may not install packages here: the setting allow-install "
                              "(--allow-install yes) permits it")
    print("installed " + ", ".join(install(requirements)))
