"""Calls of language models and child runs, answered by the host."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Callable

from .errors import BudgetExceeded, FailedReply, LLMError, LLMTimeout
from .session import to_json
from .state import state
from droste._encoding.codec import encode_value, is_plain_json
from droste._encoding.json_text import read_json
from droste._encoding.marks import Refused

if TYPE_CHECKING:
    from .aliases import Blob, Head, Parts


def failure(error: Head, partial: Blob = b"") -> Exception:
    """Builds the exception for a host error; `partial` is a partial answer as JSON, or empty."""
    prefix = error.get("code", "").partition("_")[0]
    kind = {"budget": BudgetExceeded, "timeout": LLMTimeout}.get(prefix, LLMError)
    known = {"ValueError": ValueError, "TypeError": TypeError}
    if error.get("type") in known:
        return known[error["type"]](error.get("message", ""))
    exception = kind(error.get("message", ""), error.get("code", "model"))
    exception.answer = read_json(partial) if len(partial) else None
    return exception


# Magic numbers of files that models may accept.
MEDIA = ((b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
         (b"%PDF-", "application/pdf"))


def media_type(data: bytes) -> str:
    for start, name in MEDIA:
        if data.startswith(start):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError("bytes that begin with %r are of an unknown type; give {'type': 'image' or "
                     "'document', 'media_type': …, 'data': bytes}" % data[:8])


def bytes_part(data: bytes, media: str | None = None, kind: int | None = None) -> Head:
    import base64
    media = media or media_type(data)
    return {"type": kind or ("image" if media.startswith("image/") else "document"),
            "media_type": media, "data": base64.b64encode(data).decode()}


def url_part(url: str) -> Head:
    """Converts an OpenAI `image_url`; data: URLs only, because the sandbox has no network."""
    if not url.startswith("data:") or ";base64," not in url:
        raise ValueError("an image_url must be a data: URL with base64, because the sandbox has "
                         "no network")
    media, _, data = url[5:].partition(";base64,")
    return {"type": "image" if media.startswith("image/") else "document", "media_type": media,
            "data": data}


def describe_part(part: Any) -> str:
    if isinstance(part, dict):
        return "a dict with %s" % sorted(map(str, part))
    return type(part).__name__


def encode_part(part: Any) -> Head:
    """Encodes one part of a message: a str, the bytes of a file, or a dict."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, (bytes, bytearray, memoryview)):
        return bytes_part(bytes(part))
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, dict) and isinstance(part.get("data"), (bytes, bytearray, memoryview)):
        return bytes_part(bytes(part["data"]), part.get("media_type"), part.get("type"))
    if isinstance(part, dict) and part.get("type") == "image_url":
        url = part.get("image_url")
        return url_part(str(url.get("url") if isinstance(url, dict) else url))
    raise TypeError("a part of a prompt must be a str, bytes, {'text': str}, or {'type': 'image' "
                    "or 'document', 'media_type': …, 'data': bytes}, not %s" % describe_part(part))


def encode_message(message: Any) -> Head:
    content = message.get("content")
    if not isinstance(content, str):
        if not isinstance(content, (list, tuple)) or not content:
            raise TypeError("the content of a message must be a str or a list of parts, not %s"
                            % type(content).__name__)
        content = [encode_part(part) for part in content]
    return {"role": message["role"], "content": content}


def encode_prompt(prompt: Any) -> tuple[bytes, bool]:
    """Returns the encoded prompt, and whether it is a list of messages."""
    if isinstance(prompt, str):
        if not prompt:
            raise ValueError("prompt cannot be empty")
        return prompt.encode("utf-8", "replace"), False
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        prompt = [prompt]
    if isinstance(prompt, dict):
        prompt = [prompt]
    if isinstance(prompt, (list, tuple)) and prompt:
        if all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in prompt):
            return to_json([encode_message(m) for m in prompt]), True
        if not any(isinstance(m, dict) and "role" in m for m in prompt):
            return to_json([encode_message({"role": "user", "content": prompt})]), True
    raise TypeError("a prompt must be a str, a list of {'role': …, 'content': …} messages, or a "
                    "list of str and bytes, not %s" % type(prompt).__name__)


