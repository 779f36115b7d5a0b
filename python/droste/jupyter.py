"""A Jupyter kernel whose cells run in a sandbox: `python -m droste.jupyter install`.

Needs ipykernel (the extra `jupyter`), which speaks the protocol. The kernel's process holds an
`Interpreter`; nothing of a cell runs in that process, and nothing that a cell shows can run in the
notebook's page (see `RichResult`).

Magics, alone in a cell: `%checkpoint` keeps the state, `%rollback [ID]` goes back to it,
`%fork NAME` copies the session, `%session [NAME]` uses a copy from the next cell on, and
`%sessions` lists them.
"""
from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextvars
import functools
import json
import os
import re
import signal
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from . import __version__
from .errors import Error
from .interpreter import Interpreter
from .result import Result
from .rich import RichResult

try:
    from ipykernel.kernelapp import IPKernelApp  # type: ignore
    from ipykernel.kernelbase import Kernel  # type: ignore
except ImportError as missing:      # pragma: no cover
    raise ImportError("the Jupyter kernel needs ipykernel: pip install 'droste[jupyter]'"
                      ) from missing

T = TypeVar("T")

SETTINGS = "DROSTE_JUPYTER_SETTINGS"    # JSON, which the kernel's specification has

# Makes a module of _notebook.py in the sandbox, and asks it.
PREPARE = """
(lambda m: (exec(compile({source!r}, '<notebook>', 'exec'), m.__dict__),
            SUBMIT(**m.prepare(jupyter_input))))(__import__('sys').modules.setdefault(
    '_droste_notebook', type(__import__('sys'))('_droste_notebook')))
"""
ASK = "SUBMIT(**__import__('sys').modules['_droste_notebook'].%s(globals(), *%r))"

MAGIC = re.compile(r"\s*%(checkpoint|rollback|fork|session|sessions)(?:[ \t]+(\S+))?\s*\Z")

