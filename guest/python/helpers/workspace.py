"""A directory that was filled for this session, with the files of a repository and others."""
import builtins
import os

from ..core.state import state

WORKSPACE, DAYTONA_WORKSPACE = "/workspace", "/home/daytona/workspace"      # layout_paths, src/jail/show.c


def enter_workspace(told):
    """The current directory is where REPO_PATH says: that of the repository, where there is one."""
    state.session.workspace, state.session.repo = told["root"], told["repo"]
    builtins.WORKSPACE_ROOT = os.environ["WORKSPACE_ROOT"] = told["root"]
    builtins.REPO_PATH = os.environ["REPO_PATH"] = told["repo"]
    builtins.CONTEXT_PATHS = list(told["paths"])


def workspace_places():
    if state.session.workspace is None:
        return []
    return [state.session.workspace, WORKSPACE] if state.session.workspace == DAYTONA_WORKSPACE else [state.session.workspace]
