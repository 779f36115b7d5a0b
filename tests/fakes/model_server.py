#!/usr/bin/python3
"""A model server that speaks three dialects and misbehaves on request, for tests of model clients.

    model_server.py [--key KEY] [--script FILE] [--turns FILE] [--window N]
    model_server.py --many

Listens on 127.0.0.1, plain and TLS (a certificate made at start for localhost and 127.0.0.1), and
prints one JSON line {"port":…, "tls_port":…, "ca_file":…, "pid":…}; exits when its standard input
closes. With --many, each line of its standard input is a JSON list of the flags above, for which it
starts such a server without starting another interpreter; a signal ends one of them, its own end
ends all. POST behaves as the request's *model* says (see BEHAVIOURS and `numbered`), in the dialect
that the path names: OpenAI's (/v1/chat/completions, also in Azure's shapes), Anthropic's
(/v1/messages) or Gemini's (/v1beta/models/MODEL:generateContent). A request for a stream is
answered by an event stream wherever that makes sense.

With --key, every other key is refused with 401, and the refusal repeats the wrong key, as real
servers do. With --window, requests of more than N tokens are refused. With --script, the model
`scripted` answers the texts of a JSON list in order; an item
may also be {"content": TEXT, "contains": TEXT that the last message must hold, "delay_ms": N}. The
models `scripted-NAME` answer in any order: the first item of the list with "model": NAME whose
"contains" fits, which is then used up unless it has "repeat": true. Such an item may also have
"gate": N (it waits until so many requests have been open at once), "hang": true (it never answers)
and "status": N (it fails with that).

With --turns, the model `turns` answers the text of a JSON list that comes next in the conversation,
and `digest` a short hash of the last message, each after some milliseconds: what they say follows
from what they are asked alone, however often and in whichever order. The file may also be an object
of such lists: `turns-NAME` answers from the one of that name, `turns` from that of the name "". A
last message that begins with `hang` gets no answer when its idempotency key comes for the first
time.

GET /stats says what was seen, so that a test can prove that no call was lost or doubled:
requests, connections (that brought one), max_in_flight, bytes_in, models {name: count}, idempotency
{key: count}, seconds {name: [arrival of each request]}, reported {name: [input tokens, output
tokens]} (in OpenAI's dialect), tokens {key: [input, output] of the answer}, cancelled (requests
whose client went away), last (the last request: its path, its headers without the key, its body if
that is small), refused (by the model `limited`).
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

from model_dialects import Anthropic, find_dialect


class Stats:
    def __init__(self):
        self.requests = self.connections = self.in_flight = self.max_in_flight = 0
        self.bytes_in = self.cancelled = 0
        self.models, self.idempotency, self.seconds, self.reported, self.tokens = {}, {}, {}, {}, {}
        self.last = None
        self.images = []  # (type, base64) of each message, for each request that has some
        self.refused = 0
        self.level = {}  # (dialect, model) -> what it may have now
        self.tries = {}  # (model, last message) -> requests so far

    def begin(self, request):
        self.requests += 1
        self.connections += request.connection.served == 0
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.bytes_in += request.size
        self.last = request.public()
        self.models[request.model] = self.models.get(request.model, 0) + 1
        self.seconds.setdefault(request.model, []).append(time.monotonic())
        key = request.headers.get("idempotency-key", "")
        self.idempotency[key] = self.idempotency.get(key, 0) + 1
        request.nth = self.tries[request.model, request.last] = self.tries.get(
            (request.model, request.last), 0) + 1

    def public(self):
        hidden = ("tries", "in_flight", "level")
        return {k: v for k, v in vars(self).items() if k not in hidden}


class Request:
    def __init__(self, connection, method, path, headers, body):
        self.connection, self.method, self.path = connection, method, path
        self.headers, self.size = headers, len(body)
        self.nth = 0
        self.counts = True
        try:
            self.json = json.loads(body) if body else {}
        except ValueError:
            self.json = {}
        self.dialect, model = find_dialect(path)
        if not self.dialect:
            return
        self.model = model or str(self.json.get("model", ""))
        texts = self.dialect.messages(self.json)
        self.last = texts[-1]
        self.input_tokens = sum(map(len, texts)) // 4
        self.stream = self.dialect.stream(self.json, path)
        self.key = self.dialect.key(headers)

    def public(self):
        keys = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
        return {"path": self.path, "headers":
                {k: v for k, v in self.headers.items() if k not in keys},
                "body": self.json if self.size < 65536 else None}


class Gone(Exception):
    """The behaviour has closed the connection."""


REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
           429: "Too Many Requests"}


class Connection:
    def __init__(self, server, reader, writer):
        self.server, self.reader, self.writer = server, reader, writer
        self.served, self.line_end, self.burst = 0, "\n", None

    async def read_request(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        path = re.sub("^http://[^/]*", "", path)  # as a proxy is asked
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Request(self, method, path, headers, body)

    async def send(self, data):
        if self.burst is not None:
            self.burst += data
            return
        self.writer.write(data)
        await self.writer.drain()

    def begin_burst(self):
        self.burst = b""

    async def end_burst(self):
        data, self.burst = self.burst, None
        await self.send(data)

    async def answer(self, status, body, content_type="application/json", extra=(), length=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        lines = ["HTTP/1.1 %d %s" % (status, REASONS.get(status, "Status")),
                 "Content-Type: " + content_type,
                 "Content-Length: %d" % (len(body) if length is None else length), *extra, "", ""]
        await self.send("\r\n".join(lines).encode() + body)

    async def begin_stream(self, content_type="text/event-stream; charset=utf-8"):
        await self.send(("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
                         % content_type).encode())

    async def chunk(self, data):
        if isinstance(data, str):
            data = data.encode()
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event_of(self, value):
        """The bytes of an event, with the ends of lines that the dialect has."""
        named = "event: %s\n" % value["type"] if isinstance(value, dict) and "type" in value else ""
        text = "%sdata: %s\n\n" % (named, value if isinstance(value, str)
                                   else json.dumps(value, ensure_ascii=False))
        return text.replace("\n", self.line_end).encode()

    async def event(self, value):
        """In two pieces, which end anywhere: a network keeps no boundaries."""
        data = self.event_of(value)
        await self.chunk(data[:len(data) // 2])
        await self.chunk(data[len(data) // 2:])

    async def events(self, values):
        for value in values:
            await self.event(value)

    async def end_stream(self):
        await self.send(b"0\r\n\r\n")

    def cut(self):
        self.writer.transport.abort()
        raise Gone()

    async def until_gone(self):
        """Waits until the client closes the connection."""
        await self.reader.read()
        self.server.stats.cancelled += 1
        raise Gone()

    async def serve(self):
        try:
            while True:
                request = await self.read_request()
                await self.server.dispatch(self, request)
                self.served += 1
        except Gone:
            pass
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.writer.close()


def pieces(text):
    """A few events for a short text, not too many for a long one."""
    size = max(7, len(text) // 50)
    return [text[i:i + size] for i in range(0, len(text), size)]


async def say(c, r, text, usage=True):
    """The well-behaved answer, streamed if the request asks for it."""
    r.counts = usage
    if not r.stream:
        return await c.answer(200, r.dialect.whole(r, text, usage=usage))
    await c.begin_stream()
    await say_on(c, r, text, usage)


async def say_on(c, r, text, usage=True):
    """The events of an answer, in a stream that has begun."""
    await c.events(r.dialect.begin(r))
    for piece in pieces(text):
        await c.event(r.dialect.piece(piece))
    await c.events(r.dialect.end(r, text, usage))
    await c.end_stream()


async def refuse(c, r, status, message, code=None, extra=()):
    await c.answer(status, r.dialect.error(status, message, code), extra=extra)


async def ok(c, r):
    await say(c, r, "The answer is ⟨42⟩.")


async def echo(c, r):
    await say(c, r, "%d:%s" % (len(r.last), r.last[:32]))


async def nousage(c, r):
    await say(c, r, "12345678", usage=False)


async def leak(c, r):
    await say(c, r, "your key is %s, is it not? s" % r.key)


async def as_json(c, r):
    """One JSON document, also where a stream was asked for."""
    await c.answer(200, r.dialect.whole(r, "not streamed"))


async def parts(c, r):
    await c.answer(200, r.dialect.whole(r, "", message={"role": "assistant", "content": [
        {"type": "text", "text": "in "}, {"type": "thinking"}, {"type": "text", "text": "parts"}]}))


async def dribble(c, r):
    """A correct stream that arrives byte by byte, with CRLF, comments, fields and no space after
    the colon."""
    d = r.dialect
    begin = [json.dumps(event, ensure_ascii=False) for event in d.begin(r)[:2]]
    lines = [*begin,
             *(json.dumps(d.piece(text), ensure_ascii=False) for text in ("dribb", "léd ", "⟨🙂⟩"))]
    end = [event if isinstance(event, str) else json.dumps(event)
           for event in d.end(r, "", usage=False)]
    await c.begin_stream()
    text = ": hello\r\n\r\nevent: chunk\r\nid: 1\r\n" + ": still there\r\n".join(
        "data:%s\r\n\r\n" % t for t in lines + end)
    r.counts = False
    for byte in text.encode():
        await c.chunk(bytes([byte]))
    await c.end_stream()


async def half(c, r):
    await c.begin_stream()
    await c.events(r.dialect.begin(r))
    await c.event(r.dialect.piece("half an ans"))


async def stream_cut(c, r):
    await half(c, r)
    await asyncio.sleep(0.05)
    c.cut()


async def stream_cut_inside(c, r):
    """Breaks off within an event, and within a character."""
    await half(c, r)
    data = c.event_of(r.dialect.piece("⟨never whole⟩"))
    await c.chunk(data[:data.index("⟨".encode()) + 1])
    await asyncio.sleep(0.05)
    c.cut()


async def stream_end_inside(c, r):
    """Ends as HTTP wants it, but within an event."""
    await half(c, r)
    await c.chunk(c.event_of(r.dialect.piece("never whole"))[:-6])
    await c.end_stream()


async def stream_bad_later(c, r):
    """What is not JSON comes behind what was."""
    await half(c, r)
    await c.event('{"choices": [{"delta": {"content": "x"}}')
    await c.until_gone()


async def stream_waits(c, r):
    """Is alive and says so, as routers do, and never answers."""
    await c.begin_stream()
    while not c.reader.at_eof():
        await c.chunk(": PROCESSING\n\n")
        await asyncio.sleep(0.05)
    c.server.stats.cancelled += 1
    raise Gone()


async def stream_end(c, r):
    """Ends as HTTP wants it, but in the middle of the answer."""
    await half(c, r)
    await c.end_stream()


async def stream_error(c, r):
    await half(c, r)
    await c.event(r.dialect.error(500, "engine overheated"))
    await c.end_stream()


async def stream_overloaded(c, r):
    """The first request of a text gets an error in the place of the first word."""
    if r.nth > 1:
        return await ok(c, r)
    await c.begin_stream()
    await c.event(r.dialect.error({"Anthropic": 529, "Gemini":
                                   503}.get(type(r.dialect).__name__, 500), "too many people"))
    await c.end_stream()


async def stream_bad(c, r):
    await c.begin_stream()
    await c.event('{"choices": [')
    await c.until_gone()


async def done_then_cut(c, r):
    """Says that all was said, and then breaks the connection without the end of the body."""
    await c.begin_stream()
    await c.events(r.dialect.begin(r))
    await c.event(r.dialect.piece("all of it"))
    await c.events(r.dialect.end(r, "all of it"))
    await asyncio.sleep(0.05)
    c.cut()


async def stall(c, r):
    """What comes comes at once: the time in which nothing comes begins behind the first word."""
    c.begin_burst()
    await c.begin_stream()
    await c.events(r.dialect.begin(r))
    await c.event(r.dialect.piece("a first word"))
    await c.end_burst()
    await c.until_gone()


async def hang(c, r):
    await c.until_gone()


async def cut_before(c, r):
    c.cut()


async def cut_reused(c, r):
    """Cuts every request but the first of a connection, before a byte of an answer."""
    if c.served > 0:
        c.cut()
    await say(c, r, "fresh")


async def cut_body(c, r):
    body = json.dumps(r.dialect.whole(r, "this will not arrive"))
    await c.answer(200, body[:40], length=len(body))
    await asyncio.sleep(0.05)
    c.cut()


async def badjson(c, r):
    await c.answer(200, '{"choices": [{"message": {"content": "x"')


async def html(c, r):
    await c.answer(200, "<html><body>Welcome to nginx!</body></html>", "text/html")


async def nochoices(c, r):
    await c.answer(200, {"id": "x", "usage": {"prompt_tokens": 1, "completion_tokens": 1}})


async def emptychoices(c, r):
    await c.answer(200, {"id": "x", "choices": []})


async def emptycontent(c, r):
    words = {"Anthropic": "max_tokens", "Gemini": "MAX_TOKENS"}
    await c.answer(200, r.dialect.whole(r, "",
                                        finish=words.get(type(r.dialect).__name__, "length")))


async def nullcontent(c, r):
    await c.answer(200, r.dialect.whole(r, "", finish="tool_calls",
                                        message={"role": "assistant", "content": None}))


async def refusal(c, r):
    await c.answer(200, r.dialect.whole(r, "", message={"role": "assistant", "content": None,
                                              "refusal": "I will not.\nReally."}))


async def error200(c, r):
    await c.answer(200, r.dialect.error(500, "no provider available"))


async def badutf8(c, r):
    await c.answer(200, json.dumps(r.dialect.whole(r, "AAA")).encode().replace(b"AAA", b"\xff\xfe"))


async def notfound(c, r):
    await refuse(c, r, 404, "The model `%s` does not exist" % r.model, "model_not_found")


async def auth(c, r):
    await refuse(c, r, r.dialect.wrong_key, "Incorrect API key provided: %s." % r.key,
                 "invalid_api_key")


async def context(c, r):
    await refuse(c, r, 400, "This model's maximum context length is 8192 tokens",
                 "context_length_exceeded")


async def quota(c, r):
    await refuse(c, r, 429, "You exceeded your current quota", "insufficient_quota")


async def nothing(c, r):
    """An answer of a shape that no dialect has."""
    await c.answer(200, {"id": "x"})


async def stopped(c, r):
    """Anthropic's and Gemini's ways to give no answer."""
    if isinstance(r.dialect, Anthropic):
        return await c.answer(200, {"type": "message", "content": [], "stop_reason": "refusal",
                                    "usage": {}})
    await c.answer(200, {"candidates": [{"finishReason": "SAFETY", "safetyRatings": []}]})


async def blocked(c, r):
    """Gemini's prompt that gets no candidate at all."""
    reply = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
             "usageMetadata": {"promptTokenCount": 9}}
    if not r.stream:
        return await c.answer(200, reply)
    await c.begin_stream()
    await c.event(reply)
    await c.end_stream()


