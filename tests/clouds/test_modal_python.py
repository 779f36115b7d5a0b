"""The Python package on --env modal: images of Modal's as objects, and the pages' Modal examples unchanged. It runs in the
environment that has the SDK: so the bridge does too, without being told."""
import os
import subprocess
import sys

import pytest

import modal_fake

pytestmark = pytest.mark.skipif(modal_fake.missing() is not None, reason=str(modal_fake.missing()))
sys.path.insert(0, os.path.join(modal_fake.ROOT, "tests", "seeds"))

import blocks       # noqa: E402

PAGES = os.path.join(os.path.dirname(modal_fake.ROOT), "shared", "seeds")


@pytest.fixture(scope="module")
def fake():
    one = modal_fake.Fake()
    yield one
    one.close()


def python(fake, code, place, **more):
    """What it prints, by the Python that has the SDK."""
    environment = {**os.environ, **fake.environment, "PYTHONPATH": os.path.join(modal_fake.ROOT, "python"), "DROSTE_DATABASE": "none",
                   "DROSTE_HOME": str(place), "XDG_CONFIG_HOME": str(place), **more}
    environment.pop("DROSTE_MODAL_PYTHON")
    done = subprocess.run([modal_fake.PYTHON, "-c", code], env=environment, cwd=place, capture_output=True, text=True, timeout=120)
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
    assert made["image"][-1].endswith("humanize") and made["definition"]["timeoutSecs"] == 77 and "own" in fake.apps()


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
    said = python(fake, code, tmp_path).splitlines()
    assert said[0] == "1" and "secrets" in said[1]
    made = fake.sandboxes()[-1]
    assert (made["definition"]["timeoutSecs"], made["definition"]["idleTimeoutSecs"]) == (99, 44)
    assert made["image"][-1].endswith("attrs") and "fleet" in fake.apps()


def programs():
    """(page, number, code) of the two pages that are about Modal."""
    for page in ("000_4a02e47144fed90c.txt", "003_eec09ea4680a38fd.txt"):
        path = os.path.join(PAGES, page)
        if not os.path.exists(path):
            continue
        with open(path) as file:
            text = file.read()
        found = [(h, code) for h, language, code in blocks.fenced(text) if language == "python"] or list(blocks.flattened(text))
        for number, (_, code) in enumerate(found, 1):
            yield page[:3], number, code


PROGRAMS = list(programs())


def test_the_pages_are_there():
    if not PROGRAMS:
        pytest.skip("the folder shared/seeds is not beside this checkout")
    assert len(PROGRAMS) == 7


@pytest.mark.parametrize("page, number, code", PROGRAMS, ids=["%s-%d" % p[:2] for p in PROGRAMS])
def test_a_block_runs_unchanged(fake, tmp_path, page, number, code):
    """After droste.compat.activate(), in sandboxes of the fake; what a comment behind a print says is printed. Where a page makes an
    RLM and does no more with it, its model is asked for once."""
    if not fake.isolated:
        pytest.skip("only root can give the fake's sandboxes a /data")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "analysis.py").write_text("SUBMIT(total=sum(range(5)))\n")
    first = {"000": "from fleet_rlm import ModalInterpreter\n", "003": "from rlm import RLM\n"}[page]
    last = "\nprint(type(rlm).__module__)\n" if "rlm = RLM(" in code else ""
    before = len(fake.sandboxes())
    said = python(fake, "import droste.compat\ndroste.compat.activate()\n" + first + code + last, tmp_path, OPENAI_API_KEY="none")
    wanted = blocks.expected(code)
    assert [eval(line) for line in said.splitlines()[:len(wanted)]] == [eval(line) for line in wanted]
    assert last or len(fake.sandboxes()) > before
    assert not last or said.splitlines()[-1] == "droste.rlm"
