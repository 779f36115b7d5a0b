"""droste runs resume: a run that was killed goes on, and nothing that was paid for is paid again.

The model is tests/fakes/model_server.py over real HTTP, whose answers are functions of what it is
asked, so that two lives of a run cannot help each other by it; it counts requests and tokens by
idempotency key.
"""
import json
import os
import random
import signal
import sqlite3
import time

import pytest

from conftest import finish, repl, wait_until, write_replay

KILLS = int(os.environ.get("DROSTE_TEST_KILLS", "25"))
SEED = int(os.environ.get("DROSTE_TEST_SEED", "20261121"))

# Three turns with batches, calls one by one, and calls of threads; what one finds the next needs.
TURNS = [
    repl("a = llm_query_batched(['a%d' % i for i in range(12)])\nprint(len(context), a[0])",
         "b = [llm_query('b%d after %s' % (i, a[i])) for i in range(3)]\nprint(b[-1])"),
    repl("from concurrent.futures import ThreadPoolExecutor\n"
         "with ThreadPoolExecutor(4) as pool: c = list(pool.map(llm_query, ['c%d' % (i // 2) for i in range(8)]))\n"
         "print(c)"),
    repl("d = llm_query_batched(['d' + x for x in c])"),
    repl("import hashlib\nSUBMIT(hashlib.sha256(repr((context, a, b, c, d)).encode()).hexdigest())"),
]
KEY = {"OPENAI_API_KEY": "k"}
CALLS = len(TURNS) + 12 + 3 + 8 + 8


class Life:
    """A run against a server, in as many processes as it takes."""

    def __init__(self, droste, server, path):
        self.droste, self.server = droste, server
        self.env = {**KEY, "OPENAI_BASE_URL": server.url}
        self.context = path / "c.txt"
        self.context.write_text("needle\n" * 100)

    def start(self, *flags):
        return self.droste.start("run", "--question", "q", "--json", "--model", "turns", "--sub-model", "digest",
                                 "--context", self.context, *flags, env=self.env)

    def whole(self, *flags):
        return finish(self.start(*flags))

    @property
    def id(self):
        return self.droste.record.run["id"]

    def resume(self, *flags):
        return self.droste("runs", "resume", self.id, "--json", *flags, env=KEY)


@pytest.fixture
def life(droste, serve, tmp_path):
    return Life(droste, serve(turns=TURNS), tmp_path)


def in_flight(record):
    """The keys of the calls that have begun and not ended, as a stranger reads them."""
    return {c["key"] for c in record.calls if c["status"] == "running"}


def check_end(life, answer, killed):
    """The run ended as one that nobody killed; `killed` are the keys in flight at each kill."""
    stats, record = life.server.stats(), life.droste.record
    shown = life.droste("runs", "show", life.id, "--json").json
    assert shown["status"] == "answered" and shown["answer"] == answer
    assert shown["usage"]["calls"] == CALLS == len(record.calls) and record.is_whole
    assert {c["status"] for c in record.calls} == {"ok"} and len({c["key"] for c in record.calls}) == CALLS
    # Nothing but what was in flight at a kill came twice, and it came under the same key.
    allowed = {c["key"]: 1 + sum(c["key"] in keys for keys in killed) for c in record.calls}
    assert set(stats["idempotency"]) == set(allowed)
    for call in record.calls:
        assert stats["idempotency"][call["key"]] <= 1 + call["repeated"] <= allowed[call["key"]], call
    assert {c["key"] for c in record.calls if c["repeated"]} >= (killed[-1] if killed else set())
    # The tokens of each call once, as the server counts them.
    told = [stats["tokens"][c["key"]] for c in record.calls]
    assert shown["usage"]["input_tokens"] == sum(t[0] for t in told)
    assert shown["usage"]["output_tokens"] == sum(t[1] for t in told)


def kill(process):
    """However far it is; one that has ended is not touched."""
    process.kill()
    process.wait(60)


@pytest.fixture(scope="module")
def reference():
    """Answer and seconds of a run that is not killed, once it was measured."""
    return {}


def measure(reference, droste, serve, path):
    if not reference:
        life = Life(droste, serve(turns=TURNS), path)
        start = time.monotonic()
        result = life.whole("--database", path / "reference.db")
        assert result.status == 0 and result.json["usage"]["calls"] == CALLS, result
        reference.update(answer=result.json["answer"], seconds=time.monotonic() - start)
    return reference


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_random_it_ends_as_if_it_had_not_been(droste, serve, tmp_path, reference, number):
    """`kill -9` at a random instant, and of some the resumed run too: the same answer, no call whose answer
    was recorded is made again, those in flight are made again with their keys, the usage is the server's."""
    chance = random.Random(SEED + number)
    expected = measure(reference, droste, serve, tmp_path)
    life = Life(droste, serve(turns=TURNS), tmp_path)
    process, killed = life.start(), []
    for _ in range(chance.choice([1, 1, 2, 3])):
        time.sleep(chance.uniform(0, expected["seconds"]))
        kill(process)
        if not os.path.exists(droste.record.path) or droste.record.runs == []:
            assert life.server.stats()["requests"] == 0  # it had not begun, and nothing was paid
            process = life.start()
        elif droste.record.run["status"] == "running":
            killed.append(in_flight(droste.record))
            process = droste.start("runs", "resume", life.id, "--json", env=KEY)
    result = finish(process)
    if process.returncode != -signal.SIGKILL:
        assert result.status == 0 and result.json["answer"] == expected["answer"], result
    check_end(life, expected["answer"], killed)