async def tool(c, r):
    await c.answer(200, {"type": "message", "stop_reason": "tool_use", "usage": {},
                         "content": [{"type": "tool_use", "name": "x", "input": {}}]})


async def tool_calls(c, r):
    """Asks for a call of the request's first tool, as OpenAI does."""
    call = {"id": "call_1", "type": "function",
            "function": {"name": r.json["tools"][0]["function"]["name"], "arguments": "{}"}}
    await c.answer(200, r.dialect.whole(r, "", finish="tool_calls", message={
        "role": "assistant", "content": None, "tool_calls": [call]}))


async def limited(c, r):
    """Takes 3 requests at once and 10 a second, and says so in the dialect's headers; refuses more.
    `limited-silent` does the same and says nothing."""
    stats, now, most, rate = c.server.stats, time.monotonic(), 3, 10
    level, at = stats.level.get((r.dialect, r.model), (most, now))
    level = min(most, level + (now - at) * rate)
    allowed = level >= 1
    level -= allowed
    stats.level[r.dialect, r.model] = level, now
    stats.refused += not allowed
    full = (most - level) / rate
    names = ["x-ratelimit-%s-requests"] * 3
    reset = "%dms" % (full * 1000 + 1)
    if isinstance(r.dialect, Anthropic):
        names = ["anthropic-ratelimit-requests-%s"] * 3
        ms = int((time.time() + full) * 1000) + 1
        reset = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + ".%03dZ" % (ms % 1000)
    values = (("limit", most), ("remaining", int(level)), ("reset", reset))
    extra = ["%s: %s" % (name % word, value) for name, (word, value) in zip(names, values)]
    if r.model == "limited-silent":
        extra = []
    if allowed:
        return await c.answer(200, r.dialect.whole(r, "allowed"), extra=extra)
    await refuse(c, r, 429, "too fast", extra=extra)


