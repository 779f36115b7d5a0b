"""The workspace: a directory with a repository and other files, filled for this session."""
from __future__ import annotations

import builtins
import os
from typing import TYPE_CHECKING

from ..core.state import state

if TYPE_CHECKING:
    from ..core.aliases import Head

# layout_paths in src/jail/show.c
WORKSPACE, DAYTONA_WORKSPACE = "/workspace", "/home/daytona/workspace"


def enter_workspace(head: Head) -> None:
    """Publishes the paths of the workspace; the host has set the current directory already."""
    state.session.workspace, state.session.repo = head["root"], head["repo"]
    root = os.environ["WORKSPACE_ROOT"] = head["root"]
    builtins.WORKSPACE_ROOT = root  # type: ignore[attr-defined]
    builtins.REPO_PATH = os.environ["REPO_PATH"] = head["repo"]  # type: ignore[attr-defined]
    builtins.CONTEXT_PATHS = list(head["paths"])  # type: ignore[attr-defined]


def workspace_places() -> list[str]:
    if state.session.workspace is None:
        return []
    if state.session.workspace == DAYTONA_WORKSPACE:
        return [state.session.workspace, WORKSPACE]
    return [state.session.workspace]
