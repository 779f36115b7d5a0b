"""rlm's prompts (rlm.utils.prompts). Droste's prompts are its own, and `custom_system_prompt` adds
to them.

So the texts are empty here: `RLM(custom_system_prompt=RLM_SYSTEM_PROMPT + "Be brief.")` is the
default prompt and that sentence, as it is there. Functions that build rlm's messages are refused by
name.
"""
from __future__ import annotations

from .refused import refused

RLM_SYSTEM_PROMPT = ""
ORCHESTRATOR_ADDENDUM = ""
USER_PROMPT = ""

build_rlm_system_prompt = refused("build_rlm_system_prompt", "RLM builds its own messages; "
                                                             "custom_system_prompt adds to them")
build_user_prompt = refused("build_user_prompt", "RLM builds its own messages; user_prologue adds "
                                                 "to them")
