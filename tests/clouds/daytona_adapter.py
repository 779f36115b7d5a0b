"""Daytona for the conformance suite: pytest tests/session --adapter=tests/clouds/daytona_adapter.py
--environment daytona

Starts the fake (tests/fakes/daytona.py) with the first session, and ends it with the process."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import daytona_fake                                             # noqa: E402
from adapters import ADAPTERS, Adapter, ancestors               # noqa: E402

_fakes = []


def fake():
    """The one of this process."""
    if not _fakes:
        _fakes.append(daytona_fake.Fake())
    os.environ.update(_fakes[0].environment)
    return _fakes[0]


@ADAPTERS.register
class Daytona(Adapter):
    name = "daytona"
    word = "snapshot"
    operations = 1
    lacks = {
        "volume size": "Daytona has no limit for what a volume holds",
        "volume watch": "Daytona has no limit for what a volume holds",
        "volume links": "Daytona's volumes are buckets, which hold files alone",
        "workspace size": "Daytona bounds the disk of a sandbox alone",
        "read": "the sandbox is on another machine",
        "memory together":
        "Daytona gives a sandbox its memory by the gigabyte, and an image it is for",
        "processes": "Daytona has no limit for processes",
        "cpus": "Daytona gives a sandbox whole processors, and an image they are for",
        "with host":
        "the far end does not know whose host is gone; its limits end it, or the next session's "
        "host",
        "tmp size": "Daytona bounds the disk of a sandbox alone",
    }

    def __init__(self, text, settings):
        super().__init__(text, settings)
        fake()

    def kill(self, mark):
        """The machine of the sandbox goes, with all that it runs."""
        above = [pid for pid, _ in ancestors(mark["top"][0])]
        for s in fake().sandboxes():
            if s["init"] == mark["top"][0] or s["init"] in above:
                fake().order("sandbox", {"id": s["id"], "do": "kill"})
                return
        super().kill(mark)
