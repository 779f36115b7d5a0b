"""droste run over real HTTP, against a server that speaks the OpenAI protocol: what reaches it,
what is tried again, what fails, and where the key is."""
import os

import pytest

from harness import CANARY, answered, refused, repl, when
from terminals import Model


@pytest.mark.parametrize("stream", ["yes", "no"])
def test_run_over_http(online, stream):
    """A run with sub-calls over a real server, streamed or not: each call is made once."""
    result, server = online([repl("x = llm_query('sub')\nprint(x)"), "SUB",
                             when("SUB", repl("SUBMIT(x)"))],
                            "--stream", stream)
    run = answered(result, "SUB")
    assert run["usage"]["calls"] == 3 and server.stats()["requests"] == 3
    assert "estimated" not in run["usage"] or run["usage"]["estimated"] is False


def test_run_over_tls(droste, serve):
    """--ca-file makes a private certificate trusted."""
    server = serve(script=[repl("SUBMIT('tls')")])
    result = droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.tls_url,
                    "--ca-file", server.ca_file)
    answered(result, "tls")


def test_unknown_certificate_is_refused(droste, serve):
    """Without it the connection is refused, and nothing of the request was sent."""
    server = serve(script=[repl("SUBMIT('tls')")])
    result = droste("run", "--question", "q", "--model", "scripted", "--base-url", server.tls_url)
    refused(result, 1, "--ca-file")
    assert server.stats()["requests"] == 0


def test_a_long_message_of_a_provider_is_shown_and_recorded_whole(droste):
    """As the reason of another attempt, in the result, and in the record; without the key."""
    words = " ".join("word%d" % n for n in range(3000)) + " " + CANARY
    with Model(("q", 503, words, {"Retry-After": "0"}), ("q", 400, words)) as model:
        result = droste("run", "--question", "q", "--json", "--verbose", *model.flags(),
                        env={"OPENAI_API_KEY": CANARY})
    assert result.status == 1 and CANARY not in result.err + result.out
    errors = " ".join(result.err.split())
    assert errors.count("word2999 ") == 1 and errors.count("word0 ") == 1, errors[-300:]
    message = result.json["error"]["message"]
    assert message.startswith("after 2 attempts: ") and ": word0 word1 " in message
    assert message.endswith("word2999 " + "*" * len(CANARY))
    shown = droste("runs", "show", "last").out
    assert shown.count("word2999") == 2         # of the run and of its call


def test_calls_that_share_a_failure_have_its_whole_message(droste):
    """Only one of two identical calls is sent."""
    words = " ".join("word%d" % n for n in range(3000))
    with Model(("ask twice", repl("llm_query_batched(['same', 'same'])\nSUBMIT('done')")),
               ("same", 400, words)) as model:
        result = droste("run", "--question", "ask twice", "--json", "--deduplicate", "yes",
                        *model.flags(), env={"OPENAI_API_KEY": CANARY})
    answered(result, "done")
    assert droste("runs", "show", "last").out.count("word2999") == 2


@pytest.mark.parametrize("model, words", [
    ("no-such-model", ["no-such-model", "does not exist"]),
    ("quota", ["quota"]),
    ("context", ["context length"]),
    ("500-9", ["500"]),
    ("429-9", ["429"]),
    ("badjson", ["JSON"]),
    ("html", ["JSON"]),
    ("emptychoices", []),
    ("error200", ["no provider available"]),
    ("cut-before", []),
    ("cut-body", []),
    ("stream-cut", []),
    ("stream-end", []),
    ("stream-error", ["engine overheated"]),
    ("badutf8", []),
])
def test_failure_of_a_provider_is_one_clear_line(droste, serve, model, words):
    """Each way in which a provider fails is exit status 1 and one line, with the provider's own
    words."""
    server = serve()
    result = droste("run", "--question", "q", "--model", model, "--base-url", server.url,
                    "--retries", "0")
    refused(result, 1, *words)
    assert server.stats()["requests"] == 1


def test_a_stalled_stream_is_cancelled(droste, serve):
    """A stream that stops in the middle ends after --stall-timeout."""
    result = droste("run", "--question", "q", "--model", "stall", "--base-url", serve().url,
                    "--retries", "0",
                    "--stall-timeout", "0.5")
    refused(result, 1, "0.5 s")


def test_failure_that_passes_is_tried_again(droste, serve):
    """Two 500s and then an answer: the run goes on, and the attempts are in the record."""
    server = serve()
    result = droste("run", "--question", "q", "--model", "500-2", "--base-url", server.url,
                    "--json",
                    "--max-iterations", "1", "--retries", "5")
    assert result.json["status"] == "exhausted"
    assert droste.record.calls[0]["attempts"] == 3


