"""The conformance suite on E2B, against the fake: pytest tests/session
--adapter=tests/clouds/e2b_adapter.py --environment e2b"""
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import connect_adapter  # noqa: E402

connect_adapter.register("e2b")
