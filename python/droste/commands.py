"""`Interpreter.commands` and `Interpreter.acommands`: programs in an open session's sandbox.

    with droste.Interpreter() as interp:
        interp.files.write("a.txt", "b\\na\\n")
        print(interp.commands.run("sort a.txt | head -1").stdout)
        with interp.commands.start(["tail", "-f", "a.txt"]) as command:
            print(command.read())

A process beside the session's runs them, with the code's files, user and limits, so no call waits
for a running cell: use another thread, or `await interp.acommands.run(...)`. docs/commands.md has
the details.
"""
from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import (Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, Union)

from . import _library, errors
from ._library import quick
from ._requests import Awaiting, Blocking, end, Request, Steps

__all__ = ["AsyncCommand", "AsyncCommands", "Command", "CommandFailed", "CommandInfo",
           "CommandResult", "Commands", "Output"]

PIECE = 1 << 20             # DROSTE_COMMAND_PIECE
STDIN, MERGE, EOF, TERMINAL, DRAIN, ALONE = 1, 2, 4, 8, 16, 32
OUTPUT_MOST = 64 << 20      # bytes of output that run() keeps unless `limit` says otherwise
Words = Union[str, Sequence[Union[str, bytes]]]
Data = Union[bytes, bytearray, memoryview, str]
Callback = Callable[[str], Any]
Size = Tuple[int, int]      # columns and rows of a terminal


