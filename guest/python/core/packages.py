"""The directory of packages that a session was opened with."""
from __future__ import annotations

import os
import sys


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
