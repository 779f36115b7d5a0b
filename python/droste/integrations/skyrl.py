"""SkyRL: an environment of SkyRL Gym whose model acts with Python in a sandbox.

    import skyrl_gym
    from droste.integrations.skyrl import PythonEnv

    class Sums(PythonEnv):
        def score(self, answer):
            return float(answer == self.extras["reward_model"]["ground_truth"])

    skyrl_gym.register(id="sums", entry_point=Sums)

Each action is a reply of the model. The block of Python in it runs, and what it shows is the next
observation; variables stay until the end of the episode. `SUBMIT(answer)` ends the episode, and
`score` is its reward.
"""
from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..interpreter import Interpreter
from ..result import Result
from ._imports import refuse_import

try:
    from skyrl_gym.envs.base_text_env import (  # type: ignore
        BaseTextEnv, BaseTextEnvStepOutput)
except ImportError as missing:
    refuse_import("SkyRL", "skyrl-gym>=0.4", missing)

__all__ = ["PythonEnv"]

BLOCK = re.compile(r"```(?:python|py|repl)[ \t]*\n(.*?)```", re.DOTALL)
NO_BLOCK = "Write Python in a block that begins with ```python; SUBMIT(answer) ends the task."
#: of an observation, in characters
SHOWN_MOST = 10000


def _shown(result: Result) -> str:
    """Returns what a model sees of a cell: its output, its last value, its error."""
    text = result.stdout + result.stderr
    if result.error is not None:
        text += result.error.traceback or str(result.error)
    elif result.status not in ("ok", "submitted"):
        text += "(%s)" % result.status
    if len(text) > SHOWN_MOST:
        text = text[:SHOWN_MOST // 2] + "\n…\n" + text[-SHOWN_MOST // 2:]
    return text or "(no output)"


class PythonEnv(BaseTextEnv):  # type: ignore
    """Override `score`. `env_config` has `max_turns` (10) and, as `settings`, those of the sandbox;
    `extras` is the row of the data set."""

    def __init__(self, env_config: Optional[Mapping[str, Any]] = None,
                 extras: Optional[Mapping[str, Any]] = None, **settings: Any):
        super().__init__()
        config = dict(env_config or {})
        self.extras: Dict[str, Any] = dict(extras or {})
        self.max_turns = int(self.extras.get("max_turns", config.get("max_turns", 10)))
        self.settings = {**dict(config.get("settings") or {}), **settings}
        self.interpreter: Optional[Interpreter] = None

    def score(self, answer: Any) -> float:
        """Returns the reward of a submitted answer."""
        raise NotImplementedError("an environment has a function `score`")

    def init(self, prompt: List[Dict[str, str]]) -> Tuple[List[Dict[str, str]], Dict[str, Any]]:
        self.close()
        self.turns = 0
        self.interpreter = Interpreter(**self.settings)
        return prompt, {}

    def step(self, action: str) -> Any:
        if self.interpreter is None:
            raise RuntimeError("call `init` first")
        self.turns += 1
        found = BLOCK.search(action)
        result = self.interpreter.execute(found.group(1)) if found else None
        submitted = result is not None and result.status == "submitted"
        done = submitted or self.turns >= self.max_turns
        shown = _shown(result) if result is not None else NO_BLOCK
        answer = result.output if result is not None and submitted else None
        if done:
            self.close()
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": shown}],
            reward=float(self.score(answer)) if submitted else 0.0, done=done,
            metadata={"status": result.status if result is not None else "no code",
                      "answer": answer})

    def close(self) -> None:
        interpreter, self.interpreter = self.interpreter, None
        if interpreter is not None:
            interpreter.close()
