"""Names of types in annotations. The build removes annotations, so no module imports this one."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

# The head of a frame: a JSON object.
Head = Dict[str, Any]
# The blob of a frame: bytes or an mmap; None if the guest had no descriptor free to receive it.
Blob = Any
# The head and blob of a reply.
Frame = Tuple[bytes, Blob]
# The kind, id, head and blob of a frame that the main loop handles.
Operation = Tuple[int, int, bytes, Blob]
# The parts of a blob, bytes or views; None if the frame has none.
Parts = Optional[Sequence[Any]]
# A parameter of a tool: its name, its schema, and whether it is required.
Parameter = Tuple[str, Dict[str, Any], bool]
# A path, or the text of an error; the other is None.
Found = Tuple[Optional[str], Optional[str]]
