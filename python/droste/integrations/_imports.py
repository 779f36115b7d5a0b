"""What all plug-ins share: the error for a framework that is not installed."""
from __future__ import annotations

from typing import NoReturn


def refuse_import(framework: str, package: str, missing: ImportError) -> NoReturn:
    """Says which package to install, for an import that has failed."""
    raise type(missing)("droste's plug-in for %s needs its package: pip install '%s' (%s)"
                        % (framework, package, missing), name=missing.name) from missing