class Question:
    """A call to the host that has not been made yet, and how to decode its reply."""

    def __init__(self, name: str, model: str, parts: list[bytes], decode: Callable[[str], Any],
                 **head: Any) -> None:
        if model is not None and not isinstance(model, str):
            raise TypeError("model must be a str or None, not %s" % type(model).__name__)
        if model:
            head["model"] = model
        self.head, self.parts, self.decode = dict(head, name=name), parts, decode

    def understand(self, reply: Head, parts: Parts) -> list[Any]:
        """Returns a reply or an exception for each prompt, in order."""
        if "error" in reply:
            raise failure(reply["error"])
        errors = reply.get("errors", {})
        return [failure(errors[str(i)], part) if str(i) in errors
                else self.decode(str(part, "utf-8")) for i, part in enumerate(parts)]

    def ask(self) -> list[Any]:
        return self.understand(*state.link.call(self.head, self.parts))


def one(replies: list[Any]) -> Any:
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies[0]


def mark_failed(reply: Any) -> Any:
    if not isinstance(reply, Exception):
        return reply
    failed = FailedReply("[ERROR] %s" % reply)
    failed.error = reply
    return failed


PROMPTS_MAX = 20000


def check_list(prompts: Any) -> list[Any]:
    if isinstance(prompts, (str, bytes, dict)):
        raise TypeError("prompts must be a list of prompts, not one %s" % type(prompts).__name__)
    prompts = list(prompts)
    if len(prompts) > PROMPTS_MAX:      # broker/broker.c
        raise ValueError("%d prompts in one call, but at most %d are allowed; split them over "
                         "several calls"
                         % (len(prompts), PROMPTS_MAX))
    return prompts


# How a batch represents failed replies.
OUTCOMES = {"mark": lambda replies: list(map(mark_failed, replies)), "return": list}


def outcome_of(errors: Any) -> Callable[[list[Any]], list[Any]]:
    if errors not in OUTCOMES:
        raise ValueError("errors must be 'mark' or 'return', not %r" % (errors,))
    return OUTCOMES[errors]


def about_models(prompts: Any, model: str) -> Question:
    encoded = [encode_prompt(prompt) for prompt in prompts]
    messages = [i for i, (_, is_list) in enumerate(encoded) if is_list]
    return Question("llm_query", model, [data for data, _ in encoded], str, messages=messages)


def llm_query(prompt: Any, model: str | None = None) -> str:
    """Asks a language model and returns its answer. Raises LLMError or BudgetExceeded."""
    return one(about_models([prompt], model).ask())


def llm_query_batched(prompts: Any, model: str | None = None, errors: str = "mark") -> list[Any]:
    """Asks a language model many prompts concurrently and returns the answers in order.

    A failed call yields a FailedReply, or with errors="return" the exception.
    """
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return outcome(about_models(prompts, model).ask()) if prompts else []


def encode_context(value: Any) -> tuple[str, bytes]:
    """Returns the kind, a key of DECODERS, and the encoded value."""
    if isinstance(value, str):
        return "text", value.encode("utf-8", "replace")
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if not is_plain_json(value):
        try:
            return "values", b"".join(encode_value(value))
        except Refused:
            pass        # to_json() says what is wrong
    return "json", to_json(value, at="context")


def about_runs(prompts: Any, context: Any, model: str) -> Question:
    """Builds a call for child runs: each prompt is a str or {"prompt": str, "context": value}."""
    texts, of = [], []
    values: dict[int, tuple[int, Any]] = {}     # each context once, by id()
    for prompt in prompts:
        own = context
        if isinstance(prompt, dict):
            prompt, own = prompt.get("prompt", prompt.get("query")), prompt.get("context", context)
        if not isinstance(prompt, str):
            raise TypeError("the prompt of a child run must be a str, not %s"
                            % type(prompt).__name__)
        texts.append(prompt.encode("utf-8", "replace"))
        has_own = own is not None and not (isinstance(own, str) and not own)
        of.append(values.setdefault(id(own), (len(values), own))[0] if has_own else -1)
    encoded = [encode_context(value) for _, value in values.values()]
    return Question("rlm_query", model, texts + [data for _, data in encoded], read_json,
                    kinds=[kind for kind, _ in encoded], of=of)


def rlm_query(prompt: Any, context: Any = None, model: str | None = None) -> Any:
    """Starts a child run, which works on `context` by writing code; returns what it submits."""
    return one(about_runs([prompt], context, model).ask())


def rlm_query_batched(prompts: Any, context: Any = None, model: str | None = None,
                      errors: str = "mark") -> list[Any]:
    """Runs many child runs concurrently; returns their answers as llm_query_batched does."""
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return outcome(about_runs(prompts, context, model).ask()) if prompts else []


def alias(function: Any, name: str) -> types.FunctionType:
    return types.FunctionType(function.__code__, globals(), name, function.__defaults__)


sub_rlm = alias(rlm_query, "sub_rlm")
sub_rlm_batched = alias(rlm_query_batched, "sub_rlm_batched")
