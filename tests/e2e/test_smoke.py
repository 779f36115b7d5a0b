"""`smoke`, `daytona-smoke` and `run-basic`."""
import json
import os

from harness import refused, repl
from repositories import (  # noqa: F401: with fixtures
    git, left, own, place, repo, Repo)

PHASES = ["config", "sandbox_create", "repo_clone", "driver_start", "exec_step_1", "exec_step_2",
          "cleanup"]


def test_daytona_smoke_tests_nothing_else(own, repo):
    """Without a key it fails in its first phase, wherever the machine's own sandboxes are; another
    environment is refused by name (tests/clouds and tests/seeds run it on a fake of Daytona)."""
    report = json.loads(own("daytona-smoke", "--repo", repo.url).err)
    assert report["environment"] == "daytona" and "DAYTONA_API_KEY" in report[
        "error_message"], report
    for flags, more in ((["--env", "local"], {}), ([], {"env": {"DROSTE_ENVIRONMENT": "local"}})):
        result = own("daytona-smoke", "--repo", repo.url, *flags, **more)
        assert result.status == 1 and "daytona-smoke is a test of daytona" in json.loads(
            result.err)["error_message"]


def test_a_smoke_test_that_passes(own, repo):
    result = own("smoke", "--repo", repo.url, "--ref", "v1")
    assert result.status == 0 and result.err == "", result
    report = json.loads(result.out)
    assert list(report["phase_timings_ms"]) == PHASES
    assert all(isinstance(ms, int) and ms >= 0 for ms in report.pop("phase_timings_ms").values())
    assert report == {"repo": repo.url, "ref": "v1", "commit": git(repo.path, "rev-parse", "v1"),
                      "environment": "local", "sandbox_id": None,
                      "workspace_path": "/workspace/project", "persisted_state_value": 5,
                      "driver_started": True,
                      "finalization_mode": "SUBMIT", "termination_phase": "completed",
                      "error_category": None, "error_message": None}


def test_a_smoke_test_that_fails_says_in_which_phase(own, repo, place):
    """The report is on standard error then, and the status 1."""
    other = Repo(os.path.join(place, "other"))
    other.commit(notes_txt="x")
    blank = Repo(os.path.join(place, "blank"))
    blank.commit(README_md=" \n")
    for flags, phase, category, why in (
            (("--repo", "http://h/x"), "config", "config_error", "must begin with https://"),
            (("--repo", repo.url, "--env", "nowhere"), "config", "config_error",
             "environment 'nowhere'"),
            (("--repo", repo.url, "--ref", "none"), "repo_clone", "sandbox_create_clone_error",
             "'none'"),
            (("--repo", repo.url, "--python", "/bin/true"), "sandbox_create",
             "sandbox_create_clone_error", ""),
            (("--repo", other.url), "exec_step_1", "driver_execution_error", "README.md"),
            (("--repo", blank.url), "exec_step_1", "driver_execution_error", "README.md is empty")):
        result = own("smoke", *flags)
        report = json.loads(result.err)
        assert (result.status, result.out) == (1, ""), result
        assert (report["termination_phase"], report["error_category"]) == (phase, category), report
        assert why in report["error_message"] and report["finalization_mode"] is None
    plain = json.loads(own("smoke").out)
    assert (plain["termination_phase"], plain["repo"],
            plain["workspace_path"]) == ("completed", None, None)
    assert not left(place)


def test_run_basic_is_run_with_the_limits_of_then(own, replay):
    """Here in a local sandbox, as it is told to; unless it is told so, it is a run on Modal
    (tests/seeds)."""
    result = own("run-basic", "--question", "Calculate factorial of 20", "--volume-name", "my-data",
                 "--full-output", "--model",
                 replay(repl("import math; SUBMIT(math.factorial(20))")), "--env", "local")
    assert result.status == 0 and result.json["answer"] == 2432902008176640000
    (run,) = own.lines("run")
    assert (run["limits"]["max_iterations"], run["limits"]["max_llm_calls"],
            run["limits"]["seconds"]) == (15, 30, 600)
    flags = ["--question", "?", "--full-output", "--model", replay(repl("SUBMIT(5)"))]
    assert own("run-basic", *flags, env={"DROSTE_ENVIRONMENT": "local"}).json["answer"] == 5
    nowhere = {"DROSTE_MODAL_PYTHON": "/nowhere/python3"}
    assert "bridge for modal: /nowhere" in str(own("run-basic", *flags, env=nowhere))


def test_a_refusal_names_the_setting(own):
    """on-close and sandbox are one thing that an environment may lack: the refusal has both."""
    refused(own("exec", "--on-close", "stop", "-c", "1"), 4, "--on-close")
    refused(own("exec", "--sandbox", "x", "-c", "1"), 4, "--sandbox")
    assert own("exec", "-c", "1").status == 0
