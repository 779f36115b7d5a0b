"""The guest as a module, without a sandbox."""
import os
import pathlib
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCE = pathlib.Path(os.environ.get("DROSTE_GUEST", ROOT / "build" / "src" / "guest.py"))
CODE = compile(SOURCE.read_text(), SOURCE, "exec")      # once: that takes longer than most tests


@pytest.fixture
def guest():
    """A fresh copy of the module with a session, as boot() makes it, and the real __main__ kept."""
    main = sys.modules["__main__"]
    module = types.ModuleType("droste_guest")
    module.__file__ = str(SOURCE)
    exec(CODE, module.__dict__)
    module.state.session = module.Session()
    yield module
    sys.modules["__main__"] = main
