"""The dialects of model_server.py: how a request is read, and what the server says.

Bodies of errors are what the providers really send: OpenAI names the kind in `type` and `code`,
Anthropic in `type` beside a request's id, Google in `status` and `details`; a wrong key is a 400 at
Google.
"""
import base64
import json
import re
import urllib.parse


# One object a dialect. `piece` and its kin give what an event's data is.

def text_of(content):
    """The text of a message's content: a string, or a list of parts of which the texts count."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def image_size(data, kind):
    """Width and height of a PNG or JPEG; None if it is not what it says it is."""
    if kind == "image/png":
        if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
            return None
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if kind != "image/jpeg" or data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in (0xC0, 0xC1, 0xC2):
            return int.from_bytes(data[at + 7:at + 9],
                                  "big"), int.from_bytes(data[at + 5:at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return None


def by_address(url):
    """An image of which a service gets the address, as check_images takes it."""
    return "url", base64.b64encode(url.encode()).decode()


def check_images(images, role, most_bytes, most_images):
    """What the services refuse about a message's images, (type, base64) each; None: nothing."""
    if images and role != "user":
        return "images are allowed in messages of the user only"
    if len(images) > most_images:
        return "too many images"
    for kind, text in images:
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            return "image: invalid base64 data"
        if kind == "url":       # which it reads; this one cannot
            if not re.match(rb"https?://[\w-]+(\.[\w-]+)+/[!-~]*\Z", data):
                return "Failed to download image"
            continue
        size = image_size(data, kind)
        if size is None or not all(1 <= side <= 8000 for side in size):
            return "Could not process image"
        if len(text) > most_bytes:
            return "image exceeds %d bytes" % most_bytes
    return None


