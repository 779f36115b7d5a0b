"""OpenAI's clients, LangChain and the Agents SDK, as their users install them (`scripts/setup
openai`). All rows of one script run in one process, and are reported one by one."""
import json
import os
import re
import shutil
import subprocess

import pytest

from server_process import ROOT, WAIT
from harness import repl
from openai_fakes import TURNS, Models

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PLACES = {"clients.py": "openai", "clients.mjs": "openai-javascript"}


def rows(script):
    with open(os.path.join(HERE, script)) as f:
        return re.findall(r"(?:@row\ndef|^  async) (\w+)", f.read(), re.MULTILINE)


def command(script):
    """How a script is run; skips the test where its packages or interpreter are missing."""
    where = os.path.join(BUILD, PLACES[script])
    words = [os.path.join(where, "bin", "python")] if script.endswith(".py") else ["node"]
    needed = words[0] if script.endswith(".py") else os.path.join(where, "node_modules", "openai")
    if not os.path.exists(needed) or not shutil.which(words[0]):
        pytest.skip(f"there is no {PLACES[script]}: scripts/setup openai makes it")
    return [*words, os.path.join(HERE, script)], os.path.abspath(where)


@pytest.fixture(scope="module")
def answers(tmp_path_factory, servers):
    """answers(script): what each row of it has said, of a server of its own."""
    results, made = {}, []
    asking = [repl("SUBMIT('wrote %d' % write(n=4))")]
    calling = [repl("said = functions.get_weather('Oslo')\nprint(said)"), repl("SUBMIT(said)")]
    picture = [repl("SUBMIT(len(context))")]
    slow = [repl("import time\ntime.sleep(1.5)"), repl("SUBMIT('waited')")]

    def run(script):
        words, where = command(script)
        if script not in results:
            home = tmp_path_factory.mktemp("clients")
            turns = home / "turns.json"
            turns.write_text(json.dumps({"": TURNS, "slow": slow, "asking": asking,
                                         "calling": calling, "picture": picture}))
            write = home / "write"
            write.write_text("#!/bin/sh\ncat >/dev/null\necho 40\n")
            write.chmod(0o755)
            model = Fake(servers("--turns", str(turns)))
            made.append(Models(home, None))
            server = made[-1]("--tool", "write=%s" % write, "--ask", "write", model=model,
                              names="turns,slow=turns-slow,asking=turns-asking,"
                              "calling=turns-calling,picture=turns-picture,tool-calls,auth,"
                              "stream-end")
            done = subprocess.run([*words, server.address + "/v1", where], capture_output=True,
                                  text=True, timeout=4 * WAIT, env={
                                      "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
            assert done.returncode == 0, done.stderr
            results[script] = json.loads(done.stdout)
            slow_runs = [one for one in server.ask("GET", "/v1/runs").json["runs"]
                         if one["model"].endswith("turns-slow")]
            assert len(slow_runs) == 1, "a retry started another run"
        return results[script]
    yield run
    for one in made:
        for server in one.running:
            server.stop()


class Fake:
    def __init__(self, ready):
        self.url = "http://127.0.0.1:%d/v1" % ready["port"]


@pytest.mark.parametrize("script,name", [
    (script, name) for script in PLACES for name in rows(script)])
def test_client(answers, script, name):
    """One row of one script."""
    trace = answers(script)[name]
    assert trace is None, trace
