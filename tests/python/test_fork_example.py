"""examples/fork_parsers.py, with a small log."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_the_example_finds_the_best_parser():
    """Of 32 forks, each with another pattern, it keeps one that matches all lines of a log that was
    loaded once; it tells three times."""
    program = os.path.join(ROOT, "examples", "fork_parsers.py")
    r = subprocess.run([sys.executable, program, "2", "32"],
                       env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")},
                       capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    assert "best of 32 parsers: 100% of the lines match" in r.stdout
    assert re.search(r"^lines in the log: \d+0000$", r.stdout, re.M)
    assert re.search(r"once: [\d.]+ s; twice: [\d.]+ s; loading it and 32 forks: [\d.]+ s$",
                     r.stdout, re.M)
