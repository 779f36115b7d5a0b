"""The result of a cell that a server has sent, as JSON."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from .. import _typed
from ..result import Result
from ..rich import RichResult
from .client import unb64


def rich_result_of(values: Dict[str, Any], shown: Dict[str, Any]) -> RichResult:
    """Creates a rich result from its values by media type and what is known beside them."""
    encoded = set(shown["base64"])
    bundle = {media: bytes(unb64(value, "a rich result")) if media in encoded else value
              for media, value in values.items()}
    return RichResult(bundle, shown["metadata"], bool(shown["main"]), shown["display_id"],
                      bool(shown["update"]))


class RemoteResult(Result):
    __slots__ = ()

    def _get(self) -> Any:
        return super()._get()       # the decoded JSON

    def __del__(self) -> None:      # type: ignore[override]
        """There is no handle to free."""

    @property
    def status(self) -> str:
        return self._get()["status"]

    @property
    def stdout(self) -> str:
        return self._get()["stdout"]

    @property
    def stderr(self) -> str:
        return self._get()["stderr"]

    @property
    def echo(self) -> Optional[str]:
        return self._get()["echo"]

    @property
    def results(self) -> List[RichResult]:
        kept = self._keep()
        if "results" not in kept:
            found = self._get()
            kept["results"] = [rich_result_of(values, shown)
                               for values, shown in zip(found["results"], found["shown"])]
        return kept["results"]

    def _values(self) -> Optional[bytearray]:
        text = self._get().get("values")
        return None if text is None else unb64(text, "typed values")

    def _read_fields(self) -> Optional[Dict[str, Any]]:
        fields, values = self._read_json_fields(), self._values()
        if fields is None or values is None:
            return fields
        return _typed.merge_typed(dict(fields), values, "the submitted fields")

    def _read_json_fields(self) -> Optional[Dict[str, Any]]:
        return self._get()["submit"]

    def _read_typed(self, name: str) -> Any:
        values = self._values()
        if values is None:
            return (self._read_json_fields() or {})[name]
        return _typed.decode_variable(values, name)

    @property
    def json(self) -> Dict[str, Any]:
        return {name: value for name, value in self._get().items()
                if name not in ("values", "shown")}

    @property
    def alive(self) -> bool:
        return bool(self._get()["alive"])

    @property
    def rolled_back(self) -> Optional[int]:
        return self._get()["rolled_back"]

    @property
    def seconds(self) -> float:
        return self._get()["seconds"]
