"""Plug-ins without their framework."""
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMPORT = """
import sys
sys.modules[sys.argv[1]] = None
sys.path.insert(0, sys.argv[3])
try:
    __import__("droste.integrations." + sys.argv[2])
except ImportError as e:
    print(e)
"""


@pytest.mark.parametrize("package, module", [("smolagents", "smolagents"),
                                             ("inspect_ai", "inspect_ai"),
                                             ("harbor", "harbor"),
                                             ("verifiers", "verifiers"),
                                             ("skyrl_gym", "skyrl"),
                                             ("nemo_gym", "nemo_gym")])
def test_a_missing_framework_is_named(package, module):
    """With the command that installs it; droste itself needs none of them."""
    done = subprocess.run([sys.executable, "-I", "-c", IMPORT, package, module,
                           os.path.join(ROOT, "python")], capture_output=True, text=True,
                          timeout=60)
    assert "pip install '%s>=" % package.replace("_", "-") in done.stdout, done.stderr