async def redirect(c, r):
    await c.answer(301, "moved", "text/plain", ["Location: http://127.0.0.1:1/"])


BEHAVIOURS = {
    "ok": ok, "echo": echo, "nousage": nousage, "leak": leak, "json": as_json, "parts": parts,
    "dribble": dribble, "nothing": nothing, "limited": limited, "limited-silent": limited,
    "stopped": stopped,
    "blocked": blocked, "tool": tool, "tool-calls": tool_calls,
    "stream-overloaded": stream_overloaded,
    "stream-cut": stream_cut, "stream-end": stream_end, "stream-error": stream_error,
    "stream-cut-inside": stream_cut_inside, "stream-end-inside": stream_end_inside,
    "stream-bad-later": stream_bad_later,
    "stream-waits": stream_waits, "stream-bad": stream_bad, "done-then-cut": done_then_cut,
    "stall": stall, "hang": hang,
    "cut-before": cut_before, "cut-reused": cut_reused, "cut-body": cut_body, "badjson": badjson,
    "html": html,
    "nochoices": nochoices, "emptychoices": emptychoices, "emptycontent": emptycontent,
    "nullcontent": nullcontent,
    "refusal": refusal, "error200": error200, "badutf8": badutf8, "notfound": notfound,
    "auth": auth,
    "context": context, "quota": quota, "redirect": redirect,
}


