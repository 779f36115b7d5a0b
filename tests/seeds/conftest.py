"""The package of this checkout, and no record of runs."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["DROSTE_DATABASE"] = "none"
for name in ("DROSTE_MODEL", "DROSTE_CONFIG"):
    os.environ.pop(name, None)
