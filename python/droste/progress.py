"""Shows the progress of a run in a line on a terminal or in a notebook."""
from __future__ import annotations

import contextvars
import html
import sys
import time
from typing import Any, Callable, Optional

WIDTH = 20


def count_of(count: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")


def _notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class Line:
    """The state of a run as one line of text."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.turn = self.turns = self.pending = self.calls = self.tokens = 0
        self.doing = "starting"

    def take(self, event: Any) -> None:
        self.turn, self.turns = event.turn or self.turn, event.turns or self.turns
        self.calls, self.pending = event.calls, event.pending
        self.tokens = event.input_tokens + event.output_tokens
        self.doing = {"turn": "the model thinks", "delta": "the model writes", "cell": "code runs",
                      "result": "the code has ended"}.get(event.kind, self.doing)
        if event.kind == "end":
            self.doing = event.completion.status

    def text(self) -> str:
        done = min(WIDTH, WIDTH * self.turn // self.turns) if self.turns else 0
        waiting = ", %d in progress" % self.pending if self.pending else ""
        return "[%s%s] turn %d of %d, %s, %s%s, %d tokens, %.1f s" % (
            "#" * done, "." * (WIDTH - done), self.turn, self.turns, self.doing,
            count_of(self.calls, "call"), waiting, self.tokens, time.monotonic() - self.begun)


class OnTerminal(Line):
    """Rewrites one line on standard error, at most ten times per second."""

    def __init__(self, stream: Any = None):
        super().__init__()
        self.stream = stream or sys.stderr
        self.shown = 0.0

    def __call__(self, event: Any) -> None:
        self.take(event)
        now = time.monotonic()
        if event.kind != "end" and now - self.shown < 0.1:
            return
        self.shown = now
        self.stream.write("\r\x1b[K" + self.text() + ("\n" if event.kind == "end" else ""))
        self.stream.flush()


class InNotebook(Line):
    """Updates one output of a notebook cell."""

    def __init__(self) -> None:
        super().__init__()
        self.display: Any = None
        self.shown = 0.0

    def __call__(self, event: Any) -> None:
        from IPython.display import HTML, display  # type: ignore
        self.take(event)
        now = time.monotonic()
        if event.kind != "end" and self.display is not None and now - self.shown < 0.2:
            return
        self.shown = now
        shown = HTML("<progress max='%d' value='%d'></progress> <code>%s</code>" % (
            self.turns or 1, self.turn, html.escape(self.text())))
        if self.display is None:
            self.display = display(shown, display_id=True)
        else:
            # In an empty context, ipykernel sends the update for the current cell. In the run's
            # context that may be a cell which has ended, and programs that execute notebooks
            # (nbclient) drop output for such cells.
            contextvars.Context().run(self.display.update, shown)


def listener(wanted: Optional[bool]) -> Optional[Callable[[Any], None]]:
    """Returns a listener that shows events, or None.

    If `wanted` is None, shows them in notebooks and on terminals.
    """
    if wanted is False:
        return None
    if _notebook():
        return InNotebook()
    if wanted or sys.stderr.isatty():
        return OnTerminal()
    return None
