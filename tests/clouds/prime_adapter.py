"""The conformance suite on Prime, against the fake: pytest tests/session
--adapter=tests/clouds/prime_adapter.py --environment prime"""
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import connect_adapter  # noqa: E402

connect_adapter.register("prime")
