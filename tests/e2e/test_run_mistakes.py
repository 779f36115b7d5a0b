"""droste run: mistakes of whoever starts it: one clear line, the right status, nothing paid."""
import os

from harness import answered, refused, repl, write_replay


def test_missing_context(droste, replay):
    """A context that is not there is named."""
    refused(droste("run", "--question", "q", "--context", "nowhere", "--model", replay("x")), 2,
            "nowhere does not exist")


def test_empty_directory(droste, replay, tmp_path):
    """A directory without texts is refused."""
    (tmp_path / "empty").mkdir()
    refused(droste("run", "--question", "q", "--context", tmp_path / "empty", "--model",
                   replay("x")), 2,
            "no text files")


def test_json_that_is_none(droste, replay, tmp_path):
    """A .json file that is not JSON is refused before a model is asked, with the way out."""
    (tmp_path / "c.json").write_text("{oops")
    result = droste("run", "--question", "q", "--context", tmp_path / "c.json", "--model",
                    replay("x"))
    refused(result, 2, "c.json", "--context-type")
    assert droste.record.calls == []


def test_unreadable_context(ordinary_user):
    """A context that this user may not read is named with the reason."""
    model = write_replay(os.path.join(os.path.dirname(ordinary_user.home), "r.jsonl"), "x")
    refused(ordinary_user("run", "--question", "q", "--context", "/etc/shadow", "--model", model),
            2,
            "/etc/shadow", "Permission denied")


def test_run_as_anybody(anybody):
    """A whole run works as root and as an ordinary user, behind the full wall."""
    model = write_replay(os.path.join(os.path.dirname(anybody.home), "r.jsonl"), repl("SUBMIT(1)"))
    os.chmod(os.path.join(os.path.dirname(anybody.home), "r.jsonl"), 0o644)
    assert answered(anybody("run", "--question", "q", "--model", model, "--json"),
                    1)["isolation"] == "full"


def test_no_model(droste):
    """Without a model the line says the three ways to give one."""
    refused(droste("run", "--question", "q"), 2, "--model", "DROSTE_MODEL", "config.ini")


def test_no_question(droste):
    """A run without a question is a usage mistake."""
    result = droste("run", "--model", "x")
    assert result.status == 2 and "droste run 'QUESTION'" in result.err


def test_no_key(droste):
    """A provider's model without a key says which variable to set, before anything is sent."""
    refused(droste("run", "--question", "q", "--model", "gpt-5-mini"), 2, "OPENAI_API_KEY")


def test_missing_recording(droste):
    """A replay file that is not there is named."""
    refused(droste("run", "--question", "q", "--model", "replay:nowhere.jsonl"), 2, "nowhere.jsonl")


def test_malformed_recording(droste, tmp_path):
    """A replay file with a bad line is refused with the line's number."""
    (tmp_path / "r.jsonl").write_text('{"content": "x"}\n{oops\n')
    result = droste("run", "--question", "q", "--model", "replay:%s" % (tmp_path / "r.jsonl"))
    refused(result, 2, "r.jsonl", "2")


def test_recording_that_ends_early(ask):
    """A run that leaves its recording's path says so."""
    result = ask([repl("x = 1")])
    assert result.status == 1 and result.json["status"] == "error"
    assert result.json["error"]["type"] == "model_replay"


def test_isolation_that_cannot_be_had(ask, droste):
    """A wall that is not there ends a run before a model is asked."""
    droste.prefix = ["unshare", "--user", "--map-root-user", "sh", "-c",
                     'echo 0 > /proc/sys/user/max_user_namespaces || exit 99; exec "$@"', "sh"]
    result = ask([repl("SUBMIT(1)")], "--isolation", "full")
    refused(result, 4, "'full'")
    assert [run["status"] for run in droste.record.rows("SELECT * FROM runs")] in ([], ["error"])
