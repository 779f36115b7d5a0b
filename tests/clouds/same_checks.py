"""Checks that are the same for all clouds, each with its fake: files that runs save, and values of
libraries."""
import os
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import droste       # noqa: E402

MAKE = """```repl
import os
os.makedirs("out/deep", exist_ok=True)
open("out/a.txt", "w").write("hello")
open("out/deep/b.bin", "wb").write(bytes(range(256)) * 4096)
os.mkfifo("out/fifo")
SUBMIT(answer=1)
```"""


def wait_until(condition, seconds=60):
    """True once it is; a test that waits in vain fails by what it asserts."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def check_artifacts(place, **settings):
    """A run saves the files that match, whole and under their paths, without FIFOs."""
    done = droste.RLM(lambda messages: MAKE, artifacts=["out/**"], artifacts_dir=place,
                      **settings).run("?")
    assert (done.answer, done.status) == (1, "answered"), done.error
    assert {one.name: one.size for one in done.artifacts} == {"out/a.txt": 5,
                                                             "out/deep/b.bin": 1 << 20}
    assert (place / "out" / "a.txt").read_text() == "hello"
    assert (place / "out" / "deep" / "b.bin").read_bytes() == bytes(range(256)) * 4096
    assert not (place / "out" / "fifo").exists()


def check_library_values(interp):
    """An array and a frame keep types, shape and what is missing, both ways."""
    np = pytest.importorskip("numpy", reason="numpy is not installed for this interpreter")
    imported = interp.execute("import numpy")
    if not imported.ok:
        pytest.skip("the fake's interpreter has no numpy: %s" % imported.error.message)
    array = np.arange(200000.0).reshape(2, -1).T
    interp.set("a", {"values": array, "days": np.array(["2026-01-02", "NaT"], "M8[D]")})
    assert interp.execute("a['values'][0, 0] = 7; b = a['values'].dtype.str").ok
    found = interp.get("a")
    array[0, 0] = 7
    assert found["values"].flags["F_CONTIGUOUS"] and np.array_equal(found["values"], array)
    assert found["days"].dtype == "M8[D]" and np.isnat(found["days"][1])
    assert interp.execute("SUBMIT(rows=a['values'][:3])").rows.tolist() == array[:3].tolist()
    pd = pytest.importorskip("pandas", reason="pandas is not installed for this interpreter")
    if interp.execute("import pandas").ok:
        frame = pd.DataFrame({"n": [1, 2], "s": ["x", None],
                              "t": pd.to_datetime(["2026-01-02", None])})
        interp.set("f", frame)
        pd.testing.assert_frame_equal(interp.get("f"), frame)