class CommandResult(NamedTuple):
    """How a command ended, and what it wrote."""
    #: its exit status, or the negative number of the signal that ended it
    exit_code: int
    #: invalid UTF-8 is replaced
    stdout: str
    stderr: str
    #: it was killed at its time limit
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended with the exit status 0."""
        return self.exit_code == 0


class Output(NamedTuple):
    """What a command has written since the last read; both are empty at its end."""
    stdout: bytes
    stderr: bytes


class CommandInfo(NamedTuple):
    """A command of a session, as `list` describes it."""
    pid: int
    #: what its start gave; None if it did not
    tag: Optional[str]
    user: Optional[str]
    cwd: Optional[str]
    argv: List[str]
    env: Dict[str, str]
    #: whether it has a terminal
    terminal: bool
    #: as of Command; None while it runs
    exit_code: Optional[int]
    timed_out: bool
    #: its words were longer than 8 KiB: `env` is empty, and the end of `argv` may be missing
    cut: bool


class CommandFailed(errors.Error):
    """A command that `run(check=True)` started has not ended with the exit status 0."""
    code = "command"

    def __init__(self, result: CommandResult):
        how = ("it exceeded its time limit" if result.timed_out
               else "exit status %d" % result.exit_code if result.exit_code >= 0
               else "signal %d" % -result.exit_code)
        lines = result.stderr.strip().splitlines()
        super().__init__("the command failed: %s%s" % (how, ": " + lines[-1] if lines else ""))
        #: its end, and what it wrote
        self.result = result


class _Answer(NamedTuple):
    handle: int
    pid: int
    out: bytes
    err: bytes
    ended: bool
    status: int
    timed_out: bool
    commands: List[CommandInfo]


def _words_at(words: Any) -> List[str]:
    found: List[str] = []
    while words[len(found)] is not None:
        found.append(os.fsdecode(words[len(found)]))
    return found


def _info_of(info: Any) -> CommandInfo:
    env = dict(word.split("=", 1) for word in _words_at(info.env) if "=" in word)
    tag, user, cwd = (os.fsdecode(word) or None for word in (info.tag, info.user, info.cwd))
    return CommandInfo(info.pid, tag, user, cwd, _words_at(info.argv), env, bool(info.terminal),
                       info.status if info.ended else None, bool(info.timed_out), bool(info.cut))


def _bytes_at(data: Any, length: int) -> bytes:
    return _library.bytes_at(data, length) if length else b""


def _answer_of(reply: Any) -> _Answer:
    return _Answer(reply.handle, reply.pid, _bytes_at(reply.out, reply.out_len),
                   _bytes_at(reply.err, reply.err_len), bool(reply.ended), reply.status,
                   bool(reply.timed_out),
                   [_info_of(reply.commands[i]) for i in range(reply.count)])


class _Request(Request):
    """A request for a command."""

    def __init__(self, op: str, **fields: Any):
        super().__init__()
        self.fields = dict(fields, op=op.encode())
        self.opens = op in ("start", "attach")

    def send(self, session: Any, error: Any) -> int:
        made = _library.CommandRequest(**self.fields)
        return quick.droste_command_start(session, ctypes.byref(made), _on_answer, self.id, error)

    def failure_of(self, error: Any) -> Exception:
        failure = errors.of(error)
        if not error.sys or isinstance(failure, errors.LostError):
            return failure
        return OSError(error.sys, error.text.decode("utf-8", "replace"))


@_library.CommandFn
def _on_answer(arg: int, reply: Any, error: Any) -> None:
    end(arg, reply, error, _answer_of)


# -- the operations, as generators of requests

def _list_of(words: List[bytes]) -> Any:
    if any(b"\0" in word for word in words):
        raise ValueError("a word of a command, or of its environment, has a NUL")
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _words_of(command: Words) -> List[bytes]:
    if isinstance(command, (str, bytes)):
        return [b"/bin/sh", b"-c", os.fsencode(command)]
    return [os.fsencode(word) for word in command]


def _text_of(text: Optional[str]) -> Optional[bytes]:
    if text is not None and "\0" in text:
        raise ValueError("a name of a command, its user or its directory has a NUL")
    return None if text is None else os.fsencode(text)


def _start_fields(command: Words, cwd: Optional[str], env: Optional[Mapping[str, str]],
                  timeout: Optional[float], user: Optional[str], tag: Optional[str], flags: int,
                  terminal: Optional[Size] = None) -> Dict[str, Any]:
    if timeout is not None and timeout <= 0:
        raise errors.ArgumentError("timeout must be positive, not %r" % timeout)
    pairs = [os.fsencode("%s=%s" % pair) for pair in (env or {}).items()]
    return dict(argv=_list_of(_words_of(command)), env=_list_of(pairs),
                cwd=_text_of(cwd), flags=flags | (TERMINAL if terminal else 0),
                timeout_ms=max(1, round(timeout * 1000)) if timeout is not None else 0,
                user=_text_of(user), tag=_text_of(tag), **_size_fields(terminal or (0, 0)))


def _size_fields(size: Size) -> Dict[str, Any]:
    columns, rows = size
    if columns < 0 or rows < 0:
        raise errors.ArgumentError("a terminal has positive numbers of columns and rows")
    return dict(columns=columns, rows=rows)


def _bytes_of(data: Data) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


class _Process:
    """A started command: what the blocking and the awaiting kind have in common."""

    def __init__(self, owner: Any, answer: _Answer, timeout: Optional[float],
                 attached: bool = False):
        self._owner, self._attached = owner, attached
        self._handle: Optional[int] = answer.handle
        self._deadline = None if timeout is None else time.monotonic() + timeout
        #: its process id in the sandbox
        self.pid = answer.pid
        #: its exit status, or the negative number of a signal; None until its end was read
        self.exit_code: Optional[int] = None
        #: it was killed at its time limit
        self.timed_out = False

    def _request(self, op: str, **fields: Any) -> _Request:
        if self._handle is None:
            raise errors.ArgumentError("the command was closed")
        return _Request(op, handle=self._handle, **fields)

    def _read(self) -> Steps:
        if self.exit_code is not None:
            return Output(b"", b"")
        left = None if self._deadline is None else self._deadline - time.monotonic()
        answer = yield self._request("output", length=PIECE,
                                     timeout_ms=0 if left is None else max(1, int(left * 1000)))
        if answer.ended:
            self.exit_code, self.timed_out = answer.status, answer.timed_out
        return Output(answer.out, answer.err)

    def _write(self, data: bytes, last: bool) -> Steps:
        for at in range(0, max(len(data), 1), PIECE):
            part = data[at:at + PIECE]
            flags = EOF if last and at + PIECE >= len(data) else 0
            if part or flags:
                yield self._request("input", data=part, len=len(part), flags=flags)

    def _wait(self) -> Steps:
        while self.exit_code is None:
            yield from self._read()
        return self.exit_code

    def _signal(self, number: int, group: bool) -> Steps:
        try:
            yield self._request("signal", signal=int(number), flags=0 if group else ALONE)
        except ProcessLookupError:
            return False
        return True

    def _resize(self, size: Size) -> Steps:
        yield self._request("resize", **_size_fields(size))

    def _close(self, detach: bool = False) -> Steps:
        if self._handle is None:
            return
        op = "detach" if detach or self._attached else "release"
        request, self._handle = self._request(op), None
        try:
            yield request
        except errors.Error:
            pass                        # it ended with its session or service


def _start(kind: Any, owner: Any, fields: Dict[str, Any], timeout: Optional[float]) -> Steps:
    answer = yield _Request("start", **fields)
    return kind(owner, answer, timeout)


def _attach(kind: Any, owner: Any, which: Union[int, str]) -> Steps:
    fields = dict(tag=_text_of(which)) if isinstance(which, str) else dict(pid=int(which))
    answer = yield _Request("attach", **fields)
    return kind(owner, answer, None, True)


def _list() -> Steps:
    answer = yield _Request("list")
    return answer.commands


class _Kept:
    """Output of run(): the callback's text, and what is kept of it."""

    def __init__(self, limit: int, callback: Optional[Callback]):
        import codecs
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.pieces: List[str] = []
        self.left, self.callback = limit, callback

    def take(self, data: bytes, last: bool = False) -> None:
        text = self.decode(data, last)
        self.left -= len(data)
        if self.left < 0:
            raise errors.ArgumentError(
                "the command has written more than `limit` bytes; raise it, or use start()")
        if text:
            self.pieces.append(text)
            if self.callback:
                self.callback(text)


