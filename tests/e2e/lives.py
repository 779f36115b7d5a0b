"""Runs that die and are resumed, against a server that counts requests and tokens by idempotency
key."""
import os
import signal
import sqlite3
import time

import pytest

from harness import finish

KILLS = int(os.environ.get("DROSTE_TEST_KILLS", "6"))
SEED = int(os.environ.get("DROSTE_TEST_SEED", "20261121"))
KEY = {"OPENAI_API_KEY": "k"}


class Life:
    """A run against a server, in as many processes as it takes."""

    def __init__(self, droste, server, path, *flags):
        self.droste, self.server, self.flags = droste, server, flags
        self.env = {**KEY, "OPENAI_BASE_URL": server.url}
        self.context = path / "c.txt"
        self.context.write_text("needle\n" * 100)

    def start(self, *flags):
        return self.droste.start("run", "--question", "q", "--json", "--model", "turns",
                                 "--sub-model", "digest",
                                 "--context", self.context, *self.flags, *flags, env=self.env)

    def whole(self, *flags):
        return finish(self.start(*flags))

    @property
    def id(self):
        return self.root["id"]

    @property
    def root(self):
        """As the record has it."""
        return self.droste.record.runs[0]

    def resume(self, *flags):
        return self.droste("runs", "resume", self.id, "--json", *flags, env=KEY)

    def start_again(self):
        return self.droste.start("runs", "resume", self.id, "--json", env=KEY)


class Gate:
    """A file that code waits for: `code` holds a cell up while the gate is shut. It goes to
    --read."""

    def __init__(self, directory):
        self.directory, self.file = directory, directory / "open"
        directory.mkdir()
        directory.chmod(0o755)
        self.code = "import os, time\nwhile not os.path.exists(%r): time.sleep(0.01)\n" % str(
            self.file)
        self.flags = ["--read", directory]
        self.open()

    def open(self):
        self.file.touch()

    def shut(self):
        self.file.unlink()


def begun(droste):
    """Whether the record has a run."""
    return os.path.exists(droste.record.path) and droste.record.runs != []


def in_flight(record):
    """The keys of the calls that have begun and not ended, as a stranger reads them."""
    return {c["key"] for c in record.calls if c["status"] == "running"}


def kill(process):
    """However far it is; one that has ended is not touched."""
    process.kill()
    process.wait()


def measure(reference, life):
    """What a run comes to that nobody kills; kept in `reference`, which is empty at first."""
    if not reference:
        start = time.monotonic()
        result = life.whole("--database", life.context.parent / "reference.db")
        assert result.status == 0, result
        reference.update(answer=result.json["answer"], calls=result.json["usage"]["calls"],
                         cost=result.json["usage"]["cost"], seconds=time.monotonic() - start)
    return reference


def kill_at_random(life, chance, expected):
    """Kills the run one to three times, and lets it end; the keys that were in flight at each kill
    of it."""
    process, killed, result = life.start(), [], None
    for _ in range(chance.choice([1, 1, 2, 3])):
        time.sleep(chance.uniform(0, expected["seconds"]))
        kill(process)
        if not begun(life.droste):
            assert life.server.stats()["requests"] == 0  # it had not begun, and nothing was paid
            process = life.start()
        elif life.root["status"] == "running":
            killed.append(in_flight(life.droste.record))
            process = life.start_again()
    result = finish(process)
    if process.returncode != -signal.SIGKILL:
        assert result.status == 0 and result.json["answer"] == expected["answer"], result
        check_repeated(life, result.json, killed)
        check_usage(result.json["usage"], life.droste.record.calls)
    return killed


def check_repeated(life, result, killed):
    """A resumed run lists the calls that the last kill had left in flight, no more, and counts the
    others."""
    if not killed:
        assert result["resumed"] is None
        return
    repeated = result["resumed"]["repeated"]
    assert len(repeated) == len({tuple(sorted(r.items()))
                                 for r in repeated}) == len(killed[-1]), (repeated, killed)
    calls = {c["id"]: c for c in life.droste.record.calls}
    runs = {c["run"] for c in calls.values() if c["key"] in killed[-1]}
    assert {r.get("run", life.id) for r in repeated} == runs


def check_usage(usage, calls):
    """As a whole, by depth and by model: each call of the record once."""
    names = ("calls", "input_tokens", "output_tokens")

    def check(part, these):
        assert [part[name] for name in names] == \
            [len(these), sum(c["input_tokens"] for c in these),
             sum(c["output_tokens"] for c in these)]
        priced = None not in [c["cost"] for c in these]
        assert part["cost"] == (pytest.approx(sum(c["cost"] for c in these)) if priced else None)

    check(usage, calls)
    assert len(usage["depths"]) == 1 + max(c["depth"] for c in calls)
    for depth, part in enumerate(usage["depths"]):
        check(part, [c for c in calls if c["depth"] == depth])
    assert set(usage["models"]) == {c["model"] for c in calls}
    for model, part in usage["models"].items():
        check(part, [c for c in calls if c["model"] == model])


def check_paid_once(life, expected, killed):
    """The run ended as one that nobody killed; `killed` are the keys in flight at each kill."""
    stats, record = life.server.stats(), life.droste.record
    shown = life.droste("runs", "show", life.id, "--json").json
    assert shown["status"] == "answered" and shown["answer"] == expected["answer"]
    assert shown["usage"]["calls"] == expected["calls"] == len(record.calls) and record.is_whole
    assert {c["status"] for c in record.calls} == {"ok"}
    assert len({c["key"] for c in record.calls}) == expected["calls"]
    # Nothing but what was in flight at a kill came twice, and it came under the same key.
    allowed = {c["key"]: 1 + sum(c["key"] in keys for keys in killed) for c in record.calls}
    assert set(stats["idempotency"]) == set(allowed)
    for call in record.calls:
        assert stats["idempotency"][call["key"]] <= 1 + call["repeated"] <= allowed[
            call["key"]], call
    assert {c["key"] for c in record.calls if c["repeated"]} >= (killed[-1] if killed else set())
    # The tokens of each call once, as the server counts them.
    tokens = [stats["tokens"][c["key"]] for c in record.calls]
    assert shown["usage"]["input_tokens"] == sum(t[0] for t in tokens)
    assert shown["usage"]["output_tokens"] == sum(t[1] for t in tokens)


# Makes a record one of version 13, which has no approvals.
VERSION_13 = (
    "DROP INDEX calls_about_costs; ALTER TABLE calls DROP COLUMN question;"
    "DROP INDEX calls_that_ask; DROP TRIGGER call_asked; DROP TRIGGER call_decided;"
    + "".join("ALTER TABLE calls DROP COLUMN %s;" % name for name in (
        "asked_ms", "until_ms", "decision", "decided_ms", "decided_by", "decision_reason",
        "begun_ms"))
    + "PRAGMA user_version = 13;")


def settle(droste, statement):
    """Makes the record what it would be had the process died earlier."""
    db = sqlite3.connect(droste.record.path)
    with db:
        db.executescript(statement)
    db.close()


def take_back(droste, *more):
    """The process died before it could end the run, and before `more`."""
    settle(droste,
           "UPDATE runs SET status = 'running', answer = NULL, ended_ms = NULL, owner_pid = "
           "999999999,"
                   " owner_start = 1;" + ";".join(more))


