"""Values of real packages through a sandbox: value_packages.py CASE SIZE (see test_value_packages).

Runs in an interpreter with the packages, which the sandbox uses, too. Sets the value, looks at it
there, gets it, and submits it; prints what differs, or nothing.
"""
import datetime
import decimal
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["DROSTE_DATABASE"] = "none"

import numpy as np      # noqa: E402
import pandas as pd      # noqa: E402
import polars as pl      # noqa: E402
import pyarrow as pa      # noqa: E402
import pydantic      # noqa: E402
from droste import Interpreter      # noqa: E402: the path is set above


class Row(pydantic.BaseModel):
    name: str
    when: datetime.date
    price: decimal.Decimal
    tags: set = set()


def columns(size):
    """Few columns at ten million rows, and one of each kind otherwise."""
    found = {"f": np.arange(size) / 2, "i": np.arange(size)}
    if size <= 1:
        found.update(t=["é"] * size, b=[b"\xff"] * size, n=[None] * size, o=[True] * size,
                     d=[datetime.date(2026, 1, 2)] * size)
    return found


def arrow(size):
    return pa.table(columns(size))


def chunked(size):
    return pa.chunked_array([pa.array(np.arange(size)), pa.array(np.arange(size))])


CASES = {
    "pandas": (lambda size: pd.DataFrame(columns(size)), "pandas.DataFrame", lambda a,
               b: a.equals(b)),
    "series": (lambda size: pd.Series(np.arange(size) / 2, name="s"), "pandas.Series", lambda a,
               b: a.equals(b)),
    "polars": (lambda size: pl.DataFrame(columns(size)), "polars.dataframe.frame.DataFrame",
               lambda a, b: a.equals(b)),
    "polars series": (lambda size: pl.Series("s", np.arange(size)), "polars.series.series.Series",
                      lambda a, b: a.equals(b, check_names=True)),
    "arrow": (arrow, "pyarrow.lib.Table", lambda a, b: a.equals(b) and a.schema == b.schema),
    "chunked": (chunked, "pyarrow.lib.ChunkedArray", lambda a, b: a.equals(b)),
    "pydantic": (lambda size: [Row(name="é", when=datetime.date(2026, 1, 2), price="1.50",
                                   tags={1})] * min(size, 1000),
                 "builtins.list", lambda a, b: [row.model_dump() for row in a] == b),
}


def main(case, size):
    make, kind, same = CASES[case]
    value = make(size)
    with Interpreter(python=sys.executable, execute_timeout=100, memory="4G") as interp:
        interp.set("v", value)
        shown = interp.execute("'%s.%s' % (type(v).__module__, type(v).__name__), len(v)").echo
        if str(kind) not in shown and kind.rsplit(".", 1)[1] not in shown:
            print("in the sandbox it is", shown)
        if not shown.endswith(", %d)" % len(value)):
            print("in the sandbox it has another length:", shown)
        if not same(value, interp.get("v")):
            print("get() differs")
        if not same(value, interp.execute("SUBMIT(v=v)").v):
            print("SUBMIT differs")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