class _Feed:
    """Writes input piece by piece while the output is read. A command need not read all of it."""

    def __init__(self, owner: Any, process: _Process, data: bytes):
        self.owner, self.steps = owner, process._write(data, True)

    def step(self) -> None:
        """Sends the next piece; runs in the engine's thread."""
        request = next(self.steps, None)
        if request is None:
            return
        request.on_end = lambda: self.step() if request.failure is None else None
        request.start(self.owner)


def _run(owner: Any, fields: Dict[str, Any], given: Optional[bytes], timeout: Optional[float],
         out: _Kept, err: _Kept) -> Steps:
    process = yield from _start(_Process, owner, fields, timeout)
    try:
        if given is not None:
            owner._engine.post(_Feed(owner, process, given).step)
        while process.exit_code is None:
            output = yield from process._read()
            out.take(output.stdout)
            err.take(output.stderr)
    except GeneratorExit:
        raise
    except BaseException:
        yield from process._close()
        raise
    yield from process._close()
    out.take(b"", True)
    err.take(b"", True)
    return CommandResult(process.exit_code, "".join(out.pieces), "".join(err.pieces),
                         process.timed_out)


def _flags_of(stdin: bool, merge: bool, drain: bool) -> int:
    return (STDIN if stdin else 0) | (MERGE if merge else 0) | (DRAIN if drain else 0)


def _run_steps(owner: Any, command: Words, input: Optional[Data], cwd: Optional[str],
               env: Optional[Mapping[str, str]], timeout: Optional[float],
               user: Optional[str], tag: Optional[str], on_stdout: Optional[Callback],
               on_stderr: Optional[Callback], merge: bool, drain: bool, check: bool,
               limit: int) -> Steps:
    given = None if input is None else _bytes_of(input)
    flags = _flags_of(given is not None, merge, drain)
    fields = _start_fields(command, cwd, env, timeout, user, tag, flags)
    result = yield from _run(owner, fields, given, timeout, _Kept(limit, on_stdout),
                             _Kept(limit, on_stderr))
    if check and not result.ok:
        raise CommandFailed(result)
    return result


class Command(_Process, Blocking):
    """A command that runs in a session's sandbox; `with` ends it."""

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def read(self) -> Output:
        """Waits for output. Both of its members are empty once the command has ended."""
        return self._do(self._read())

    def __iter__(self) -> Iterator[Output]:
        """Yields output until the end."""
        while True:
            output = self.read()
            if self.exit_code is not None:
                return
            yield output

    def write(self, data: Data) -> None:
        """Writes to its input, and waits until the command has room for it. Needs `stdin=True`."""
        self._do(self._write(_bytes_of(data), False))

    def close_stdin(self) -> None:
        """Ends its input."""
        self._do(self._write(b"", True))

    def wait(self) -> int:
        """Waits for its end and returns its exit code; output that was not read is dropped."""
        return self._do(self._wait())

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size of its terminal, and tells its processes (SIGWINCH)."""
        self._do(self._resize((columns, rows)))

    def send_signal(self, number: int, group: bool = True) -> bool:
        """Sends a signal to its process group, or to the process alone. Returns false if the
        command has ended."""
        return self._do(self._signal(number, group))

    def kill(self) -> bool:
        """Kills its process group. Returns false if the command has ended."""
        return self.send_signal(signal.SIGKILL)

    def detach(self) -> None:
        """Stops reading it; it goes on. `attach` finds it again."""
        self._do(self._close(detach=True))

    def close(self) -> None:
        """Kills it if it still runs. One that was attached to is not killed, but detached."""
        self._do(self._close())


class Commands(Blocking):
    """Commands in a session's sandbox, with calls that block."""

    def run(self, command: Words, *, input: Optional[Data] = None, cwd: Optional[str] = None,
            env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
            user: Optional[str] = None, tag: Optional[str] = None,
            on_stdout: Optional[Callback] = None, on_stderr: Optional[Callback] = None,
            merge: bool = False, drain: bool = False, check: bool = False,
            limit: int = OUTPUT_MOST) -> CommandResult:
        """Runs a command and returns its end and output.

        A text is given to `/bin/sh -c`; a list is a program, which is looked for in PATH, and its
        arguments. `env` is added to the session's environment, and `cwd` is where cells start
        unless it is given. After `timeout` seconds its process group is killed, and the result says
        `timed_out`. The callbacks get output as it arrives. With `merge`, what it writes to stderr
        is in `stdout`. With `check`, an exit code other than 0 raises CommandFailed. More than
        `limit` bytes of a stream raise ArgumentError, and the command is killed. A program or
        directory that does not exist raises FileNotFoundError. With `user`, it gets that user's
        environment and home directory. With `drain`, its end waits for what it has left running,
        unless a signal or the time limit has ended it. `list` and `attach` know it by its `tag`.
        """
        return self._do(_run_steps(self._owner, command, input, cwd, env, timeout, user, tag,
                                   on_stdout, on_stderr, merge, drain, check, limit))

    def start(self, command: Words, *, stdin: bool = False, cwd: Optional[str] = None,
              env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
              user: Optional[str] = None, tag: Optional[str] = None, merge: bool = False,
              drain: bool = False, terminal: Optional[Size] = None) -> Command:
        """Starts a command, to read its output or write its input while it runs; as `run`.

        `terminal=(columns, rows)` gives it a terminal of that size: it reads what is written, and
        all that it writes is in `stdout`.
        """
        fields = _start_fields(command, cwd, env, timeout, user, tag,
                               _flags_of(stdin, merge, drain), terminal)
        return self._do(_start(Command, self._owner, fields, timeout))

    def list(self) -> List[CommandInfo]:
        """Describes the commands that run, and those of the last 30 seconds."""
        return self._do(_list())

    def attach(self, which: Union[int, str]) -> Command:
        """Returns another reader of a command, found by its process id or tag, for its output from
        now on. One that has ended is known for 30 seconds. ProcessLookupError: there is none."""
        return self._do(_attach(Command, self._owner, which))


