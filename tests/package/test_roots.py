"""The wheel in minimal roots of Debian and Ubuntu without compilers, from the oldest to the newest:
`make check-wheel` runs these, elsewhere they are skipped by name.

Each root is made once by scripts/debian-root and kept below $XDG_CACHE_HOME or /var/tmp. A root
that cannot be made here is skipped with the reason that the script gives.
"""
import os
import subprocess

import pytest
from installed import ROOT
from test_wheel import HERE, wheel_of

SUITES = ("bullseye", "bookworm", "trixie", "forky", "jammy", "noble", "resolute")
CACHE = os.environ.get("XDG_CACHE_HOME") or "/var/tmp"

pytestmark = [
    pytest.mark.skipif(not os.environ.get("DROSTE_ROOTS"), reason="make check-wheel runs these"),
    pytest.mark.skipif(os.geteuid() != 0, reason="making a bare root needs root"),
]

VISIT = """
set -e
if command -v cc gcc clang >/dev/null; then echo 'this root has a compiler' >&2; exit 1; fi
python3 -m venv ~/v
~/v/bin/pip install -q --no-index --disable-pip-version-check /dist/%s 2>&1
. ~/v/bin/activate
cd
droste exec -c 'import sys; print(sys.prefix, 6 * 7)'
python -m droste exec -c 'import os; print(os.getpid())'
python /tests/root_program.py
droste run 'How many lines?' --context two.txt --model replay:recorded.jsonl --database none
python /tests/root_serve.py
"""


@pytest.fixture(scope="module", params=SUITES)
def root(request):
    place = os.path.join(CACHE, "droste-root-" + request.param)
    if not os.path.isdir(place):
        done = subprocess.run([os.path.join(ROOT, "scripts", "debian-root"), place,
                               "python3,python3-venv", request.param],
                              capture_output=True, text=True, timeout=1800)
        if done.returncode:
            pytest.skip(done.stderr.strip().splitlines()[-1])
    return place


@pytest.mark.parametrize("user", [(), ("--user",)], ids=["root", "user"])
def test_the_wheel_works_in(root, user):
    """pip installs it with nothing else; command, module, package, a run with a recorded model,
    and the server."""
    path = wheel_of(HERE)
    done = subprocess.run([os.path.join(ROOT, "scripts", "in-root"), *user, "--bind",
                           os.path.dirname(path), "/dist", "--bind",
                           os.path.dirname(os.path.abspath(__file__)), "/tests", root,
                           "bash", "-c", VISIT % os.path.basename(path)], capture_output=True,
                          text=True, timeout=600)
    home = "/home/stranger" if user else "/root"
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [home + "/v 42", "2", home + "/v", "2", "2",
                                        "42"], done.stdout + done.stderr
