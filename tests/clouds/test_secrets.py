"""Credentials are looked for in all that is said and kept of a run: what is printed, the record,
its exports, a recording, the guest's variables and files, and the errors of a key that is
refused."""
import json
import os
import re

import pytest

import connect_fake
import daytona_fake
import droste_cli
import modal_fake

MODEL_KEY = "sk-canary-0123456789abcdef"
# The keys of accounts, and what the fakes give out for one sandbox.
SECRETS = {
    "daytona": re.compile(b"dtn_canary-|jwt-canary-"),
    "prime": re.compile(b"prime-canary-|gateway-[0-9a-f]{32}"),
    "e2b": re.compile(b"c0ffee42|envd-[0-9a-f]{32}"),
    "modal": re.compile(rb"as-canary-|eyJ[\w-]+\.[\w-]+\."),
}
KEY = {"daytona": "DAYTONA_API_KEY", "prime": "PRIME_API_KEY", "e2b": "E2B_API_KEY",
       "modal": "MODAL_TOKEN_SECRET"}

LOOK = """
import glob, os
seen = repr(dict(os.environ))
for path in glob.glob('/proc/self/environ') + glob.glob(os.getcwd() + '/**', recursive=True) + glob.glob(os.path.expanduser('~') + '/.*'):
    try: seen += open(path, errors='replace').read()
    except OSError: pass
print(seen)
print(len(llm_query('x')))
"""


@pytest.fixture(params=sorted(SECRETS))
def provider(request):
    """(name, variables) of each provider's fake."""
    start, missing = {"daytona": (daytona_fake.Fake, daytona_fake.missing),
                      "modal": (modal_fake.Fake, modal_fake.missing)}.get(
        request.param, (lambda: connect_fake.Fake(request.param), connect_fake.missing))
    if missing():
        pytest.skip(missing())
    fake = start()
    yield request.param, fake.environment
    fake.close()


@pytest.fixture
def model(serve):
    """The variables of a model server that answers two turns: code that looks around, and the
    answer."""
    turns = ["```repl\n%s\n```" % LOOK, "```repl\nSUBMIT(1)\n```"]
    return {"OPENAI_API_KEY": MODEL_KEY, "OPENAI_BASE_URL": serve(key=MODEL_KEY, turns=turns).url,
            "DROSTE_MODEL": "turns",
            "DROSTE_SUB_MODEL": "digest"}


def kept(home):
    """All that is in files below it."""
    for place, _, names in os.walk(home):
        for name in names:
            with open(os.path.join(place, name), "rb") as f:
                yield os.path.join(place, name), f.read()


def test_no_credential_is_stored_or_printed(provider, model, tmp_path):
    """A run whose code prints its surroundings, its record, its exports, its recording: none has a
    key or a token; all have what they are for."""
    name, variables = provider
    done = droste_cli.droste(tmp_path, "run", "--env", name, "--question", "q", "--record",
                             "calls.jsonl", "--verbose",
                             **variables, **model)
    assert done.returncode == 0, done.stderr
    run = json.loads(droste_cli.droste(tmp_path, "runs", "ls", "--json").stdout)[0]["run"]
    printed = {"stdout": done.stdout, "stderr": done.stderr}
    for words in (["show", run], ["show", run, "--json"], ["export", run],
                  ["export", run, "--format", "html", "--out", "run.html"]):
        shown = droste_cli.droste(tmp_path, "runs", *words)
        assert shown.returncode == 0, shown.stderr
        printed[" ".join(words[:1] + words[2:])] = shown.stdout
    for words in (["doctor"], ["env", "show", name], ["env", "ls"]):
        printed[words[-1]] = droste_cli.droste(tmp_path, *words, **variables).stdout
    files = dict(kept(tmp_path))
    assert {"runs.db", "calls.jsonl", "run.html"} <= {os.path.basename(path) for path in files}
    assert "'PATH': '" in printed["export"] and name in printed[
        "ls"], "the code saw its surroundings, and this environment is spoken of"
    for text in [*(text.encode() for text in printed.values()), *files.values()]:
        assert not SECRETS[name].search(text), SECRETS[name].search(text)
        assert MODEL_KEY.encode() not in text


def test_a_refused_key_is_named_and_not_printed(provider, model, tmp_path):
    """The error and the record say which variable to look at."""
    name, variables = provider
    wrong = "canary-of-a-wrong-key"
    done = droste_cli.droste(tmp_path, "run", "--env", name, "--question", "q", "--json",
                             **{**variables, **model, KEY[name]: wrong})
    assert done.returncode != 0 and KEY[name].partition("_TOKEN")[
        0] in done.stdout + done.stderr, done
    for path, text in [("said", (done.stdout + done.stderr).encode()), *kept(tmp_path)]:
        assert wrong.encode() not in text, path
