"""The guest as a module, without a sandbox."""
import importlib.util
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCE = pathlib.Path(os.environ.get("DROSTE_GUEST", ROOT / "build" / "src" / "guest.py"))


@pytest.fixture
def guest():
    """A fresh copy of the module with a session, as boot() makes it, and the real __main__ kept."""
    main = sys.modules["__main__"]
    spec = importlib.util.spec_from_file_location("droste_guest", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.session = module.Session()
    yield module
    sys.modules["__main__"] = main
