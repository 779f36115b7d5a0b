"""The services themselves, where there is an account: each provider whose variables are set is
tried for real, which costs a few cents. The others are skipped by name. The whole of the
conformance suite is `pytest tests/session --environment NAME`."""
import json
import os

import pytest

import droste
from droste_cli import droste as program

ACCOUNTS = {
    "daytona": ("DAYTONA_API_KEY",),
    "prime": ("PRIME_API_KEY",),
    "e2b": ("E2B_API_KEY",),
    "modal": ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),
}
# Before other tests put those of their fakes there.
SET = {name for names in ACCOUNTS.values() for name in names if os.environ.get(name)}


@pytest.fixture(params=sorted(ACCOUNTS))
def live(request):
    """The name of a provider with an account."""
    unset = [name for name in ACCOUNTS[request.param] if name not in SET]
    if unset:
        pytest.skip("%s is not tried live: there is no %s"
                    % (request.param, " and no ".join(unset)))
    return request.param


def test_a_smoke_test_passes(live, tmp_path):
    """Each phase, from the account to the end of the sandbox."""
    result = program(tmp_path, "smoke", "--env", live, "--timeout", "600")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["termination_phase"] == "completed" and report["sandbox_id"]


def test_a_session_is_what_it_is_everywhere(live):
    """Variables, calls at once, a large text there and back, and an end after which nothing is
    left."""
    large = "é\0\r\n" * (1 << 20)
    with droste.Interpreter(env=live, model=lambda messages: "re: " + messages[-1]["content"],
                            timeout=600) as session:
        assert session.execute("x = 20").ok
        result = session.execute(
            "SUBMIT(x=x + 1, said=llm_query_batched([str(i) for i in range(20)]))")
        assert result.fields == {"x": 21, "said": ["re: %d" % i for i in range(20)]}
        result = session.execute("SUBMIT(back=text, length=len(text))", {"text": large})
        assert result["length"] == len(large) and result["back"] == large
        assert session.execute(
            "import urllib.request\ntry:\n    urllib.request.urlopen('http://192.0.2.1', "
            "timeout=3)\n    seen = True\nexcept OSError:\n    seen = False\n"
            "SUBMIT(seen=seen)").fields == {"seen": False}
    assert not session.alive
