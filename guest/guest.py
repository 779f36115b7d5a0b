"""guest.py: what runs inside a sandbox: one Python session, driven by frames from the host.

Sections in the order in which they run: boot (the zygote), link (frames over a private stream),
namespace (what the user's code sees), cell (running one piece of code), calls (asking the host),
helpers (buffers and the like), worker (the main loop).

Standard library only, CPython 3.8 and newer, no import of `threading` before a clone (its at-fork
hooks cost more than the clone itself). Nothing here is a wall: the user's code can reach all of it.
The host checks every frame, and budgets, limits and deadlines live there.
"""
import _signal
import _socket
import _thread
import ast
import builtins
import errno
import gc
import itertools
import json
import linecache
import mmap
import os
import select
import signal
import struct
import sys
import traceback
import types

# ---- frames: wire/frame.h says what they are ----

VERSION = 1
HEADER = struct.Struct("<BBHIQQ")
FLAG_FD = 1
HELLO, SET, EXEC, REPLY, INTERRUPT, CLOSE = 1, 2, 3, 4, 5, 7
READY, OUTPUT, CALL, RESULT = 17, 18, 19, 20
CHANNEL_FD = 3

PREVIEW = 80        # characters of a variable's preview
SUMMARY = 200       # variables in a summary
MESSAGE = 20000     # characters of an error's message
TRACEBACK = 60000   # characters of a traceback


def join_parts(parts):
    return b"".join([struct.pack("<I", len(parts)),
                     struct.pack("<%dQ" % len(parts), *map(len, parts))] + parts)


def split_parts(blob):
    view = memoryview(blob)
    (count,) = struct.unpack_from("<I", view)
    lengths = struct.unpack_from("<%dQ" % count, view, 4)
    at, parts = 4 + 8 * count, []
    for length in lengths:
        parts.append(view[at:at + length])
        at += length
    return parts


def shorten(text, limit):
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... [%d characters left out] ...\n%s" % (text[:half], len(text) - 2 * half,
                                                        text[-half:])


# Names, messages and reprs may be of the user's own subclasses of str, with methods of their own.
type_name = type.__dict__["__name__"].__get__


def plain(text):
    """An exact str that is UTF-8, without calling the user's methods."""
    return "".join((text,)).encode("utf-8", "backslashreplace").decode("utf-8")


# ---- link: one reader at a time, whoever waits ----

class Waiter:
    """One thread that waits for one frame (or, the main loop, for the next operation)."""
    __slots__ = ("frame", "wake")

    def __init__(self):
        self.frame = None
        self.wake = _thread.allocate_lock()
        self.wake.acquire()


def nudge(waiter):
    """Wakes a waiter; false where it was awake already (two threads may try at once)."""
    try:
        waiter.wake.release()
        return True
    except RuntimeError:
        return False


