"""rlm's logger (rlm.logger): the trajectory of a run, in memory and, with `log_dir`, as lines of
JSON."""
from __future__ import annotations

import datetime
import json
import os
import uuid
from typing import Any, Dict, List, Optional

from .rlm_types import RLMIteration, RLMMetadata

__all__ = ["RLMLogger"]


class RLMLogger:
    """Given as `RLM(logger=…)`, it gets each turn when that is over; `get_trajectory()` is
    also the `metadata` of the completion. With `log_dir` each is also a line of a file there:
    `{"type": "metadata", …}`, then `{"type": "iteration", …}`."""

    def __init__(self, log_dir: Optional[str] = None, file_name: str = "rlm"):
        self.log_dir = log_dir
        self.log_file_path: Optional[str] = None
        if log_dir is not None:
            os.makedirs(log_dir, exist_ok=True)
            self.log_file_path = os.path.join(log_dir, "%s_%s_%s.jsonl" % (
                file_name, datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S"),
                uuid.uuid4().hex[:8]))
        self._metadata: Optional[Dict[str, Any]] = None
        self._iterations: List[Dict[str, Any]] = []

    def log_metadata(self, metadata: RLMMetadata) -> None:
        """Stores the configuration of the runs; only the first call has an effect."""
        if self._metadata is None:
            self._metadata = metadata.to_dict()
            self._write({"type": "metadata", **self._stamp(), **self._metadata})

    def log(self, iteration: RLMIteration) -> None:
        """Stores a finished turn."""
        entry = {"type": "iteration", "iteration": len(self._iterations) + 1, **self._stamp(),
                 **iteration.to_dict()}
        self._iterations.append(entry)
        self._write(entry)

    def clear_iterations(self) -> None:
        """Starts a new run."""
        self._iterations = []

    def get_trajectory(self) -> Optional[Dict[str, Any]]:
        """`run_metadata` and the `iterations` of the run; None until there is one."""
        return (None if self._metadata is None
                else {"run_metadata": self._metadata, "iterations": list(self._iterations)})

    @property
    def iteration_count(self) -> int:
        return len(self._iterations)

    @staticmethod
    def _stamp() -> Dict[str, str]:
        return {"timestamp": datetime.datetime.now().isoformat()}

    def _write(self, entry: Dict[str, Any]) -> None:
        if self.log_file_path is not None:
            with open(self.log_file_path, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry, default=repr) + "\n")
