"""droste doctor: what works here, and what to do where it does not."""
import json
import os
import re
import shutil
import subprocess

import pytest
from droste_cli import droste, recording
from harness import NOBODY


def checks(home, *words, prefix=(), **env):
    """The checks by name, and the exit status."""
    r = droste(home, "doctor", "--json", *words, prefix=prefix, **env)
    found = json.loads(r.stdout)
    assert found["works"] == (r.returncode == 0)
    return {c["name"]: c for c in found["checks"]}, r.returncode


def environments(home):
    """Those that are not local, as `env ls` has them."""
    return [line.split()[0] for line in droste(home, "env", "ls").stdout.splitlines()[1:]]


def test_remote_environments_are_listed(tmp_path):
    """Whether each is configured; what to do where it is not. Nothing is sent."""
    there = tmp_path / "docker.sock"
    there.touch()
    found, _ = checks(tmp_path, DOCKER_HOST="unix://%s" % there)
    assert found["docker"]["state"] == "ok" and "droste smoke --env docker" in found["docker"][
        "text"]
    found, _ = checks(tmp_path, DOCKER_HOST="unix://%s/none" % tmp_path)
    assert found["docker"]["state"] == "note" and "install Docker" in found["docker"]["text"]
    found, _ = checks(tmp_path, DOCKER_HOST="http://x")
    assert found["docker"]["state"] == "note" and "DOCKER_HOST" in found["docker"]["text"]


def test_everything_is_looked_at(tmp_path):
    """One line a check, and a last one in words; the exit status says whether sandboxes work."""
    r = droste(tmp_path, "doctor")
    names = [line[:13].rstrip() for line in r.stdout.splitlines() if line[:1].strip()][:-1]
    assert names == ["droste", "kernel", "python", "full", "light", "landlock", "process", "auto",
                     "seccomp",
                     "Landlock", "cgroup v2", "users", "device nvidia", "model", "configuration",
                     "data", "record", "volumes",
                     *environments(tmp_path)]
    works = "Sandboxes work here." in r.stdout
    assert r.returncode == (0 if works else 4) and r.stderr == ""


