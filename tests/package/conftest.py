"""The servers of models that the tests of the built program run against."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

from model_servers import serve, servers    # noqa: E402, F401: fixtures