class DrosteKernel(Kernel):     # type: ignore[misc]
    """One session, or several by name, of which cells use one."""
    implementation = "droste"
    implementation_version = __version__
    language_info = {
        "name": "python", "version": "%d.%d.%d" % sys.version_info[:3], "mimetype": "text/x-python",
        "file_extension": ".py", "pygments_lexer": "ipython3", "nbconvert_exporter": "python",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
    banner = "Droste %s: Python in a sandbox" % __version__

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._settings = json.loads(os.environ.get(SETTINGS) or "{}")
        # The session belongs to this thread: the others are the protocol's.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._used = "main"
        self._sessions: Dict[str, Interpreter] = {}
        self._history: List[Tuple[int, int, str]] = []
        self._silent = False
        self._failed: Optional[str] = None
        self._thread.submit(self._open)

    def _open(self) -> None:
        try:
            self._sessions["main"] = self._prepared(Interpreter(
                on_output=self._write, on_result=self._show, tools={"jupyter_input": self._ask},
                **{"tool_timeout": 0, **self._settings}))    # a reader may be at lunch
        except Error as error:
            self._failed = str(error)

    def _prepared(self, interp: Interpreter) -> Interpreter:
        path = os.path.join(os.path.dirname(__file__), "_notebook.py")
        with open(path, encoding="utf-8") as file:
            interp.execute(PREPARE.format(source=file.read()))
        return interp

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls it in the session's thread, whose messages then belong to this request."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, functools.partial(context.run, function, *arguments))

    # -- what a cell shows, called in the session's thread

    def _write(self, stream: int, text: str) -> None:
        if not self._silent:
            self.send_response(self.iopub_socket, "stream",
                               {"name": "stderr" if stream == 2 else "stdout", "text": text})

    def _show(self, result: Optional[RichResult]) -> None:
        if self._silent:
            return
        if result is None:
            self.send_response(self.iopub_socket, "clear_output",
                               {"wait": False})     # the sandbox has waited
            return
        data, metadata = result._repr_mimebundle_()
        content: Dict[str, Any] = {"data": data, "metadata": metadata, "transient": {}}
        if result.display_id:
            content["transient"]["display_id"] = result.display_id
        kind = "update_display_data" if result.is_update else "display_data"
        if result.is_main_result:
            kind = "execute_result"
            content["execution_count"] = self.execution_count
        self.send_response(self.iopub_socket, kind, content)

    def _ask(self, prompt: str, password: bool) -> str:
        return str((self.getpass if password else self.raw_input)(prompt))

    # -- cells

    def _interpreter(self) -> Interpreter:
        interp = self._sessions.get(self._used)
        if interp is None:
            raise Error(self._failed or "the session did not start")
        if not interp.alive:    # the last cell said so, and that the variables are gone
            interp.close()
            interp.start()
            self._prepared(interp)
        return interp

    def _run(self, code: str) -> Result:
        return self._interpreter().execute(code)

    async def do_execute(self, code: str, silent: bool, store_history: bool = True,
                         user_expressions: Any = None, allow_stdin: bool = False, *,
                         cell_meta: Any = None, cell_id: Any = None) -> Dict[str, Any]:
        if store_history and not silent:
            self._history.append((1, self.execution_count, code))
        self._silent = silent
        self._allow_stdin = allow_stdin
        magic = MAGIC.match(code)
        try:
            if magic:
                self._write(1, await self._in_thread(self._magic, magic[1], magic[2]) + "\n")
                failure = None
            else:
                failure = failure_of(await self._in_thread(self._run, code))
            expressions = {} if failure else await self._in_thread(
                self._evaluate, user_expressions or {})
        except Error as error:
            failure = (type(error).__name__, str(error), [str(error)])
        if failure is None:
            return {"status": "ok", "execution_count": self.execution_count, "payload": [],
                    "user_expressions": expressions}
        content = dict(zip(("ename", "evalue", "traceback"), failure))
        if not silent:
            self.send_response(self.iopub_socket, "error", content)
        return dict(content, status="error", execution_count=self.execution_count)

    def _evaluate(self, expressions: Dict[str, str]) -> Dict[str, Any]:
        found = self._questioned("evaluate", expressions) if expressions else {}
        shown: Dict[str, Any] = {
            name: {"status": "ok", "metadata": {}, "data": {"text/plain": str(text)}}
            for name, text in (found.get("values") or {}).items()}
        for name, (kind, message) in (found.get("errors") or {}).items():
            shown[name] = {"status": "error", "ename": kind, "evalue": message,
                           "traceback": [message]}
        return shown

    def _questioned(self, function: str, *arguments: Any) -> Dict[str, Any]:
        """What a function of _notebook.py in the sandbox returns; {} if it fails."""
        return self._quietly(ASK % (function, arguments)).fields or {}

    def _quietly(self, code: str) -> Result:
        before, self._silent = self._silent, True
        try:
            return self._run(code)
        finally:
            self._silent = before

    def _magic(self, word: str, argument: Optional[str]) -> str:
        interp = self._interpreter()
        if word == "checkpoint":
            return "checkpoint %d" % interp.checkpoint()
        if word == "rollback":
            kept = interp.checkpoints()
            if not kept or (argument and not argument.isdigit()):
                raise Error("expected the number of a checkpoint; %checkpoint makes one")
            number = int(argument) if argument else kept[-1].id
            interp.rollback(number)
            return "rolled back to checkpoint %d" % number
        if word == "sessions":
            return "\n".join(("* " if name == self._used else "  ") + name
                             for name in self._sessions)
        if word == "session":
            name = argument or "main"
            if name not in self._sessions:
                raise Error("there is no session %r; %%fork makes one" % name)
            self._used = name
            return "cells use the session %r" % name
        if not argument or argument in self._sessions:
            raise Error("expected a new name: %fork NAME")
        self._sessions[argument] = interp.fork()
        return "forked %r as %r; %%session %s uses it" % (self._used, argument, argument)

    # -- what an editor asks

    async def do_complete(self, code: str, cursor_pos: int) -> Dict[str, Any]:
        found = await self._in_thread(self._questioned, "complete", code, cursor_pos)
        return {"status": "ok", "matches": found.get("matches") or [], "metadata": {},
                "cursor_start": found.get("start", cursor_pos), "cursor_end": cursor_pos}

    async def do_inspect(self, code: str, cursor_pos: int, detail_level: int = 0,
                         omit_sections: Any = ()) -> Dict[str, Any]:
        found = await self._in_thread(
            self._questioned, "describe", code, cursor_pos, bool(detail_level))
        text = found.get("text")
        return {"status": "ok", "found": bool(text), "metadata": {},
                "data": {"text/plain": text} if text else {}}

    async def do_is_complete(self, code: str) -> Dict[str, Any]:
        found = await self._in_thread(self._questioned, "is_complete", code)
        return {"status": "unknown", **found}

    async def do_history(self, hist_access_type: str, output: Any, raw: Any, session: Any = None,
                         start: Any = None, stop: Any = None, n: Any = None, pattern: Any = None,
                         unique: bool = False) -> Dict[str, Any]:
        rows = self._history
        if hist_access_type == "range":
            rows = [row for row in rows if (start or 0) <= row[1] < (stop or sys.maxsize)]
        elif hist_access_type == "search" and pattern:
            import fnmatch
            rows = [row for row in rows if fnmatch.fnmatch(row[2], pattern)]
        if unique:
            rows = list({row[2]: row for row in rows}.values())
        if n:
            rows = rows[-n:]
        return {"status": "ok", "history": [[session, number, (code, None) if output else code]
                                            for session, number, code in rows]}

    # -- control, while a cell runs

    def start(self) -> None:
        super().start()
        self.io_loop.asyncio_loop.add_signal_handler(signal.SIGINT, self._interrupt)

    # ipykernel's let SIGINT raise KeyboardInterrupt in this process, whose thread only waits.
    def pre_handler_hook(self) -> None:
        pass

    def post_handler_hook(self) -> None:
        pass

    def _interrupt(self) -> None:
        interp = self._sessions.get(self._used)
        if interp is not None:
            interp.interrupt()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        self._interrupt()
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    async def do_shutdown(self, restart: bool) -> Dict[str, Any]:
        for interp in self._sessions.values():
            interp.interrupt()
        await self._in_thread(self._close)
        return {"status": "ok", "restart": restart}

    def _close(self) -> None:
        for interp in self._sessions.values():
            interp.close()


def failure_of(result: Result) -> Optional[Tuple[str, str, List[str]]]:
    """What a cell's error message has; None if it succeeded."""
    error = result.error
    if result.ok or error is None:
        return None
    lines = (error.traceback or str(error)).rstrip("\n").split("\n")
    if result.status == "timeout" and result.alive:
        lines.append("The cell was interrupted because its time was up. Variables are kept.")
    return error.type or result.status, error.message or "", lines


# -- installing

def specification(settings: Dict[str, str], title: str) -> Dict[str, Any]:
    return {"argv": [sys.executable, "-m", "droste.jupyter", "-f", "{connection_file}"],
            "display_name": title, "language": "python", "interrupt_mode": "signal",
            "env": {SETTINGS: json.dumps(settings)}, "metadata": {"debugger": False}}


def install(words: List[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="droste jupyter install", description="Adds the kernel to Jupyter.",
        epilog="Settings of docs/configuration.md follow `--`, as in: -- --memory 2G")
    parser.add_argument("--name", default="droste", help="the kernel's name (droste)")
    parser.add_argument("--display-name", default="Python (Droste)",
                        help="how menus show it (Python (Droste))")
    parser.add_argument("--prefix", help="below this directory, such as that of an environment; "
                                         "otherwise for the user")
    parser.add_argument("settings", nargs="*", metavar="--SETTING VALUE")
    found = parser.parse_args(words)
    if len(found.settings) % 2 or not all(word.startswith("--") for word in found.settings[::2]):
        parser.error("expected pairs of --SETTING VALUE behind `--`")
    settings = {name[2:].replace("-", "_"): value
                for name, value in zip(found.settings[::2], found.settings[1::2])}
    try:
        with Interpreter(**settings) as interp:     # type: ignore[arg-type]
            interp.execute("")
    except Error as error:
        parser.error(str(error))
    from jupyter_client.kernelspec import KernelSpecManager  # type: ignore
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "kernel.json"), "w") as out:
            json.dump(specification(settings, found.display_name), out, indent=1)
        place = KernelSpecManager().install_kernel_spec(
            directory, found.name, user=not found.prefix, prefix=found.prefix)
    print("%s: the kernel %r is installed" % (place, found.name))
    return 0


def main() -> int:
    if sys.argv[1:2] == ["install"]:
        return install(sys.argv[2:])
    IPKernelApp.launch_instance(kernel_class=DrosteKernel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