class AsyncCommand(_Process, Awaiting):
    """The same as coroutines, for a session on this event loop."""

    async def __aenter__(self) -> AsyncCommand:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def read(self) -> Output:
        """As `Command.read`."""
        return await self._do(self._read())

    async def __aiter__(self) -> AsyncIterator[Output]:
        while True:
            output = await self.read()
            if self.exit_code is not None:
                return
            yield output

    async def write(self, data: Data) -> None:
        """As `Command.write`."""
        await self._do(self._write(_bytes_of(data), False))

    async def close_stdin(self) -> None:
        """As `Command.close_stdin`."""
        await self._do(self._write(b"", True))

    async def wait(self) -> int:
        """As `Command.wait`."""
        return await self._do(self._wait())

    async def resize(self, columns: int, rows: int) -> None:
        """As `Command.resize`."""
        await self._do(self._resize((columns, rows)))

    async def send_signal(self, number: int, group: bool = True) -> bool:
        """As `Command.send_signal`."""
        return await self._do(self._signal(number, group))

    async def kill(self) -> bool:
        """As `Command.kill`."""
        return await self.send_signal(signal.SIGKILL)

    async def detach(self) -> None:
        """As `Command.detach`."""
        await self._do(self._close(detach=True))

    async def close(self) -> None:
        """As `Command.close`."""
        await self._do(self._close())


class AsyncCommands(Awaiting):
    """The same as coroutines, for a session on this event loop."""

    async def run(self, command: Words, *, input: Optional[Data] = None,
                  cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
                  timeout: Optional[float] = None, user: Optional[str] = None,
                  tag: Optional[str] = None, on_stdout: Optional[Callback] = None,
                  on_stderr: Optional[Callback] = None, merge: bool = False, drain: bool = False,
                  check: bool = False, limit: int = OUTPUT_MOST) -> CommandResult:
        """As `Commands.run`."""
        return await self._do(_run_steps(self._owner, command, input, cwd, env, timeout, user, tag,
                                         on_stdout, on_stderr, merge, drain, check, limit))

    async def start(self, command: Words, *, stdin: bool = False, cwd: Optional[str] = None,
                    env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
                    user: Optional[str] = None, tag: Optional[str] = None, merge: bool = False,
                    drain: bool = False, terminal: Optional[Size] = None) -> AsyncCommand:
        """As `Commands.start`."""
        fields = _start_fields(command, cwd, env, timeout, user, tag,
                               _flags_of(stdin, merge, drain), terminal)
        return await self._do(_start(AsyncCommand, self._owner, fields, timeout))

    async def list(self) -> List[CommandInfo]:
        """As `Commands.list`."""
        return await self._do(_list())

    async def attach(self, which: Union[int, str]) -> AsyncCommand:
        """As `Commands.attach`."""
        return await self._do(_attach(AsyncCommand, self._owner, which))
