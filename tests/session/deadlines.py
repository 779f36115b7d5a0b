"""Cells that run into a deadline, which must find them where a test wants them to be."""

#: Ignores the interrupt of its deadline, so that only a kill ends it.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"


def cut_short(session, code, arrived, seconds=0.1):
    """The result of code that goes on until its deadline. One that came before the code was where
    `arrived(result)` is true is followed by another, with twice the time."""
    for _ in range(9):
        result = session.execute(code, timeout=seconds)
        if arrived(result):
            break
        seconds *= 2
    return result
