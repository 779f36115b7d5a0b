"""Code for sessions whose guest is hostile: it replaces functions of the guest's library."""

#: `state` is the guest's; `Kept` hands on what a class that replaces its library does not replace.
PATCH = """
import array, os, signal, socket, struct, sys
state = sys.modules['droste_guest'].state
kept = state.library
class Kept:
    def __getattr__(self, name):
        return getattr(kept, name)
"""
