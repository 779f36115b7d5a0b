"""Modal for the conformance suite: pytest tests/session --adapter=tests/clouds/modal_adapter.py
--environment modal

Starts the fake (tests/fakes/modal_server.py) with the first session, and ends it with the
process."""
import atexit
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import modal_fake                                   # noqa: E402
from adapters import ADAPTERS, Adapter              # noqa: E402

_fakes = []


def fake():
    """The one of this process."""
    if not _fakes:
        why = modal_fake.missing()
        if why:
            pytest.skip(why)
        _fakes.append(modal_fake.Fake())
        atexit.register(_fakes[0].close)
        os.environ.update(_fakes[0].environment)
    return _fakes[0]


@ADAPTERS.register
class Modal(Adapter):
    name = "modal"
    word = "image"
    operations = 1
    lacks = {
        "volume at once":
        "Modal's volumes show what one sandbox has written to another after it was written back",
        "volume watch": "Modal has no limit for volumes",
        "volume size": "Modal has no limit for volumes",
        "workspace size": "Modal has no limit for files of sandboxes",
        "read": "this machine's files are not in Modal's sandboxes",
        "processes": "Modal has no limit for processes",
        "memory together":
        "it is Modal that ends a sandbox which takes more than its memory, and nothing of ours",
        "tmp size": "Modal has no limit for files of sandboxes",
    }

    def __init__(self, text, settings):
        super().__init__(text, settings)
        if not fake().isolated:
            self.lacks = {**self.lacks, "files":
                          "only root can give the fake's sandboxes files of their own",
                          "network":
                          "only root can give the fake's sandboxes a network of their own"}