def test_wrong_key(droste, serve):
    """A key that is refused says where it comes from, and is repeated nowhere."""
    server = serve(key="right")
    result = droste("run", "--question", "q", "--model", "ok", "--base-url", server.url,
                    env={"OPENAI_API_KEY": CANARY})
    refused(result, 1, "OPENAI_API_KEY")
    assert CANARY not in result.err and CANARY[10:] not in result.err


def test_a_port_without_a_listener(droste):
    """A server that is not there is named with its address."""
    result = droste("run", "--question", "q", "--model", "m", "--base-url", "http://127.0.0.1:9/v1",
                    "--retries", "0")
    refused(result, 1, "127.0.0.1")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "nonsense", "http://"])
def test_url_that_is_none(droste, url):
    """A base URL that cannot be one is refused before the run."""
    refused(droste("run", "--question", "q", "--model", "m", "--base-url", url), 2, "base")


def test_key_is_nowhere(online, droste, tmp_path):
    """The key is in no output, no record, no recording, and not in the guest."""
    look = ("import os, glob\nfound = str(dict(os.environ))\n"
            "for p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n"
            "    try: found += open(p, errors='replace').read()\n"
            "    except OSError: pass\n"
            "SUBMIT('canary' in found)")
    result, server = online([repl("print(llm_query('x'))"), "SUB", repl(look)], "--verbose",
                            "--record",
                            tmp_path / "calls.jsonl")
    answered(result, False)
    recorded = (tmp_path / "calls.jsonl").read_bytes()
    assert recorded.count(b"\n") == 3
    for place in (result.out.encode(), result.err.encode(), recorded, droste.record.bytes()):
        assert CANARY.encode() not in place and CANARY[8:].encode() not in place


def test_key_that_a_server_repeats_is_nowhere(online, droste, tmp_path):
    """A server that says the key back does not get it into the output, the record or the
    recording."""
    result, server = online(None, "--verbose", "--record", tmp_path / "calls.jsonl",
                            "--max-iterations", "1",
                            model="leak")
    assert result.status == 3
    for place in (result.out.encode(), result.err.encode(), (tmp_path / "calls.jsonl").read_bytes(),
                  droste.record.bytes()):
        assert CANARY.encode() not in place


def test_recording_replays_the_same_run(online, droste, tmp_path):
    """--record FILE, then --model replay:FILE: the same answer and usage, without a server."""
    script = [repl("parts = llm_query_batched(['a', 'b'])\nprint(parts)"), "A", "B",
              repl("SUBMIT(parts)")]
    result, server = online(script, "--record", tmp_path / "calls.jsonl", "--concurrency", "1")
    first = answered(result, ["A", "B"])
    again = answered(droste("run", "--question", "q", "--json", "--model",
                            "replay:%s" % (tmp_path / "calls.jsonl")), ["A", "B"])
    for key in ("calls", "input_tokens", "output_tokens"):
        assert first["usage"][key] == again["usage"][key]
    assert first["iterations"] == again["iterations"] and server.stats()["requests"] == 4


def test_recording_is_its_owners(online, tmp_path):
    """A recording contains prompts, so other users cannot read it."""
    online([repl("SUBMIT(1)")], "--record", tmp_path / "calls.jsonl")
    assert os.stat(tmp_path / "calls.jsonl").st_mode & 0o077 == 0


def test_thousand_calls_on_few_connections(droste, serve, replay):
    """1,000 batched calls, 64 at a time on reused connections: none lost, none doubled, in
    order."""
    server = serve()
    code = ("r = llm_query_batched(['%04d' % i for i in range(1000)])\n"
            "SUBMIT(r == ['4:%04d' % i for i in range(1000)])")
    result = droste("run", "--question", "q", "--json", "--model", replay(repl(code)),
                    "--sub-model", "echo",
                    "--base-url", server.url, "--max-llm-calls", "1000", "--concurrency", "64")
    run = answered(result, True)
    stats = server.stats()
    assert run["usage"]["calls"] == 1001
    assert stats["requests"] == 1000 and stats["connections"] <= 64 and stats["max_in_flight"] <= 64
    assert max(stats["idempotency"].values()) == 1


def test_batch_is_concurrent(droste, serve, replay):
    """The calls of a batch are under way together, as many as --concurrency allows and no more."""
    server = serve()
    result = droste("run", "--question", "q", "--json", "--model",
                    replay(repl("SUBMIT(len(llm_query_batched([str(i) for i in range(300)])))")),
                    "--sub-model", "slow-30", "--base-url", server.url, "--max-llm-calls", "300",
                    "--concurrency", "64")
    answered(result, 300)
    assert 1 < server.stats()["max_in_flight"] <= 64


def test_large_prompt(droste, serve, replay):
    """A prompt of 10 MB arrives whole."""
    result = droste("run", "--question", "q", "--json", "--model",
                    replay(repl("SUBMIT(llm_query('y' * (10 << 20)))")), "--sub-model", "echo",
                    "--base-url", serve().url)
    answered(result, "10485760:" + "y" * 32)
