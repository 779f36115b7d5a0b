"""rlm's formats of trajectories (rlm.utils.parsing): code blocks in replies, and results as
messages."""
from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

from .rlm_types import REPLResult, RLMIteration

BLOCK = re.compile(r"```repl\s*\n(.*?)\n```", re.DOTALL)
SHOWN = (str, int, float, bool, list, dict, tuple)


def find_code_blocks(text: str) -> List[str]:
    """Returns the code of the blocks that are marked repl."""
    return [block.strip() for block in BLOCK.findall(text)]


def format_execution_result(result: REPLResult) -> str:
    """Returns a block's output, and the names of its variables of plain types."""
    names = [name for name, value in result.locals.items()
             if not name.startswith("_") and isinstance(value, SHOWN)]
    parts = ["\n" + text for text in (result.stdout, result.stderr) if text]
    return "\n\n".join(parts + (["REPL variables: %s\n" % names] if names else [])) or "No output"


def format_iteration(iteration: RLMIteration,
                     max_character_length: int = 20000) -> List[Dict[str, str]]:
    """A turn as messages: the reply, and where it had code one with all outputs, each cut at that
    length."""
    outputs = []
    for number, block in enumerate(iteration.code_blocks, 1):
        text = format_execution_result(block.result)
        rest = len(text) - max_character_length
        head = ("REPL output (block %d):" % number if len(iteration.code_blocks) > 1
                else "REPL output:")
        outputs.append("%s\n%s" % (head, text[:max_character_length] + "... + [%d chars...]" % rest
                                   if rest > 0 else text))
    messages = [{"role": "assistant", "content": iteration.response}]
    return messages + ([{"role": "user", "content": "\n\n".join(outputs)}] if outputs else [])


def convert_context_for_repl(context: Any) -> Tuple[Any, Any]:
    """(a value, a text): a text is the second, anything else the first, of messages their
    contents."""
    if isinstance(context, str):
        return None, context
    messages = (isinstance(context, list) and context and isinstance(context[0], dict)
                and "content" in context[0])
    return [message.get("content", "") for message in context] if messages else context, None
