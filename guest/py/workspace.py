"""workspace.py: a directory that was filled for this session, with the files of a repository and others."""

WORKSPACE, WORKSPACE_TOO = "/home/daytona/workspace", "/workspace"     # src/jail/jail.h


def enter_workspace(told):
    """The current directory is where REPO_PATH says: that of the repository, where there is one."""
    session.workspace, session.repo = told["root"], told["repo"]
    builtins.WORKSPACE_ROOT = os.environ["WORKSPACE_ROOT"] = told["root"]
    builtins.REPO_PATH = os.environ["REPO_PATH"] = told["repo"]
    builtins.CONTEXT_PATHS = list(told["paths"])


def workspace_places():
    if session.workspace is None:
        return []
    return [session.workspace, WORKSPACE_TOO] if session.workspace == WORKSPACE else [session.workspace]
