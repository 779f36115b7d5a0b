"""Fetches a context from a URL, in the sandbox (mcp/python.c)."""


def _fetch_context(url, kind):
    import json
    import urllib.request
    try:
        with urllib.request.urlopen(url) as reply:
            data, head = reply.read(), reply.headers
    except OSError as e:
        raise OSError("%s: %s; sandboxes reach what the operator allows (--allow-net)"
                      % (url, e)) from None
    media, path = head.get_content_type(), url.partition("?")[0]
    if kind == "auto" and (path.endswith(".jsonl") or "ndjson" in media or "jsonl" in media):
        kind = "jsonl"
    elif kind == "auto" and (path.endswith(".json") or media.endswith(("/json", "+json"))):
        kind = "json"
    if kind == "bytes":
        return data
    try:
        text = data.decode(head.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        if kind == "auto":
            return data
        raise
    if kind == "jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return json.loads(text) if kind == "json" else text


