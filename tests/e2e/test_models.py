"""Models of all kinds under a whole run: providers, programs, the cache, keys."""
import json
import os
import stat

import pytest
from harness import repl

CANARY = "sk-canary-0123456789abcdef"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "OPENROUTER_API_KEY", "PORTKEY_API_KEY", "VLLM_API_KEY")


def run(droste, *flags, **options):
    return droste("run", "--question", "q", "--json", *flags, **options)


def answer_of(result):
    assert result.status == 0, result
    return result.json["answer"]


SCRIPT = [repl("x = llm_query('sub')\nprint(x)"), "SUB",
          {"content": repl("SUBMIT(x)"), "contains": "SUB"}]


@pytest.mark.parametrize("stream", ["yes", "no"])
@pytest.mark.parametrize("provider, key, url, path", [
    ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    ("gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
    ("google", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
    ("azure", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", ""),
    ("openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "/v1"),
    ("portkey", "PORTKEY_API_KEY", "PORTKEY_BASE_URL", "/v1"),
    ("vllm", "VLLM_API_KEY", "VLLM_BASE_URL", "/v1"),
])
def test_a_run_with_each_provider(droste, serve, provider, key, url, path, stream):
    """Its key and its server are those of its variables; each call is made once, and its tokens are
    counted."""
    server = serve(key=CANARY, script=SCRIPT)
    env = {key: CANARY, url: server.url[:-len("/v1")] + path}
    result = run(droste, "--model", provider + "/scripted", "--stream", stream, env=env)
    assert answer_of(result) == "SUB"
    assert server.stats()["requests"] == 3
    assert result.json["usage"]["input_tokens"] > 0 and not result.json["usage"].get("estimated")
    assert CANARY not in result.out + result.err


def test_root_and_sub_model_of_two_providers(droste, serve):
    """Each is asked at its own server, with its own key."""
    root, sub = serve(key="key-of-the-root",
                      script=[SCRIPT[0], SCRIPT[2]]), serve(key="key-of-the-sub", script=["SUB"])
    env = {"ANTHROPIC_API_KEY": "key-of-the-root", "ANTHROPIC_BASE_URL": root.url[:-len("/v1")],
           "VLLM_API_KEY": "key-of-the-sub", "VLLM_BASE_URL": sub.url}
    assert answer_of(run(droste, "--model", "anthropic/scripted", "--sub-model", "vllm/scripted",
                         env=env)) == "SUB"


@pytest.mark.parametrize("model, words", [
    ("gpt-x", "OPENAI_API_KEY"), ("anthropic/x", "ANTHROPIC_API_KEY"),
    ("gemini/x", "GEMINI_API_KEY"),
    ("azure/x", "AZURE_OPENAI_ENDPOINT"), ("openrouter/x", "OPENROUTER_API_KEY"),
    ("mistral/x",
     "'mistral' is not a provider: begin the name of a model with openai, anthropic, gemini"),
    ("exec:/nonexistent", "exec:/nonexistent"),
])
def test_what_is_missing_is_named(droste, model, words):
    """Another provider's key does not help."""
    env = {key: CANARY for key in KEYS if key not in (words, "GOOGLE_API_KEY")}
    result = droste("run", "--question", "q", "--model", model, env=env)
    assert result.status == 2 and words in result.complaint and CANARY not in result.err


@pytest.mark.parametrize("flag", ["anthropic-api-key", "gemini-api-key", "azure-api-key",
                                  "openrouter-api-key",
                                  "portkey-api-key", "vllm-api-key"])
def test_no_key_is_a_flag(droste, flag):
    """Command lines are seen by everybody on a machine."""
    result = droste("exec", "-c", "1", "--" + flag, CANARY)
    assert result.status == 2 and "_API_KEY" in result.err and CANARY not in result.err


def test_keys_are_in_no_record(droste, serve, tmp_path):
    """Not in the record of runs, not in a recording, not in a cache."""
    server = serve(key=CANARY)
    kept = [tmp_path / "calls.jsonl", tmp_path / "cache.jsonl"]
    env = {"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_BASE_URL": server.url[:-len("/v1")]}
    run(droste, "--model", "anthropic/leak", "--max-iterations", "1", "--record", str(kept[0]),
        "--cache", str(kept[1]),
        env=env)
    files = [os.path.join(place, name) for place, _, names in os.walk(droste.data)
             for name in names]
    assert any(name.endswith("runs.db") for name in files)
    for path in [*files, *map(str, kept)]:
        with open(path, "rb") as f:
            assert CANARY.encode() not in f.read(), path
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path


PROGRAM = """#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    last = request["messages"][-1]["content"]
    text = "SUB" if last == "sub" else %r if "SUB" not in last else %r
    print(json.dumps({"id": request["id"], "text": text}), flush=True)
""" % (repl("x = llm_query('sub')\nprint(x)"), repl("SUBMIT(x)"))


def test_a_program_is_a_model(droste, tmp_path):
    """exec:PROGRAM answers the root's calls and those of the code."""
    program = tmp_path / "model.py"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    result = run(droste, "--model", "exec:%s" % program)
    assert answer_of(result) == "SUB" and result.json["usage"]["estimated"]


def test_a_second_run_is_answered_from_the_cache(droste, serve, tmp_path):
    """The same question over the same context: nothing is asked, nothing is counted, the answer is
    the same."""
    server = serve(script=SCRIPT)
    flags = ("--model", "scripted", "--base-url", server.url, "--cache",
             str(tmp_path / "cache.jsonl"))
    first, second = run(droste, *flags), run(droste, *flags)
    assert answer_of(first) == answer_of(second) == "SUB"
    assert server.stats()["requests"] == 3
    assert first.json["usage"]["input_tokens"] > 0 and second.json["usage"]["input_tokens"] == 0


def test_prices_that_are_wrong_are_refused(droste, replay, tmp_path):
    """The file and its line are named."""
    prices = tmp_path / "prices"
    prices.write_text("# mine\nmodel 1\n")
    result = droste("run", "--question", "q", "--model", replay("x"), "--prices", str(prices))
    assert result.status == 2 and "line 2" in result.complaint
    prices.write_text("# mine\nmodel 1 2\n")
    assert droste("run", "--question", "q", "--model", replay(repl("SUBMIT(1)")), "--prices",
                  str(prices)).status == 0


def test_a_prompt_of_messages_reaches_each_provider(droste, serve):
    """A list of messages keeps its roles; the system's text goes where the provider wants it."""
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    server = serve(script=[repl("SUBMIT(llm_query(%s))" % json.dumps(prompt)), "SUB"])
    env = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": server.url[:-len("/v1")]}
    assert answer_of(run(droste, "--model", "anthropic/scripted", env=env)) == "SUB"
    body = server.stats()["last"]["body"]
    assert body["system"] == "be brief" and body["messages"] == [{"role": "user", "content": "hi"}]


SAMPLED = ["temperature=0.25", "top_p=0.5", "stop=END"]


@pytest.mark.parametrize("provider, key, url, path, expected", [
    ("openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "/v1",
     {"temperature": 0.25, "top_p": 0.5, "stop": "END"}),
    ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "",
     {"temperature": 0.25, "top_p": 0.5, "stop_sequences": ["END"]}),
    ("gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "",
     {"generationConfig": {"temperature": 0.25, "topP": 0.5, "stopSequences": ["END"]}}),
])
def test_sampling_reaches_the_request(droste, serve, provider, key, url, path, expected):
    """Under the names of each provider, in what was sent; without the setting nothing of it is."""
    server = serve(key=CANARY, script=[repl("SUBMIT(1)")] * 2)
    env = {key: CANARY, url: server.url[:-len("/v1")] + path}
    flags = [word for text in SAMPLED for word in ("--sampling", text)]
    assert answer_of(run(droste, "--model", provider + "/scripted", *flags, env=env)) == 1
    body = server.stats()["last"]["body"]
    assert {name: body.get(name) for name in expected} == expected
    assert answer_of(run(droste, "--model", provider + "/scripted", env=env)) == 1
    body = server.stats()["last"]["body"]
    assert not {"temperature", "top_p", "stop",
                "stop_sequences"} & set(body) and not body.get("generationConfig")


def test_sampling_and_length_of_sub_calls_are_their_own(droste, serve):
    """sub-sampling and sub-max-tokens are what code's calls have, and not the root's; by default
    they have the root's."""
    server = serve(script=[repl("x = llm_query('sub')\nSUBMIT(x)"), "SUB"] * 2)
    flags = ("--model", "scripted", "--base-url", server.url, "--sampling", "temperature=0.25",
             "--max-tokens", "50")
    assert answer_of(run(droste, *flags)) == "SUB"
    body = server.stats()["last"]["body"]
    assert (body["temperature"], body["max_tokens"]) == (0.25, 50)
    assert answer_of(run(droste, *flags, "--sub-sampling", "seed=7", "--sub-max-tokens",
                         "9")) == "SUB"
    body = server.stats()["last"]["body"]
    assert (body["seed"], body["max_tokens"], "temperature" in body) == (7, 9, False)


@pytest.mark.parametrize("model, text, words", [
    ("anthropic/x", "seed=7", "Anthropic has no parameter 'seed'"),
    ("gemini/x", "min_p=0.1", "Gemini has no parameter 'min_p'"),
    ("vllm/x", "n=2", "'n' is not a sampling parameter: a call has one answer"),
    ("vllm/x", "max_tokens=5", "use the setting max-tokens"),
    ("vllm/x", "temperature=hot", "temperature=hot: write a number"),
    ("vllm/x", "seed", "write NAME=VALUE"),
])
def test_sampling_that_cannot_be_meant_is_refused_by_name(droste, model, text, words):
    """Before anything is asked; nothing is dropped silently."""
    env = {"ANTHROPIC_API_KEY": CANARY, "GEMINI_API_KEY": CANARY}
    result = droste("run", "--question", "q", "--model", model, "--sampling", text, env=env)
    assert result.status == 2 and words in result.complaint


def test_the_cache_knows_sampling(droste, serve, tmp_path):
    """Another temperature or seed is another call."""
    server = serve(script=[repl("SUBMIT(%d)" % n) for n in range(3)])
    flags = ("--model", "scripted", "--base-url", server.url, "--cache",
             str(tmp_path / "cache.jsonl"))
    answers = [answer_of(run(droste, *flags, *more)) for more in
               ([], ["--sampling", "seed=1"], ["--sampling", "seed=2"], ["--sampling", "seed=1"],
                [])]
    assert answers == [0, 1, 2, 1, 0] and server.stats()["requests"] == 3
