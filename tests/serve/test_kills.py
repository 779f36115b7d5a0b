"""Nothing is left of what is killed under load: server, worker, client (bench/serve/kills)."""
import os
import subprocess
import sys

from server_process import DROSTE, ROOT, WAIT


def test_nothing_is_left():
    """Three kills here; the script does a hundred by itself."""
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "bench", "serve", "kills"), "--rounds", "3",
         "--build", os.path.dirname(DROSTE), "--within", str(WAIT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 kills, nothing left")
