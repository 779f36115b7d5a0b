"""What the modules of the guest share: one object whose members change when a clone begins."""


class State:
    """The channel and session of this process, and what the zygote prepared for its clones."""
    link = None         # core/link.py: Link
    session = None      # core/session.py: Session
    seeds = ()          # functions that give the random generators a new state
    prctl = None        # prctl(2) with one argument, where ctypes is there


state = State()