def test_the_user_whose_processes_count_is_named(tmp_path):
    """An ordinary user's count as that user's: what does not fit in the limit is a note with what
    to do. Root gives each another user, or says that it does not."""
    user = (["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "--"]
            if os.geteuid() == 0 else [])
    os.chmod(tmp_path, 0o777)
    wide = [*user, "prlimit", "--nproc=4000:4000"]
    if subprocess.run([*wide, "true"], capture_output=True).returncode:
        pytest.skip("setpriv, prlimit or a limit of 4000 processes is not to be had here")
    found, _ = checks(tmp_path, prefix=wide)
    assert found["users"]["state"] == "ok" and "of 4000 processes" in found["users"]["text"]
    found, _ = checks(tmp_path, "--processes", "5000", prefix=wide)
    assert found["users"]["state"] == "note" and "ulimit -u" in found["users"]["cure"]
    if os.geteuid() != 0:
        return
    found, _ = checks(tmp_path)
    if found["users"]["state"] == "ok":
        assert "1900000000 to 1900065535" in found["users"]["text"]
        found, _ = checks(tmp_path, "--sandbox-users", "70000-70100")
        assert "a user of its own, 70000 to 70100" in found["users"]["text"]
    found, _ = checks(tmp_path, "--sandbox-users", "shared")
    assert found["users"]["state"] == "note" and "65534" in found["users"]["text"]


def test_the_states_are_three(tmp_path):
    """Each check is ok, missing or a note, and says something."""
    found, _ = checks(tmp_path)
    for check in found.values():
        assert check["state"] in ("ok", "missing", "note") and check["text"]
    assert found["python"]["state"] == "ok" and "CPython 3." in found["python"]["text"]
    assert found["process"]["state"] == "ok"
    assert found["seccomp"]["state"] == "ok"
    if found["landlock"]["state"] == "ok":
        assert found["Landlock"]["state"] == "ok" and "ABI" in found["Landlock"]["text"]
    works = [name for name in ("full", "light", "landlock") if found[name]["state"] == "ok"]
    assert found["auto"]["text"] == "selects `%s` here" % works[0]
    whole, each = "for each sandbox as a whole", "the host measures the memory of each sandbox"
    assert (whole if found["cgroup v2"]["state"] == "ok" else each) in found["cgroup v2"]["text"]


def test_looking_makes_nothing(tmp_path):
    """No directory, record or recording is made."""
    checks(tmp_path, "--record", "calls.jsonl", DROSTE_MODEL=recording(tmp_path, "x"))
    assert os.listdir(tmp_path) == ["model.jsonl"]


def test_a_bad_interpreter_is_named(tmp_path):
    """No Python at all, and a file that is none; both end with 4."""
    found, status = checks(tmp_path, "--python", "/nonexistent/python")
    assert status == 4 and found["python"]["state"] == "missing"
    assert "--python PATH" in found["python"]["text"]
    found, status = checks(tmp_path, "--python", "/bin/false")
    assert status == 4 and "/bin/false" in found["python"]["text"]
    assert found["full"]["cure"] == found["process"]["cure"] == "see python, above"


def test_a_kernel_without_user_namespaces_is_explained(tmp_path):
    """Where they are switched off, `full` is missing with the switch that turns them on, `process`
    still works, and `auto` is `landlock`, or the exit status is 4."""
    off = ["unshare", "--user", "--map-user=1000", "--keep-caps", "sh", "-c",
           'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*off, "true"],
                                                     capture_output=True).returncode:
        pytest.skip("user namespaces cannot be switched off for one process here")
    os.chmod(tmp_path, 0o777)
    found, status = checks(tmp_path, prefix=off)
    assert status == (0 if found["landlock"]["state"] == "ok" else 4)
    if status == 0:
        assert found["auto"]["text"] == "selects `landlock` here"
    for name in ("full", "light"):
        assert found[name]["state"] == "missing" and "unshare user" in found[name]["text"]
        assert "sysctl -w user.max_user_namespaces=" in found[name]["cure"]
    assert found["process"]["state"] == "ok"


def test_the_model_is_checked_and_its_key_is_not_shown(tmp_path):
    """Name, server and whether there is a key; what is missing is said; nothing is called."""
    found, _ = checks(tmp_path)
    assert found["model"]["state"] == "note" and "DROSTE_MODEL" in found["model"]["cure"]
    # What each provider needs.
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
                     "AZURE_OPENAI_API_KEY",
                     "AZURE_OPENAI_ENDPOINT", "OPENROUTER_API_KEY", "VLLM_BASE_URL"):
        assert variable in found["model"]["cure"], variable
    asked = droste(tmp_path, "run", "--question", "?")
    assert (asked.returncode == 2 and "PROVIDER/MODEL" in asked.stderr
            and "droste doctor" in asked.stderr)
    found, _ = checks(tmp_path, DROSTE_MODEL="gpt-5-mini")
    assert found["model"]["state"] == "missing" and "OPENAI_API_KEY" in found["model"]["text"]
    # Port 9 answers nobody: the check would fail if it called.
    r = droste(tmp_path, "doctor", DROSTE_MODEL="m", OPENAI_API_KEY="sk-secret",
               OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    line = next(line for line in r.stdout.splitlines() if line.startswith("model "))
    assert " ok " in line and "http://127.0.0.1:9/v1" in line and "a key is set" in line
    assert "sk-secret" not in r.stdout + r.stderr


def test_the_configuration_is_found(tmp_path):
    """The file that is read, and whether it is there; one that is wrong ends with its line."""
    found, _ = checks(tmp_path)
    assert found["configuration"]["state"] == "note"
    path = tmp_path / "config" / "droste" / "config.ini"
    assert str(path) in found["configuration"]["text"]
    path.parent.mkdir(parents=True)
    path.write_text("isolation = process\nmodel = %s\n" % recording(tmp_path, "x"))
    found, _ = checks(tmp_path)
    assert found["configuration"] == {"name": "configuration", "state": "ok", "text": str(path),
                                      "cure": None}
    assert found["model"]["text"] == "replay:model.jsonl, a recording (not called)"
    path.write_text("\nretries = many\n")
    r = droste(tmp_path, "doctor")
    assert r.returncode == 2 and "config.ini, line 2: 'many'" in r.stderr


def test_the_record_is_measured(tmp_path):
    """Where it will be, then how large it is; or that it is turned off or cannot be made."""
    assert "created by the first run" in checks(tmp_path)[0]["record"]["text"]
    droste(tmp_path, "run", "--question", "q", "--model",
           recording(tmp_path, "```repl\nSUBMIT(1)\n```"))
    record = checks(tmp_path)[0]["record"]
    assert record["state"] == "ok"
    assert re.fullmatch(r".*/data/runs\.db, [\d.]+ [KM]iB", record["text"])
    assert "turned off" in checks(tmp_path, "--database", "none")[0]["record"]["text"]
    found, _ = checks(tmp_path, "--database", "model.jsonl/x.db")
    assert found["record"]["state"] == "missing" and "--database" in found["record"]["cure"]


def test_the_plan_is_printed_with_numbers(tmp_path):
    """--plan gives the zygote's plan and the sandbox's, each step with its number."""
    r = droste(tmp_path, "doctor", "--plan", "--isolation", "process", "--memory", "512M")
    assert r.returncode == 0 and r.stdout.startswith("isolation process\nonce, for all sandboxes")
    once, each = r.stdout.split("then, for each sandbox:\n")
    assert re.search(r"^  0 \w+ ", each, re.M)
    assert "limit memory to %d" % (512 << 20) in each
    if droste(tmp_path, "doctor").returncode == 0:
        r = droste(tmp_path, "doctor", "--plan")
        assert r.stdout.startswith("isolation full\n") and "pivot root" in r.stdout
        assert "clone with new namespaces: user pid" in r.stdout


def test_the_plan_says_which_system_calls_there_are_and_why(tmp_path):
    """--plan ends with the filter's tables, each row with its answer and its reason; `process` has
    no filter."""
    r = droste(tmp_path, "doctor", "--plan", "--isolation", "process")
    assert r.returncode == 0 and "system calls of a guest" not in r.stdout
    if droste(tmp_path, "doctor").returncode == 0:
        calls = droste(tmp_path, "doctor",
                       "--plan").stdout.partition("\nsystem calls of a guest")[2]
        assert re.search(r"^    setsockopt, getsockopt$", calls, re.M)
        assert re.search(r"^        EPERM        SO_ATTACH_FILTER: .*bpf_jit_limit", calls, re.M)
        assert re.search(r"^        allowed      SO_KEEPALIVE: .", calls, re.M)
        assert re.search(r"^    ENOSYS: watches are counted by user.*\n        epoll_create ",
                         calls, re.M)


def test_usage_is_explained(tmp_path):
    """What cannot be combined or is unknown."""
    for words in (["--plan", "--json"], ["extra"], ["--nosuch"]):
        r = droste(tmp_path, "doctor", *words)
        assert r.returncode == 2 and r.stdout == "" and "doctor --help" in r.stderr
