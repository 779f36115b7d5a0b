"""Standard output and error of the session."""
import sys


def flush_output():
    flushed = None
    for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
        try:
            stream = getattr(sys, name)
            if stream is not flushed:
                stream.flush()
            flushed = stream
        except BaseException:
            pass