def delta(text=None, finish=None, **more):
    if text is not None:
        more["content"] = text
    choice = {"index": 0, "delta": more, "logprobs": None, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": None}


class OpenAI:
    line_end, wrong_key = "\n", 401

    def images(self, body):
        """The images of each message, and what the service has against them."""
        found = []
        for m in body.get("messages") or []:
            content = m.get("content")
            parts = content if isinstance(content, list) else []
            urls = [p["image_url"]["url"] for p in parts if p.get("type") == "image_url"]
            if any(p.get("type") not in ("text", "image_url", "file") for p in parts):
                return found, "Invalid value: supported values are: 'text', 'image_url', 'file'"
            if not all(u.startswith(("https:", "http:"))
                       or (u.startswith("data:") and ";base64," in u) for u in urls):
                return found, "Invalid image_url"
            images = [tuple(u[len("data:"):].split(";base64,", 1)) if u.startswith("data:")
                      else by_address(u) for u in urls]
            found.append(images)
            wrong = check_images(images, m.get("role"), 20 << 20, 500)
            if wrong:
                return found, wrong
        return found, None

    paths = (r"/v1/chat/completions", r"/openai/v1/chat/completions",
             r"/openai/deployments/(?P<model>[^/]+)/chat/completions")

    def key(self, headers):
        return (headers.get("api-key") or headers.get("x-portkey-api-key")
                or headers.get("authorization", "")[len("Bearer "):])

    def messages(self, body):
        return [text_of(m.get("content")) for m in body.get("messages") or [{}]]

    def stream(self, body, path):
        return bool(body.get("stream"))

    def usage(self, r, text):
        output_tokens = max(1, len(text) // 4)
        reported = r.connection.server.stats.reported.setdefault(r.model, [0, 0])
        reported[0] += r.input_tokens
        reported[1] += output_tokens
        return {"prompt_tokens": r.input_tokens, "completion_tokens": output_tokens}

    def whole(self, r, text, finish="stop", usage=True, message=None):
        reply = {"id": "x", "object": "chat.completion", "model": r.model, "choices": [
            {"index": 0, "message": message or {"role": "assistant", "content": text},
             "finish_reason": finish}]}
        if usage:
            reply["usage"] = self.usage(r, text)
        return reply

    def begin(self, r):
        return [delta("", role="assistant")]

    def piece(self, text):
        return delta(text)

    def end(self, r, text, usage=True):
        events = [delta(finish="stop")]
        if usage and (r.json.get("stream_options") or {}).get("include_usage"):
            events.append({"choices": [], "usage": self.usage(r, text)})
        return events + ["[DONE]"]

    def error(self, status, message, code=None):
        kind = "server_error" if status >= 500 else "invalid_request_error"
        if status == 429:
            code = code or "rate_limit_exceeded"
            kind = code if code == "insufficient_quota" else "requests"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Anthropic:
    line_end, wrong_key = "\n", 401

    def images(self, body):
        """As OpenAI's; the limits of one image are narrower."""
        found = []
        for m in body.get("messages") or []:
            content = m.get("content")
            parts = [p for p in content
                     if p.get("type") == "image"] if isinstance(content, list) else []
            members = {"base64": {"type", "media_type", "data"}, "url": {"type", "url"}}
            if not all(set(p) == {"type", "source"}
                       and set(p["source"]) == members.get(p["source"].get("type")) for p in parts):
                return found, "messages.content.image.source: Field required"
            images = [by_address(p["source"]["url"]) if p["source"]["type"] == "url"
                      else (p["source"]["media_type"], p["source"]["data"]) for p in parts]
            found.append(images)
            wrong = check_images(images, m.get("role"), 5 << 20, 100)
            if wrong:
                return found, wrong
        return found, None

    paths = (r"/v1/messages",)
    types = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
             404: "not_found_error",
             413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
             529: "overloaded_error"}

    def key(self, headers):
        return headers.get("x-api-key", "")

    def messages(self, body):
        system = [body["system"]] if "system" in body else []
        return system + [text_of(m.get("content")) for m in body.get("messages") or [{}]]

    def stream(self, body, path):
        return bool(body.get("stream"))

    def whole(self, r, text, finish="end_turn", usage=True):
        reply = {"id": "msg_x", "type": "message", "role": "assistant", "model": r.model,
                 "stop_reason": finish,
                 "content": [{"type": "thinking", "thinking": "hm"},
                             {"type": "text", "text": text}]}
        if usage:
            reply["usage"] = {"input_tokens": r.input_tokens, "cache_creation_input_tokens": 0,
                              "cache_read_input_tokens": 3, "output_tokens": max(1, len(text) // 4)}
        return reply

    def begin(self, r):
        usage = {"input_tokens": r.input_tokens, "cache_read_input_tokens": 3, "output_tokens": 1}
        return [{"type": "message_start", "message":
                 {"type": "message", "role": "assistant", "content": [],
                  "usage": usage if r.counts else {}}},
                {"type": "content_block_start", "index": 0,
                 "content_block": {"type": "text", "text": ""}},
                {"type": "ping"}]

    def piece(self, text):
        return {"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}

    def end(self, r, text, usage=True):
        counted = {"usage": {"output_tokens": max(1, len(text) // 4)}} if r.counts else {}
        return [{"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **counted},
                {"type": "message_stop"}]

    def error(self, status, message, code=None):
        return {"type": "error", "error": {"type": self.types.get(status, "api_error"),
                                           "message": message},
                "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


class Gemini:
    line_end, wrong_key = "\r\n", 400

    def images(self, body):
        """As OpenAI's; the limit is that of the whole request."""
        found = []
        for m in body.get("contents") or []:
            parts = [p["inlineData"] for p in m.get("parts") or [] if "inlineData" in p]
            # documents are parts, too
            images = [(p.get("mimeType"), p.get("data", "")) for p in parts
                      if str(p.get("mimeType")).startswith("image/")]
            found.append(images)
            wrong = check_images(images, m.get("role"), 20 << 20, 3600)
            if wrong:
                return found, wrong
        total = sum(len(text) for images in found for _, text in images)
        return (found, "request payload size exceeds the limit: 20971520 bytes" if total > 20 << 20
                else None)

    paths = (r"/v1beta/models/(?P<model>[^/]+):(generateContent|streamGenerateContent)",)
    words = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND",
             429: "RESOURCE_EXHAUSTED",
             500: "INTERNAL", 503: "UNAVAILABLE"}

    def key(self, headers):
        return headers.get("x-goog-api-key", "")

    def messages(self, body):
        system = ([text_of(body["systemInstruction"]["parts"])] if "systemInstruction" in body
                  else [])
        return system + [text_of(m.get("parts")) for m in body.get("contents") or [{}]]

    def stream(self, body, path):
        return ":stream" in path

    def reply(self, r, text, finish=None, usage=False):
        candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
        if finish:
            candidate["finishReason"] = finish
        reply = {"candidates": [candidate], "modelVersion": "x"}
        if usage:
            reply["usageMetadata"] = {"promptTokenCount": r.input_tokens,
                                      "candidatesTokenCount": max(1, len(text) // 4),
                                      "thoughtsTokenCount": 2, "cachedContentTokenCount": 1}
        return reply

    def whole(self, r, text, finish="STOP", usage=True):
        return self.reply(r, text, finish, usage)

    def begin(self, r):
        return [{"candidates":
                 [{"content": {"parts": [{"text": "let me think", "thought": True}]}}]}]

    def piece(self, text):
        return self.reply(None, text)

    def end(self, r, text, usage=True):
        last = self.reply(r, text, "STOP", usage)
        last["candidates"][0]["content"]["parts"] = []
        return [last]

    def error(self, status, message, code=None):
        google, details = "type.googleapis.com/google.rpc.", []
        if code == "invalid_api_key":
            details = [{"@type": google + "ErrorInfo", "reason": "API_KEY_INVALID",
                        "domain": "googleapis.com",
                        "metadata": {"service": "generativelanguage.googleapis.com"}},
                       {"@type": google + "LocalizedMessage", "locale": "en-US",
                        "message": message}]
        if status == 429:
            details = [{"@type": google + "QuotaFailure",
                        "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]},
                       {"@type": google + "Help",
                        "links": [{"description": "Learn more", "url": "https://ai.google.dev/"}]},
                       {"@type": google + "RetryInfo", "retryDelay": "1.003s"}]
        error = {"code": status, "message": message, "status": self.words.get(status, "UNKNOWN")}
        return {"error": {**error, "details": details} if details else error}


DIALECTS = (OpenAI(), Anthropic(), Gemini())


def find_dialect(path):
    """The dialect whose path this is, and the model where it stands there."""
    for dialect in DIALECTS:
        for pattern in dialect.paths:
            found = re.fullmatch(pattern, path.partition("?")[0])
            if found:
                return dialect, urllib.parse.unquote(found.groupdict().get("model") or "")
    return None, ""
