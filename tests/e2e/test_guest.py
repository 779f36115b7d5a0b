"""What the guest's functions do with what the host answers."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")

BATCH = """replies = llm_query_batched(["a", [{"role": "tool", "content": "b"}], "c"])
SUBMIT(replies=replies, errors=[type(r.error).__name__ for r in replies if isinstance(r, FailedReply)])
"""


def test_a_prompt_that_the_host_refuses_fails_alone(tmp_path):
    """The other replies of its batch, which were paid for, are not lost."""
    model = tmp_path / "model.jsonl"
    model.write_text(json.dumps({"content": "good", "depth": 1, "repeat": True}))
    said = subprocess.run([DROSTE, "exec", "--json", "--model", "replay:%s" % model, "-c", BATCH],
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=60).stdout
    submitted = json.loads(said)["submit"]
    assert submitted["replies"][0] == submitted["replies"][2] == "good"
    assert submitted["replies"][1].startswith("[ERROR] the role of message 0 is 'tool'")
    assert submitted["errors"] == ["ValueError"]
