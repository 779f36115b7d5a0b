"""`droste bench`: the measurements of forks, templates and large values run and give figures."""
import json
import subprocess
import sys

import pytest

FORKS = ["own memory of a fork", "own memory after 1 + 1", "own memory of os.fork() in the sandbox",
         "own memory of os.fork() after 1 + 1"]
TEMPLATES = ["os.fork() in the session, 1 + 1", "start from a template, 1 + 1",
             "fork of the session, 1 + 1", "make a template of the session"]
VALUES = ["copy of 100 MB into new memory", "memcpy of 100 MB into used memory",
          "100 MB of bytes in", "100 MB of bytes out", "100 MB of text in", "100 MB of text out"]


@pytest.mark.parametrize("what, names", [("fork", FORKS), ("template", TEMPLATES),
                                         ("values", VALUES)])
def test_each_row_has_its_samples(droste, what, names):
    """All rows are measured equally often, in turns."""
    done = droste("bench", what, "--quick", "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out)
    assert [row["name"] for row in rows] == names
    samples = {"fork": 5, "template": 5, "values": 2}[what]
    assert all(row["n"] == samples and row["p50"] > 0 and row["skipped"] is None for row in rows)


def test_a_value_that_does_not_fit_is_an_error(droste):
    """100 MB in a sandbox of 64 MiB: no figure, and a message."""
    done = droste("bench", "values", "--quick", "--json", "--memory", "64M")
    assert done.status != 0 and done.err


def test_an_unknown_name_gets_the_list(droste):
    done = droste("bench", "templates")
    assert done.status == 2
    assert "fork, template, values, churn, density" in done.err


def test_the_bare_fork_has_the_preloaded_modules_too(droste, tmp_path):
    """It is what the starts are compared with."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site, = tmp_path.glob("venv/lib/python*/site-packages")
    log = tmp_path / "log"
    (site / "tells_its_import.py").write_text(
        "import sys\nwith open(%r, 'a') as log: print(sys.argv[1], file=log)\n" % str(log))
    done = droste("bench", "start", "--quick", "--python", tmp_path / "venv/bin/python",
                  "--preload", "tells_its_import")
    assert done.status == 0, done.err
    forks, zygote = "20", "warm"
    assert set(log.read_text().split()) == {forks, zygote}
