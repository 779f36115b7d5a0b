"""Adapters of the conformance suite for Prime and E2B: each starts the fake of its provider, and
says what the provider has not."""
import atexit
import os

import connect_fake
from adapters import ADAPTERS, Adapter

WALL = "the wall is the provider's machine, which the fake's processes on this one have not"
FILES = "the machine does not see this one's files"

LACKS = {
    "read": FILES,
    "processes": "nothing but the machine bounds them",
    "with host":
    "the far end does not know whose host is gone; its limits in time end it, or droste env gc",
    "files": WALL,
    "memory together": "the provider's machine is the bound, which is none of ours",
    "volume at once": "each session has a copy of its own, which is brought back after each cell",
    "volume watch": "a volume is measured when it is brought back",
    "workspace size": "the machine's disk is the bound of what is made of staged files",
    "tmp size": "the machine's disk is the bound",
    "whole":
    "the machine is what ends all at once; on the fake's a process that is killed alone leaves the "
    "others",
}


class Machine(Adapter):
    lacks = LACKS
    operations = 1
    fake = None

    def __init__(self, text, settings):
        if connect_fake.missing():
            raise RuntimeError(connect_fake.missing())
        if Machine.fake is None or Machine.fake.name != self.name:
            Machine.fake = connect_fake.Fake(self.name)
            atexit.register(Machine.fake.close)
            os.environ.update(Machine.fake.environment)
        super().__init__(text, settings)
        if os.geteuid() != 0:
            self.lacks = {**self.lacks, "network":
                          "only root can give the fake's sandboxes a network of their own"}


def register(name):
    lacks = dict(LACKS)
    if name == "e2b":
        lacks["cpus"] = "the template says how many"
    ADAPTERS.register(type(name.title(), (Machine,),
                           {"name": name, "word": "image", "lacks": lacks}))
