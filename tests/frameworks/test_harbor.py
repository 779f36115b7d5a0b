"""Harbor's own trials with droste's environment: an oracle solves a task in the sandbox, and the
verifier's tests judge it there. Harbor needs Python 3.12."""
import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("harbor", exc_type=ImportError)
from harbor.models.task.config import EnvironmentConfig  # noqa: E402
from harbor.models.trial.paths import TrialPaths  # noqa: E402

from droste.integrations.harbor import DrosteEnvironment  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TASK = """version = "1.0"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
allow_internet = false
memory_mb = 512
"""
SOLVE = "#!/bin/bash\necho 42 > /home/user/answer.txt\n"
TEST = """#!/bin/bash
if [ "$(cat /home/user/answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def make(tmp_path, settings=None, **config):
    place = tmp_path / "environment"
    place.mkdir(exist_ok=True)
    paths = TrialPaths(trial_dir=tmp_path / "trial")
    paths.mkdir()
    return DrosteEnvironment(place, "task", "task__1__env", paths,
                             EnvironmentConfig(allow_internet=False, **config), **(settings or {}))


def in_environment(tmp_path, use, **config):
    async def main():
        environment = make(tmp_path, **config)
        await environment.start(False)
        try:
            return await asyncio.wait_for(use(environment), 60)
        finally:
            await environment.stop(True)
    return asyncio.run(main())


def test_commands_have_their_environment_output_and_status(tmp_path):
    async def use(environment):
        done = await environment.exec("echo $A $B; pwd; echo bad >&2; exit 3", cwd="/tmp",
                                      env={"B": "own"})
        assert (done.return_code, done.stdout, done.stderr) == (3, "task own\n/tmp\n", "bad\n")
        with pytest.raises(RuntimeError, match="timed out"):
            await environment.exec("sleep 60", timeout_sec=1)
        with pytest.raises(RuntimeError, match="one user"):
            await environment.exec("true", user="agent")
        assert (await environment.exec("cat /proc/net/dev | wc -l")).stdout.strip() == "3"
    in_environment(tmp_path, use, env={"A": "task"})


def test_files_and_directories_go_in_and_come_out(tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "bytes").write_bytes(bytes(range(256)))
    (source / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "run").chmod(0o755)

    async def use(environment):
        await environment.upload_dir(source, "/work/new")
        assert (await environment.exec("/work/new/run")).stdout == "ran\n"
        await environment.upload_file(source / "run", "/other/place")
        assert await environment.is_dir("/other") and not await environment.is_dir("/none")
        await environment.exec("ln -s /etc/passwd /work/new/link; mkfifo /work/new/pipe")
        await environment.exec("rm /work/new/link")
        await environment.download_dir("/work/new", back)
        await environment.download_file("/other/place", back / "place")
    in_environment(tmp_path, use)
    assert sorted(p.name for p in back.rglob("*")) == ["bytes", "deep", "place", "run"]
    assert (back / "deep" / "bytes").read_bytes() == bytes(range(256))


def test_a_dockerfile_is_not_ignored_unasked(tmp_path):
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM debian\n")
    with pytest.raises(FileNotFoundError, match="does not build Dockerfile"):
        make(tmp_path)
    assert make(tmp_path, {"ignore_dockerfile": True}).type() == "droste"


@pytest.mark.parametrize("solution, reward", [(SOLVE, 1.0), ("#!/bin/bash\ntrue\n", 0.0)])
def test_a_trial_of_harbor_is_solved_and_judged(tmp_path, solution, reward):
    task = tmp_path / "task"
    for name, text in (("task.toml", TASK), ("instruction.md", "Write 42."),
                       ("solution/solve.sh", solution), ("tests/test.sh", TEST),
                       ("environment/note.txt", "")):
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
        if name.endswith(".sh"):
            (task / name).chmod(0o755)
    command = shutil.which("harbor", path=os.path.dirname(sys.executable))
    done = subprocess.run(
        [command, "run", "-p", str(task), "--agent", "oracle", "-o", str(tmp_path / "jobs"),
         "--environment-import-path", "droste.integrations.harbor:DrosteEnvironment"],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")})
    results = [json.loads(path.read_text()) for path in Path(tmp_path, "jobs").rglob("result.json")]
    judged = [one["verifier_result"]["rewards"] for one in results if one.get("verifier_result")]
    assert judged == [{"reward": reward}], done.stdout + done.stderr + str(results)
