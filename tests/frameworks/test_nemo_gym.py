"""DrosteProvider under NeMo Gym's own sandbox API and registry."""
import asyncio

import pytest

nemo = pytest.importorskip("nemo_gym.sandbox", exc_type=ImportError)

from droste.integrations.nemo_gym import DrosteProvider  # noqa: E402

SPEC = {"env": {"A": "1"}, "workdir": "/work/deep", "files": {"/work/deep/a.txt": "héllo"}}


@pytest.fixture(scope="module", autouse=True)
def registered():
    nemo.register_provider("droste", DrosteProvider)


def in_box(use, settings=None, **spec):
    async def main():
        async with nemo.AsyncSandbox({"droste": settings}, nemo.SandboxSpec(**spec)) as box:
            await box.start()
            return await use(box)
    return asyncio.run(main())


def test_commands_have_the_directory_the_variables_and_the_files(tmp_path):
    async def use(box):
        done = await box.exec("cat a.txt; echo $A$B >&2; pwd; exit 3", env={"B": "2"})
        assert (done.stdout, done.stderr) == ("héllo/work/deep\n", "12\n")
        assert (done.return_code, done.error_type) == (3, None)
        assert await box.status() == nemo.SandboxStatus.RUNNING
        (tmp_path / "up").write_bytes(b"\0\xff")
        await box.upload(tmp_path / "up", "/data/new/x")
        await box.download("/data/new/x", tmp_path / "down" / "x")
        assert (tmp_path / "down" / "x").read_bytes() == b"\0\xff"
    in_box(use, **SPEC)


def test_a_command_that_exceeds_its_time_is_killed():
    async def use(box):
        done = await box.exec("echo begun; sleep 100", timeout_s=0.5)
        assert (done.return_code, done.error_type) == (125, "timeout")
        assert (await box.exec("echo alive")).stdout == "alive\n"
    in_box(use)


def test_the_limits_are_those_of_the_specification():
    async def use(box):
        done = await box.exec("python3 -c 'x = bytearray(900 << 20)'")
        assert done.return_code != 0 or done.error_type
    in_box(use, resources={"memory_mib": 300})


def test_a_sandbox_ends_with_its_time_and_with_the_provider():
    async def use(box):
        for _ in range(600):
            if await box.status() == nemo.SandboxStatus.STOPPED:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it still runs")
    in_box(use, ttl_s=0.2)


@pytest.mark.parametrize("spec, words", [
    ({"ports": [80]}, "no ports"), ({"resources": {"gpu": 1}}, "no resources.gpu"),
    ({"entrypoint": ["x"]}, "no entrypoint"), ({"image": "absent:1"}, "absent")])
def test_what_it_does_not_have_is_refused_by_name(spec, words):
    async def use(box):
        raise AssertionError("it started")
    with pytest.raises(nemo.SandboxCreateError, match=words):
        in_box(use, **spec)


def test_another_user_is_refused_and_its_own_are_not():
    async def use(box):
        assert (await box.exec("echo x", user="root")).stdout == "x\n"
        with pytest.raises(ValueError, match="one user"):
            await box.exec("echo x", user="postgres")
    in_box(use)


def test_the_example_runs(run_example):
    assert "the total is 303" in run_example("nemo_gym_sandbox.py")
