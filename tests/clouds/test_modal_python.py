"""The Python package on --env modal: images of Modal's as objects. It runs in the environment that
has the SDK: so the bridge does too, without being told. (tests/seeds runs the pages' Modal
examples.)"""
import os
import subprocess

import pytest

import modal_fake

pytestmark = pytest.mark.skipif(modal_fake.missing() is not None, reason=str(modal_fake.missing()))


@pytest.fixture(scope="module")
def fake():
    one = modal_fake.Fake()
    yield one
    one.close()


def python(fake, code, place, **more):
    """What it prints, by the Python that has the SDK."""
    environment = {**os.environ, **fake.environment,
                   "PYTHONPATH": os.path.join(modal_fake.ROOT, "python"), "DROSTE_DATABASE": "none",
                   "DROSTE_HOME": str(place), "XDG_CONFIG_HOME": str(place), **more}
    environment.pop("DROSTE_MODAL_PYTHON")
    done = subprocess.run([modal_fake.PYTHON, "-c", code], env=environment, cwd=place,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


MODEL = "answer = lambda messages: '```repl\\nSUBMIT(answer=len(context))\\n```'\n"


def test_an_image_that_is_an_object_is_built_and_used(fake, tmp_path):
    """environment_kwargs={"image": modal.Image…}, which nobody has built."""
    code = MODEL + """
import droste, modal
image = modal.Image.debian_slim(python_version="3.11").pip_install("humanize")
rlm = droste.RLM(answer, environment="modal", environment_kwargs={"image": image, "app_name": "own", "timeout": 77})
done = rlm.run("how long?", "x" * 12)
print(done.answer, done.status)
"""
    assert python(fake, code, tmp_path) == "12 answered\n"
    made = fake.sandboxes()[-1]
    assert made["image"][-1].endswith("humanize") and made["definition"][
        "timeoutSecs"] == 77 and "own" in fake.apps()


def test_one_that_was_built_within_asyncio(fake, tmp_path):
    code = MODEL + """
import asyncio, droste, modal
async def main():
    image = modal.Image.debian_slim(python_version="3.12").pip_install("tabulate")
    await image.build.aio(await modal.App.lookup.aio("own", create_if_missing=True))
    async with droste.Interpreter(**{"env": "modal", "image": image.object_id}) as interp:
        print((await interp.execute("SUBMIT(answer=42)")).answer)
asyncio.run(main())
"""
    assert python(fake, code, tmp_path) == "42\n"
    assert fake.sandboxes()[-1]["image"][-1].endswith("tabulate")


def test_what_is_no_image_is_refused(fake, tmp_path):
    code = """
import droste
try:
    droste.RLM("m", environment="modal", environment_kwargs={"image": 3})
except droste.ArgumentError as e:
    print(e)
"""
    assert "modal.Image" in python(fake, code, tmp_path)


def test_the_parameters_of_modal_interpreter(fake, tmp_path):
    """As fleet-rlm has them; secrets are not put into a sandbox, and that is said."""
    code = """
import droste, droste.compat
droste.compat.activate()
from fleet_rlm import ModalInterpreter
with ModalInterpreter(timeout=99, idle_timeout=44, image_python_version="3.12", image_pip_packages=["attrs"], app_name="fleet") as interp:
    print(interp.execute("SUBMIT(answer=1)").answer)
try:
    ModalInterpreter(secrets=["LITELLM"])
except droste.UnsupportedError as e:
    print(e)
"""
    lines = python(fake, code, tmp_path).splitlines()
    assert lines[0] == "1" and "secrets" in lines[1]
    made = fake.sandboxes()[-1]
    assert (made["definition"]["timeoutSecs"], made["definition"]["idleTimeoutSecs"]) == (99, 44)
    assert made["image"][-1].endswith("attrs") and "fleet" in fake.apps()


def test_an_image_and_an_app_of_modals_own_reach_an_interpreter(fake, tmp_path):
    """ModalInterpreter(image=modal.Image…, app=modal.App…), beside which image_python_version and
    image_pip_packages do not count."""
    code = """
import droste.compat, modal
image = modal.Image.debian_slim(python_version="3.11").pip_install("colorama")
with droste.compat.ModalInterpreter(image=image, app=modal.App("of-mine"), image_pip_packages=["attrs"]) as interp:
    print(interp.execute("SUBMIT(answer=1)").answer)
with droste.compat.ModalInterpreter(app="of-mine-by-name") as interp:
    print(interp.execute("SUBMIT(answer=2)").answer)
"""
    assert python(fake, code, tmp_path) == "1\n2\n"
    assert {"of-mine", "of-mine-by-name"} <= set(fake.apps())
    assert fake.sandboxes()[-2]["image"][-1].endswith("colorama") and "pandas" in " ".join(
        fake.sandboxes()[-1]["image"])
