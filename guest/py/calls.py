"""calls.py: asks the host: models, runs below this one."""


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