class Link:
    """Frames over the channel.

    Whoever waits and finds nobody reading becomes the reader, hands others their frames, and passes
    the role on when its own has come. An interrupt (SIGINT, which Python handles in the main thread)
    must not tear a frame apart: `busy` counts the main thread's critical sections, and a handler
    that finds it set only leaves a note (`poked`). `waiting` is set around the system calls in which
    the main thread waits within such a section: there an interrupt may raise. The host sends its
    frame before it rings, so whoever looks after the ring finds the frame read or readable.
    """

    def __init__(self, fd):
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self.sock.setblocking(True)
        self.poller = select.poll()
        self.poller.register(fd, select.POLLIN)
        self.space = memoryview(bytearray(65536))
        self.buffer = bytearray()
        self.fds = []
        self.reading = _thread.allocate_lock()
        self.writing = _thread.allocate_lock()
        self.waiters = {}
        self.inbox = []
        self.idle = Waiter()
        self.ids = itertools.count(1)   # next() is atomic; many threads call at once
        self.interrupted = None     # id of the operation that the host wants stopped
        self.main = _thread.get_ident()
        self.busy = 0
        self.waiting = False
        self.poked = False
        self.owner = None           # the worker's pid, once there is one
        self.unsent = b""           # small frames that nobody waits for go out with the next one

    # -- critical sections of the main thread

    def enter(self):
        if _thread.get_ident() == self.main:
            self.busy += 1

    def leave(self):
        if _thread.get_ident() == self.main:
            self.waiting = False    # an interrupt may have struck where block() does this
            self.busy -= 1
            if self.poked and not self.busy:
                self.look()

    def look(self):
        """Reads what is there, and raises if the running cell is to be stopped. An interrupt that
        comes meanwhile only makes it look again."""
        waiting, self.waiting = self.waiting, False
        try:
            again = True
            while again:
                self.poked = False
                self.read_waiting()
                stop_if_asked()
                again = self.poked
        finally:
            self.waiting = waiting

    # -- writing

    def send(self, kind, ident, head=b"", blob=b""):
        if os.getpid() != self.owner:
            raise RuntimeError("a forked process has no channel to the host")
        data = HEADER.pack(VERSION, kind, 0, len(head), ident, len(blob)) + head
        self.enter()
        try:
            with self.writing:
                if self.unsent:
                    data, self.unsent = self.unsent + data, b""
                if len(blob) <= 65536:
                    self.sock.sendall(data + blob if blob else data)
                else:
                    self.sock.sendall(data)
                    self.sock.sendall(blob)
        finally:
            self.leave()

    # -- reading

    def receive(self, how=0):
        """Takes what is there (the poller said that something is) and hands out whole frames."""
        # Into memory of our own: a fresh 64 KiB for each read would be mapped and unmapped again.
        count, ancillary, flags, _ = self.sock.recvmsg_into([self.space], 64, how)
        if not count:
            os._exit(0)             # the host is gone
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                self.fds.extend(struct.unpack("%di" % (len(payload) // 4), payload))
        if flags & _socket.MSG_CTRUNC:
            self.fds.append(None)   # there was no number free for it
        self.buffer += self.space[:count]
        at = 0
        while len(self.buffer) - at >= HEADER.size:
            _, kind, flags, head_len, ident, blob_len = HEADER.unpack_from(self.buffer, at)
            inline = 0 if flags & FLAG_FD else blob_len
            end = at + HEADER.size + head_len + inline
            if len(self.buffer) < end:
                break
            split = at + HEADER.size + head_len
            head = bytes(self.buffer[at + HEADER.size:split])
            blob = self.take_memfd(blob_len) if flags & FLAG_FD else bytes(self.buffer[split:end])
            self.dispatch(kind, ident, head, blob)
            at = end
        del self.buffer[:at]

    def take_memfd(self, length):
        """The bytes, or None where the user's code has used up its descriptors."""
        fd = self.fds.pop(0)
        if fd is None:
            return None
        try:
            return mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError:
            return None
        finally:
            os.close(fd)

    def dispatch(self, kind, ident, head, blob):
        if kind == REPLY:
            waiter = self.waiters.pop(ident, None)
            if waiter:
                waiter.frame = (head, blob)
                nudge(waiter)
        elif kind == INTERRUPT:
            self.interrupted = ident
            if _thread.get_ident() == self.main:
                self.poked = True
            else:
                signal.pthread_kill(self.main, signal.SIGINT)
        else:
            self.inbox.append((kind, ident, head, blob))
            nudge(self.idle)

    def read_waiting(self):
        """Reads what is there without waiting, unless another thread is reading."""
        self.busy += 1
        try:
            if not self.reading.acquire(False):
                return
            try:
                while self.poller.poll(0):
                    self.receive()
            finally:
                self.reading.release()
                self.pass_on()
        finally:
            self.busy -= 1

    def block(self, blocking):
        """Waits in one system call. Only here may an interrupt raise within the link: nothing is
        half done."""
        if _thread.get_ident() != self.main:
            blocking()
            return
        try:
            self.waiting = True
            if self.poked:
                self.look()
            blocking()
        finally:
            self.waiting = False

    def wait(self, waiter, done):
        """Returns when done() is true; reads the channel itself if nobody else does."""
        self.enter()
        try:
            while not done():
                if not self.reading.acquire(False):
                    self.block(waiter.wake.acquire)     # for a frame, or for the reader's role
                    continue
                try:
                    while not done():
                        self.block(self.poller.poll)
                        self.receive()
                finally:
                    self.reading.release()
                    self.pass_on()
        finally:
            self.leave()

    def pass_on(self):
        """Offers the role of the reader to somebody who waits."""
        for waiter in list(self.waiters.values()) + [self.idle]:
            if nudge(waiter):
                return

    def call(self, head, parts):
        """Asks the host; the reply's head (a dict) and its parts."""
        waiter = Waiter()
        ident = next(self.ids)
        try:
            self.waiters[ident] = waiter
            flush_output()
            self.send(CALL, ident, json.dumps(head).encode(), join_parts(parts))
            self.wait(waiter, lambda: waiter.frame is not None)
        finally:
            self.waiters.pop(ident, None)
            if waiter.frame is None:
                self.pass_on()      # the reader's role may have been offered to this thread
        head, blob = waiter.frame
        check_arrived(blob)
        return json.loads(head) if head else {}, split_parts(blob) if len(blob) else []

    def next_operation(self):
        if not self.inbox:
            self.wait(self.idle, self.inbox.__len__)
            self.idle.wake.acquire(False)
        return self.inbox.pop(0)

    def cut(self):
        """In a child that the user's code forked: the channel stays the parent's alone."""
        if self.owner is not None:
            self.sock.close()


def check_arrived(blob):
    if blob is None:
        raise OSError(errno.EMFILE, "too many open files to receive a large value")


link = None


def on_interrupt(signum, frame):
    """SIGINT is only a doorbell; what is to be stopped is said by a frame."""
    if link is None or link.owner is None:
        return                  # nothing runs yet; the frame will be found when something does
    if os.getpid() != link.owner:
        raise KeyboardInterrupt
    if link.busy and not link.waiting:
        link.poked = True
    else:
        link.look()


def stop_if_asked():
    if session.running is not None and link.interrupted == session.running:
        link.interrupted = None
        session.was_interrupted = True
        raise KeyboardInterrupt


# ---- namespace: what the user's code sees ----

class Submitted(BaseException):
    """Ends the cell; `except Exception` does not catch it."""


class LLMError(RuntimeError):
    """A model call failed. `code` is the host's name for the reason, such as "model_rate"; `answer`
    is what a child run said last that came to no answer."""
    answer = None

    def __init__(self, message="", code="model"):
        super().__init__(message)
        self.code = code


class BudgetExceeded(LLMError):
    """A limit of the run was reached; the message says what was spent of what."""

    def __init__(self, message="", code="budget"):
        super().__init__(message, code)


class LLMTimeout(LLMError, TimeoutError):
    """The answer did not come in time; the message says which time."""

    def __init__(self, message="", code="timeout"):
        super().__init__(message, code)


class FailedReply(str):
    """The place of a failed call in a batch: the text "[ERROR] …", with the exception as `.error`.
    Replies that succeeded are plain strings."""
    error = None


class Session:
    """The state of one session: its namespace, its answer, what the host was told last."""

    def __init__(self):
        self.running = None
        self.was_interrupted = False
        self.submitted = None
        self.output_fields = None
        self.summary = None
        self.buffers = {}
        self.event_loop = None
        main = types.ModuleType("__main__")
        self.namespace = main.__dict__
        self.use(builtins)
        sys.modules["__main__"] = main

    def start(self):
        self.namespace["answer"] = {"content": "", "ready": False}

    def use(self, names):
        """The built-ins of the user's code; rules give it others than this file has."""
        self.builtins = self.namespace["__builtins__"] = names


session = None


def to_json(value):
    """Strict JSON as bytes; raises ValueError or TypeError in words for the cell's author."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=simplify)
    except ValueError as e:
        if "Out of range float" in str(e):
            raise ValueError("NaN and Infinity are not JSON; submit None or a string") from None
        raise
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is not text; encode the bytes another way, "
                         "for example base64") from None


def simplify(value):
    """What json cannot write but means something plain: sets, numpy's numbers, paths."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    for method in ("tolist", "item"):
        if hasattr(value, method) and type(value).__module__.split(".")[0] in ("numpy", "array"):
            return getattr(value, method)()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError("a value of type %s is not JSON; submit str, int, float, bool, None, list or "
                    "dict" % type(value).__name__)


def SUBMIT(*values, **fields):
    """Ends the cell with a result: SUBMIT(name=value, ...).

    One positional value is the field `output`, several are a list under that name; where the host
    said which fields it wants, positional values are given to them in order. Values are strict JSON.
    """
    names = session.output_fields
    if names and values:
        if len(values) + len(fields) != len(names):
            raise TypeError("SUBMIT expected %d values (%s), got %d"
                            % (len(names), ", ".join(names), len(values) + len(fields)))
        for name, value in zip(names, values):
            if name in fields:
                raise TypeError("SUBMIT got two values for %r" % name)
            fields[name] = value
    elif values and fields:
        raise TypeError("SUBMIT takes values or name=value, not both")
    elif values:
        fields = {"output": values[0] if len(values) == 1 else list(values)}
    elif not fields and not names:
        fields = {"output": []}
    if names and set(fields) != set(names):
        raise TypeError("SUBMIT needs exactly the fields %s, got %s"
                        % (", ".join(names), ", ".join(fields) or "none"))
    session.submitted = to_json(fields)
    raise Submitted


def FINAL(value=""):
    """Ends the cell with `value` as the answer."""
    SUBMIT(**{(session.output_fields or ["answer"])[0]: value})


def FINAL_VAR(name):
    """Ends the cell with the variable of this name as the answer."""
    name = str(name).strip().strip("\"'")
    if name not in session.namespace:
        raise NameError("FINAL_VAR: there is no variable %r; assign it in a code block first. %s"
                        % (name, SHOW_VARS()))
    FINAL(session.namespace[name])


def SHOW_VARS():
    """The names and types of the variables so far, as text."""
    found = {name: type(value).__name__ for name, value in user_variables() if name != "answer"}
    if not found:
        return "No variables created yet. Use ```repl``` blocks to create variables."
    return "Available variables: %s" % found


def user_variables():
    return [(name, value) for name, value in list(session.namespace.items())
            if type(name) is str and not name.startswith("_")
            and type(value) is not types.ModuleType]


PLAIN = (int, float, bool, complex, type(None))


def describe(name, value):
    """One variable for the summary. Only exact built-in types are looked into: a stranger's __len__
    or __repr__ could take for ever, raise or lie."""
    kind = type(value)
    entry = {"name": plain(name[:200]), "type": plain(type_name(kind)[:200])}
    if kind in (str, bytes, bytearray):
        entry["length"] = len(value)
        entry["preview"] = repr(value[:PREVIEW])
    elif kind in (list, tuple, dict, set, frozenset):
        entry["length"] = len(value)
    elif kind in PLAIN and not (kind is int and value.bit_length() > 1000):
        entry["preview"] = repr(value)
    return entry


def variables_if_changed():
    """The summary, or None where nothing was bound, deleted or changed in length since the last."""
    found = [describe(name, value) for name, value in user_variables()[:SUMMARY]]
    if found == session.summary:
        return None
    session.summary = found
    return found


# ---- cell: running one piece of code ----

TOP_LEVEL_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)


def compile_cell(code, name, echo):
    """(code of the statements, code of the last expression or None)."""
    if not echo:
        return compile(code, name, "exec", TOP_LEVEL_AWAIT, True), None
    tree = compile(code, name, "exec", TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), name, "eval", TOP_LEVEL_AWAIT, True)
    return compile(tree, name, "exec", TOP_LEVEL_AWAIT, True), last


def run_code(code):
    """Runs compiled code in __main__; code with top-level await runs on the session's event loop."""
    value = eval(code, session.namespace)
    if code.co_flags & 0x80 and isinstance(value, types.CoroutineType):     # CO_COROUTINE
        import asyncio
        if session.event_loop is None or session.event_loop.is_closed():
            session.event_loop = asyncio.new_event_loop()
            asyncio.set_event_loop(session.event_loop)
        value = session.event_loop.run_until_complete(value)
    return value


def run_cell(ident, name, code, echo):
    """(exception or None, echoed value or None). Between the two marks an interrupt raises here."""
    failure = value = None
    session.submitted = None
    session.was_interrupted = False
    try:
        session.running = ident
        try:
            link.look()         # it may have been interrupted before it began
            body, last = compile_cell(code, name, echo)
            run_code(body)
            if last is not None:
                value = run_code(last)
                if value is not None:
                    session.builtins._ = value
                    value = shorten(plain(repr(value)), MESSAGE)
        finally:
            session.running = None
    except Submitted:
        pass
    except BaseException as e:
        session.running = None  # an interrupt may have struck in the line above
        failure = e
    return failure, value


def without_ours(tb):
    """A traceback without this file's frames, and without those of the rules."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    at = tb
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename == __file__:
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return tb


def error_of(e):
    """{type, message, traceback} with the cell's own lines; this file's frames are left out."""
    try:
        message = plain(str(e))
    except BaseException:
        message = "<str() of the exception failed>"
    name = plain(type_name(type(e))[:200])
    tb = without_ours(e.__traceback__)
    try:
        text = plain("".join(traceback.format_exception(type(e), e, tb)))
    except BaseException:
        text = "%s: %s\n" % (name, message)
    return {"type": name, "message": shorten(message, MESSAGE),
            "traceback": shorten(text, TRACEBACK)}


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


def source_lines(code):
    """As the compiler counts them; str.splitlines knows more line ends."""
    return [line + "\n" for line in code.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def execute(ident, head, blob):
    code = ("raise OSError(24, 'too many open files to receive the code')" if blob is None
            else bytes(blob).decode("utf-8"))
    name = head.get("name") or "<cell %d>" % ident
    linecache.cache[name] = (len(code), None, source_lines(code), name)
    if _signal.getsignal(_signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)
    failure, value = run_cell(ident, name, code, head.get("echo"))
    if os.getpid() != link.owner:       # a fork in the cell came out here
        flush_output()
        os._exit(1 if failure else 0)
    finish_cell(ident, failure, value)


def finish_cell(ident, failure, value):
    result = {"status": "ok"}
    parts = []
    if failure is not None:
        result["status"] = "interrupted" if session.was_interrupted else "error"
        result["error"] = error_of(failure)
        failure = None
    submitted = session.submitted
    if submitted is None:
        submitted = answer_field()
    if submitted is not None:
        result["submitted"] = len(parts)
        parts.append(submitted)
    if value is not None:
        result["echo"] = len(parts)
        parts.append(value.encode())
    changed = variables_if_changed()
    if changed is not None:
        result["variables"] = changed
    flush_output()
    link.send(RESULT, ident, json.dumps(result).encode(), join_parts(parts) if parts else b"")


def answer_field():
    """`answer["content"]` once `answer["ready"]` is true, however it became so, as a submission. It
    counts once; a later cell may set it ready again. What is in it is the user's and may raise."""
    answer = session.namespace.get("answer")
    if type(answer) is not dict:
        return None
    try:
        if not answer.get("ready"):
            return None
    except BaseException:
        return None
    answer["ready"] = False
    content = answer.get("content", "")
    for attempt in (lambda: content, lambda: plain(str(content))):
        try:
            return to_json({"answer": attempt()})
        except BaseException:
            pass
    return to_json({"answer": "<a value of type %s that is neither JSON nor text>"
                    % plain(type_name(type(content)))})


# ---- variables from the host ----

def decode_files(blob):
    """{path: text}: a count, then for each the lengths of path and text, and both."""
    files, at = {}, 4
    (count,) = struct.unpack_from("<I", blob)
    for _ in range(count):
        path_len, text_len = struct.unpack_from("<IQ", blob, at)
        at += 12
        path = os.fsdecode(bytes(blob[at:at + path_len]))
        at += path_len
        files[path] = str(memoryview(blob)[at:at + text_len], "utf-8")
        at += text_len
    return files


def decode_auto(blob):
    try:
        return str(blob, "utf-8")
    except UnicodeDecodeError:
        return bytes(blob)


DECODERS = {
    "text": lambda blob: str(blob, "utf-8"),
    "bytes": bytes,
    "auto": decode_auto,
    "json": lambda blob: json.loads(str(blob, "utf-8")),
    "jsonl": lambda blob: [json.loads(line) for line in str(blob, "utf-8").split("\n")
                           if line.strip()],
    "files": decode_files,
}


def samples(value):
    """What a large value is like, for somebody who will not see it."""
    if type(value) is dict:
        found = {"keys": [plain(str(key))[:PREVIEW] for key, _ in zip(value, range(5))]}
        texts = [len(v) for v in value.values() if type(v) is str]
        if texts:
            found["characters"] = sum(texts)
        return found
    if type(value) is list and value:
        return {"item": type(value[0]).__name__}
    return {}


def set_variable(ident, head, blob):
    """Binds a variable and says what it became."""
    try:
        check_arrived(blob)
        value = DECODERS[head["kind"]](blob)
        for name in head["names"]:
            session.namespace[name] = value
        result = {"status": "ok", "variable": describe(head["names"][0], value)}
        result["variable"].update(samples(value))
    except BaseException as e:
        result = {"status": "error", "error": error_of(e)}
    link.send(RESULT, ident, json.dumps(result).encode())


# ---- calls: asking the host ----

def failure(error, said=b""):
    """The exception that the host means; `said` is what came all the same, as JSON."""
    kind = {"budget": BudgetExceeded, "timeout": LLMTimeout}.get(error.get("code"), LLMError)
    known = {"ValueError": ValueError, "TypeError": TypeError}
    if error.get("type") in known:
        return known[error["type"]](error.get("message", ""))
    exception = kind(error.get("message", ""), error.get("code", "model"))
    exception.answer = json.loads(str(said, "utf-8")) if len(said) else None
    return exception


def encode_prompt(prompt):
    """(bytes, is a list of messages)."""
    if isinstance(prompt, str):
        if not prompt:
            raise ValueError("prompt cannot be empty")
        return prompt.encode("utf-8", "replace"), False
    if isinstance(prompt, dict):
        prompt = [prompt]
    if isinstance(prompt, (list, tuple)) and prompt and all(
            isinstance(m, dict) and isinstance(m.get("role"), str)
            and isinstance(m.get("content"), str) for m in prompt):
        return to_json([{"role": m["role"], "content": m["content"]} for m in prompt]), True
    raise TypeError("a prompt is a str, or a list of {'role': …, 'content': …} messages, not %s"
                    % type(prompt).__name__)


def ask(name, model, parts, decode, **head):
    """A call of the host's function; a reply or an exception for each prompt, in their order."""
    if model is not None and not isinstance(model, str):
        raise TypeError("model is a str or None, not %s" % type(model).__name__)
    if model:
        head["model"] = model
    reply, parts = link.call(dict(head, name=name), parts)
    if "error" in reply:
        raise failure(reply["error"])
    errors = reply.get("errors", {})
    return [failure(errors[str(i)], part) if str(i) in errors else decode(str(part, "utf-8"))
            for i, part in enumerate(parts)]


def one(replies):
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies[0]


def mark_failed(reply):
    if not isinstance(reply, Exception):
        return reply
    failed = FailedReply("[ERROR] %s" % reply)
    failed.error = reply
    return failed


def check_list(prompts):
    if isinstance(prompts, (str, dict)):
        raise TypeError("prompts is a list of prompts, not one %s" % type(prompts).__name__)
    return list(prompts)


def ask_models(prompts, model):
    encoded = [encode_prompt(prompt) for prompt in prompts]
    messages = [i for i, (_, is_list) in enumerate(encoded) if is_list]
    return ask("llm_query", model, [data for data, _ in encoded], str, messages=messages)


def llm_query(prompt, model=None):
    """Asks a language model; the answer's text. Raises LLMError or BudgetExceeded."""
    return one(ask_models([prompt], model))


def llm_query_batched(prompts, model=None):
    """Asks for many prompts at once; the answers in their order. A failed one is a FailedReply."""
    prompts = check_list(prompts)
    return list(map(mark_failed, ask_models(prompts, model))) if prompts else []


def encode_context(value):
    """(kind, bytes) for DECODERS."""
    if isinstance(value, str):
        return "text", value.encode("utf-8", "replace")
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    return "json", to_json(value)


def ask_runs(prompts, context, model):
    """A prompt is a str, or {"prompt": str, "context": a context of its own}."""
    texts, values, of = [], {}, []      # values: each context once, by its id
    for prompt in prompts:
        own = context
        if isinstance(prompt, dict):
            prompt, own = prompt.get("prompt", prompt.get("query")), prompt.get("context", context)
        if not isinstance(prompt, str):
            raise TypeError("a prompt of a child run is a str, not %s" % type(prompt).__name__)
        texts.append(prompt.encode("utf-8", "replace"))
        given = own is not None and not (isinstance(own, str) and not own)
        of.append(values.setdefault(id(own), (len(values), own))[0] if given else -1)
    encoded = [encode_context(value) for _, value in values.values()]
    return ask("rlm_query", model, texts + [data for _, data in encoded], json.loads,
               kinds=[kind for kind, _ in encoded], of=of)


def rlm_query(prompt, context=None, model=None):
    """Starts a child run, which works on `context` by writing code; the value that it submits."""
    return one(ask_runs([prompt], context, model))


def rlm_query_batched(prompts, context=None, model=None):
    """Starts many child runs at once; their answers in order. A failed one is a FailedReply."""
    prompts = check_list(prompts)
    return list(map(mark_failed, ask_runs(prompts, context, model))) if prompts else []


def alias(function, name):
    return types.FunctionType(function.__code__, globals(), name, function.__defaults__)


sub_rlm = alias(rlm_query, "sub_rlm")
sub_rlm_batched = alias(rlm_query_batched, "sub_rlm_batched")


# ---- helpers ----

def add_buffer(name, value):
    """Appends a value to the named list of this session."""
    session.buffers.setdefault(str(name).strip() or "default", []).append(value)


def get_buffer(name):
    """A copy of the named list; empty where nothing was added."""
    return list(session.buffers.get(str(name).strip() or "default", []))


def clear_buffer(name=None):
    """Empties one named list, or all."""
    if name is None:
        session.buffers.clear()
    else:
        session.buffers.pop(str(name).strip() or "default", None)


PUBLIC = (SUBMIT, FINAL, FINAL_VAR, SHOW_VARS, llm_query, llm_query_batched, rlm_query,
          rlm_query_batched, sub_rlm, sub_rlm_batched, add_buffer, get_buffer, clear_buffer,
          LLMError, BudgetExceeded, LLMTimeout, FailedReply)


# ---- worker: the main loop ----

def find_seeds():
    """Functions that give the random generators a new state; a clone copies that of the zygote."""
    random = sys.modules["random"]
    seed = super(random.Random, random._inst).seed      # in C: half the pages touched
    # By itself it would ask the kernel for 2.5 KB; 256 bits are as good, and take half the time.
    found = [lambda: seed(int.from_bytes(os.urandom(32), "little"))]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        found.append(numpy.random.seed)
    return found


def settle():
    """Among the host's files: the directory that the plan leads to is the session's own, for temporary
    files too. In a root of its own that is /tmp, as the environment says already."""
    os.environ["HOME"] = os.environ["TMPDIR"] = os.getcwd()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None


def apply_hello(head, blob):
    for name, value in head.get("env", {}).items():
        os.environ[name] = value
    session.output_fields = head.get("output_fields")
    if head.get("cwd"):
        os.chdir(head["cwd"])
    if "rules" in head:
        rules = types.ModuleType("droste_rules")
        exec(compile(blob, __file__, "exec"), rules.__dict__)
        session.use(rules.lay(head["rules"]))


class Rehearsal:
    """A channel and a session of their own, for cells that are forgotten."""

    def __enter__(self):
        global link, session
        self.kept, self.main = (link, session), sys.modules["__main__"]
        self.host, guest = _socket.socketpair()
        link, session = Link(guest.detach()), Session()
        session.start()
        link.owner = os.getpid()
        return self

    def ask(self, ident):
        for kind, blob in ((HELLO, b""), (EXEC, b"x = 1 + 1")):
            self.host.sendall(HEADER.pack(VERSION, kind, 0, 0, ident, len(blob)) + blob)

    def play(self):
        for _ in range(2):
            serve(*link.next_operation())

    def __exit__(self, *error):
        global link, session
        link.sock.close()
        self.host.close()
        linecache.cache.clear()
        (link, session), sys.modules["__main__"] = self.kept, self.main


def rehearse(rounds):
    """Runs cells and forgets them.

    In the zygote: the interpreter has then specialised the code of this path (3.11 and later write
    that into the code itself) and has filled its caches, and clones share the result. In a clone
    that is made in advance: it has the time to copy the pages that a first cell writes to."""
    with Rehearsal() as stage:
        for ident in range(1, rounds + 1):
            session.namespace.pop("x", None)
            stage.ask(ident)
            stage.play()
            stage.host.recv(65536)


def serve(kind, ident, head, blob):
    head = json.loads(head) if head else {}
    if kind == EXEC:
        execute(ident, head, blob)
    elif kind == SET:
        set_variable(ident, head, blob)
    elif kind == HELLO:
        if head:
            apply_hello(head, blob)
        link.unsent = READY_FRAME
    elif kind == CLOSE:
        flush_output()
        os._exit(0)


def begin():
    """What a clone does first; false if nothing was asked of it yet."""
    link.owner = os.getpid()
    for seed in seeds:
        seed()
    try:
        link.receive(_socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


def work():
    """Serves operations until the host closes the channel."""
    if not begin():
        rehearse(1)     # there is time
    while True:
        serve(*link.next_operation())


# ---- boot: the zygote ----

PRELOAD = ("collections", "csv", "datetime", "functools", "heapq", "itertools", "math", "random",
           "re", "string", "textwrap", "time")


SERVE_END, SERVE_WORKER, SERVE_WORKER_AMONG_FILES = 0, 1, 2     # guest/zygote.c
REHEARSALS = 16     # CPython specialises code when it has run eight times


def facts():
    """What the host must know of this interpreter to bind it into a sandbox."""
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
        "path": [p for p in sys.path if p],
    }


seeds = ()
READY_FRAME = HEADER.pack(VERSION, READY, 0, 0, 0, 0)


class ForkHooks:
    """Whether somebody wants to hear of forks. A clone runs the hooks of `os.register_at_fork` only
    if a preloaded module has some: they cost as much as half of a clone. Ours and those of `random`,
    whose work find_seeds does, do not count."""

    def __init__(self):
        self.register = os.register_at_fork
        # What a site's own start-up has imported may have hooks already.
        self.wanted = bool({"random", "threading"} & set(sys.modules))

    def __enter__(self):
        os.register_at_fork = self.note
        return self

    def note(self, **hooks):
        self.register(**hooks)
        self.wanted = self.wanted or hooks.keys() != {"after_in_child"} or (
            getattr(hooks["after_in_child"], "__module__", "") != "random")

    def __exit__(self, *error):
        os.register_at_fork = self.register


def learn_pages(library):
    """Has a copy of the zygote start as a worker does, to see which pages that needs (guest/pages.c)."""
    library.pages_keep_code()
    from_trial, to_zygote = os.pipe()
    with Rehearsal() as stage:
        stage.ask(1)
        pid = library.zygote_try()
        if pid == 0:
            try:
                begin()
                stage.play()
                library.pages_tell(to_zygote)
            finally:
                os._exit(0)
    os.close(to_zygote)
    library.pages_prepare(from_trial)
    os.close(from_trial)


def tidy_up(nest):
    """The host is gone. Among its files: ends what is left of the sandboxes, and their directories, which
    are in the one that the zygote's plan named; never where it merely happens to stand."""
    if not nest or not os.path.basename(nest).startswith(b"droste-"):
        return
    with open("/proc/thread-self/children") as children:
        for keeper in children.read().split():
            os.kill(int(keeper), signal.SIGTERM)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    import shutil
    shutil.rmtree(nest, ignore_errors=True)


def boot(control, helper, keeper, preload):
    """Runs the zygote; comes back from zygote_serve in each worker."""
    global link, session, seeds
    import ctypes
    import importlib
    with ForkHooks() as hooks:
        for name in PRELOAD + tuple(preload):
            importlib.import_module(name)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    for thing in PUBLIC:
        setattr(builtins, thing.__name__, thing)
    session = Session()
    session.start()
    # Made here, so that a clone need not: on its number stands the control socket now, and in a
    # clone the channel.
    link = Link(CHANNEL_FD)
    library = ctypes.PyDLL("/proc/self/fd/%d" % helper)
    os.close(helper)
    signal.signal(signal.SIGINT, on_interrupt)      # a clone may be interrupted before it works
    os.register_at_fork(after_in_child=link.cut)
    seeds = find_seeds()
    rehearse(REHEARSALS)
    gc.collect()
    gc.freeze()
    told = json.dumps(facts()).encode()
    rc = library.zygote_hello(control, keeper, told, len(told), hooks.wanted)
    if rc < 0:
        sys.stderr.write("the zygote cannot work here: %s\n" % os.strerror(-rc))
        os._exit(1)
    learn_pages(library)
    became = library.zygote_serve()
    if became == SERVE_END:
        library.zygote_nest.restype = ctypes.c_char_p
        tidy_up(library.zygote_nest())
        os._exit(0)
    if became == SERVE_WORKER_AMONG_FILES:
        settle()
    work()