async def numbered(c, r):
    """slow-MS, slow-first-MS (headers and signs of life come at once), big-BYTES, STATUS-N (the
    first N requests with a last message fail, 429 says Retry-After: 1), 429-date-N (Retry-After as
    a date two seconds ahead), 429-minute-N (Retry-After: 60)."""
    found = re.fullmatch(r"(slow|slow-first|big|429-date|429-minute|[45]\d\d)-(\d+)", r.model)
    if not found:
        return await notfound(c, r)
    kind, n = found.group(1), int(found.group(2))
    if kind == "slow":
        await asyncio.sleep(n / 1000)
        return await ok(c, r)
    if kind == "slow-first":
        await c.begin_stream()
        for _ in range(n // 50):
            await c.chunk(": PROCESSING\n\n")
            await asyncio.sleep(0.05)
        return await say_on(c, r, "The answer is ⟨42⟩.")
    if kind == "big":
        return await say(c, r, "x" * n)
    if r.nth > n:
        return await ok(c, r)
    extra = []
    if kind == "429":
        extra = ["Retry-After: 1"]
    if kind == "429-minute":
        extra = ["Retry-After: 60"]
    if kind == "429-date":
        at = time.gmtime(time.time() + 2)
        extra = ["Retry-After: " + time.strftime("%a, %d %b %Y %H:%M:%S GMT", at)]
    await refuse(c, r, int(kind[:3]), "failure %d of %d" % (r.nth, n), extra=extra)


class Server:
    def __init__(self, options):
        self.stats = Stats()
        self.key, self.window = options.key, options.window
        self.script = []
        if options.script:
            with open(options.script, encoding="utf-8") as f:
                self.script = json.load(f)
        self.turns = {}
        if options.turns:
            with open(options.turns, encoding="utf-8") as f:
                turns = json.load(f)
            self.turns = turns if isinstance(turns, dict) else {"": turns}

    async def scripted(self, c, r):
        if not self.script:
            return await refuse(c, r, 400, "the script is used up")
        item = self.script.pop(0)
        item = item if isinstance(item, dict) else {"content": item}
        if item.get("contains", "") not in r.last:
            return await refuse(c, r, 400, "the script expected %r in the last message"
                                % item["contains"])
        await asyncio.sleep(item.get("delay_ms", 0) / 1000)
        await say(c, r, item["content"])

    async def scripted_any(self, c, r):
        name = r.model.partition("-")[2]
        for item in self.script:
            if item.get("model") == name and item.get("contains", "") in r.last:
                break
        else:
            return await refuse(c, r, 400, "the script has nothing for %s about %r"
                                % (r.model, r.last[:200]))
        if not item.get("repeat"):
            self.script.remove(item)
        if item.get("hang"):
            return await c.until_gone()
        while self.stats.max_in_flight < item.get("gate", 0):
            await asyncio.sleep(0.005)
        await asyncio.sleep(item.get("delay_ms", 0) / 1000)
        if "status" in item:
            return await refuse(c, r, item["status"], "as the script says")
        await say(c, r, item["content"])

    async def determined(self, c, r):
        text = hashlib.sha256(r.last.encode()).hexdigest()[:12]
        if r.model.startswith("turns"):
            turns = self.turns.get(r.model.partition("-")[2], [])
            turn = sum(m["role"] == "assistant" for m in r.json["messages"])
            if turn >= len(turns):
                return await refuse(c, r, 400, "there are only %d turns" % len(turns))
            text = turns[turn]
        key = r.headers.get("idempotency-key", "")
        if r.last.startswith("hang") and self.stats.idempotency[key] == 1:
            return await hang(c, r)
        await asyncio.sleep(random.uniform(0.001, 0.016))
        self.stats.tokens[key] = [r.input_tokens, max(1, len(text) // 4)]
        await say(c, r, text)

    async def chat(self, c, r):
        if self.key is not None and r.key != self.key:
            return await auth(c, r)
        if self.window is not None and r.input_tokens > self.window:
            return await refuse(c, r, 400, "This model's maximum context length is %d tokens; your "
                                "messages resulted in %d" % (self.window, r.input_tokens),
                                "context_length_exceeded")
        images, wrong = r.dialect.images(r.json)
        if any(images):
            self.stats.images.append(images)
        if wrong:
            return await refuse(c, r, 400, wrong)
        own = {"scripted": self.scripted, "turns": self.determined, "digest": self.determined}
        behaviour = own.get(r.model) or BEHAVIOURS.get(r.model, numbered)
        if r.model.startswith("scripted-"):
            behaviour = self.scripted_any
        if r.model.startswith("turns-"):
            behaviour = self.determined
        await behaviour(c, r)

    async def dispatch(self, c, r):
        if r.method == "GET" and r.path == "/stats":
            return await c.answer(200, self.stats.public())
        if r.method != "POST" or not r.dialect:
            return await c.answer(404, {"detail": "Not Found"})
        self.stats.begin(r)
        c.line_end = r.dialect.line_end
        try:
            await self.chat(c, r)
        finally:
            self.stats.in_flight -= 1

    async def connected(self, reader, writer):
        await Connection(self, reader, writer).serve()


def make_certificate(directory):
    certificate, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


async def serve(options, certificate, context, until_closed):
    """Serves until this file is at its end."""
    server = Server(options)
    limit = 1 << 20
    plain = await asyncio.start_server(server.connected, "127.0.0.1", 0, limit=limit, backlog=2000)
    tls = await asyncio.start_server(server.connected, "127.0.0.1", 0, limit=limit, backlog=2000,
                                     ssl=context)
    print(json.dumps({"port": plain.sockets[0].getsockname()[1],
                      "tls_port": tls.sockets[0].getsockname()[1],
                      "ca_file": certificate, "pid": os.getpid()}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, until_closed.read)


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("--key", "--script", "--turns"):
        parser.add_argument(name)
    parser.add_argument("--window", type=int)
    parser.add_argument("--many", action="store_true")
    return parser.parse_args(words)


def serve_many(certificate, context):
    """A copy of this process for each line; all of them end when it does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    alive, held = os.pipe()
    for line in sys.stdin.buffer:
        if os.fork() == 0:
            os.close(held)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            random.seed()
            asyncio.run(serve(read_options(json.loads(line)), certificate, context,
                              os.fdopen(alive, "rb")))
            os._exit(0)


def main():
    options, directory = read_options(), tempfile.mkdtemp(prefix="openai-server-")
    try:
        certificate, context = make_certificate(directory)
        if options.many:
            serve_many(certificate, context)
        else:
            asyncio.run(serve(options, certificate, context, sys.stdin.buffer))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
