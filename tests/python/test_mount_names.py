"""Whose names the places in a sandbox have: Droste's, and another product's where a program for
that product asks."""
import pytest

from droste import Interpreter, RLM
from droste.compat import DaytonaInterpreter, ModalInterpreter

LOOK = ("import os\nSUBMIT(memory=MEMORY_ROOT, there=os.path.exists('/home/daytona'), "
        "names=os.listdir('/data'))")


@pytest.fixture(autouse=True)
def local(monkeypatch, tmp_path):
    """Programs for other environments run here, with volumes of their own."""
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    monkeypatch.setenv("DROSTE_VOLUME_ROOT", str(tmp_path / "volumes"))


def test_an_interpreter_has_drostes_names():
    """No path and no directory of another product's."""
    with Interpreter(volume_name="v") as interp:
        assert interp.execute(LOOK).fields == {"memory": "/data", "there": False, "names": []}


@pytest.mark.parametrize("kind", [ModalInterpreter, DaytonaInterpreter])
def test_interpreters_for_another_product_have_its_names(kind):
    """The paths that its pages name; and the volume is readable with Droste's names afterwards."""
    with kind(volume_name="v", async_execute=False) as interp:
        seen = interp.execute(LOOK).fields
        assert seen["memory"] == "/home/daytona/memory" and seen["there"] and {
            "artifacts", "buffers"} <= set(seen["names"])
        interp.execute("open('/home/daytona/memory/buffers/a', 'w').write('kept')")
    with Interpreter(volume_name="v") as interp:
        assert interp.execute("open('/data/buffers/a').read()").echo == "'kept'"


@pytest.mark.parametrize("environment, memory",
                         [("local", "/data"), (None, "/data"), ("daytona", "/home/daytona/memory")])
def test_a_run_has_the_names_of_the_environment_that_it_names(environment, memory):
    """Also where it runs elsewhere than the program says."""
    named = {} if environment is None else {"environment": environment}
    rlm = RLM(lambda messages: "```repl\nSUBMIT(MEMORY_ROOT)\n```", volume_name="v", **named)
    assert rlm.run("Where?").answer == memory
