"""JSON of frames' heads.

`json` is imported when a guest starts: code that has used up its descriptors could not submit its
result otherwise.
"""
from __future__ import annotations

import json
from typing import Any


def read_json(text: bytes) -> Any:
    return json.loads(text)


def write_json(value: Any) -> bytes:
    return json.dumps(value).encode()
