"""What the guest's functions do with what the host answers."""
import json
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")


def cell(code, *options):
    done = subprocess.run([DROSTE, "exec", "--json", *options, "-c", code], capture_output=True,
                          text=True, timeout=60)
    return json.loads(done.stdout)


BATCH = """replies = llm_query_batched(["a", [{"role": "tool", "content": "b"}], "c"])
SUBMIT(replies=replies, errors=[type(r.error).__name__ for r in replies if isinstance(r, FailedReply)])
"""


def test_a_prompt_that_the_host_refuses_fails_alone(tmp_path):
    """The other replies of its batch, which were paid for, are not lost."""
    model = tmp_path / "model.jsonl"
    model.write_text(json.dumps({"content": "good", "depth": 1, "repeat": True}))
    done = subprocess.run([DROSTE, "exec", "--json", "--model", "replay:%s" % model, "-c", BATCH],
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=60).stdout
    submitted = json.loads(done)["submit"]
    assert submitted["replies"][0] == submitted["replies"][2] == "good"
    assert submitted["replies"][1].startswith("[ERROR] the role of message 0 is 'tool'")
    assert submitted["errors"] == ["ValueError"]


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A virtual environment with the module `hooked`, which counts the forks that it hears of."""
    place = tmp_path_factory.mktemp("venv")
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "hooked.py").write_text(
        "import os\nforks = 0\ndef forked():\n    global forks\n    forks += 1\n"
        "os.register_at_fork(after_in_child=forked)\n")
    return str(place / "bin" / "python3")


@pytest.mark.parametrize("isolation", ["full", "process"])
@pytest.mark.parametrize("options, forks", [(["--preload", "hooked"], 1), ([], 0)])
def test_fork_hooks_of_preloaded_modules_run_in_the_sandbox(venv, isolation, options, forks):
    result = cell("import hooked; SUBMIT(hooked.forks)", "--python", venv, "--isolation", isolation,
                  *options)
    assert result["submit"] == {"output": forks}


def test_helpers_work_on_a_directory_that_is_the_context(tmp_path):
    """A dict of texts: grep says in which file, and what takes one text names some keys."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("two\n")
    result = cell("try: peek()\nexcept TypeError as e: SUBMIT(hits=grep('two'), said=str(e))",
                  "--context", str(tmp_path))
    assert result["submit"]["hits"] == ["a.txt: two", "b.txt: two"]
    assert "2 keys, such as 'a.txt', 'b.txt'" in result["submit"]["said"]
