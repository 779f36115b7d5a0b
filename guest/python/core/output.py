"""Flushes the standard output and error of the session."""
from __future__ import annotations

import sys


def flush_output() -> None:
    flushed = None
    for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
        try:
            stream = getattr(sys, name)
            if stream is not flushed:
                stream.flush()
            flushed = stream
        except BaseException:
            pass
