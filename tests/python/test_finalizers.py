"""Sessions, forks and templates that the program forgets, and the garbage collector finds."""
import gc
import warnings

import pytest

import droste
from droste import _engine, Interpreter


def in_a_cycle(settings):
    """Only the collector can find this session."""
    interp = Interpreter(**settings)
    interp.start()
    interp.itself = interp


def of_a_template_in_a_cycle(settings):
    template = droste.Template(**settings)
    interp = Interpreter(template=template)
    interp.start()
    template.itself = interp.itself = interp


@pytest.mark.parametrize("forget", [in_a_cycle, of_a_template_in_a_cycle])
def test_the_engine_of_a_collected_session_works_in_the_next(forget):
    """Its callbacks are found: Python clears weak references to what is in a cycle before it runs
    finalizers, and the finalizer of the session gives the engine back."""
    droste.close_idle_engines()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        forget({"retries": 0})
        gc.collect()
    assert all(_engine.by_id(engine.id) is engine for engine in _engine._idle)
    with Interpreter(model=lambda messages: "yes", retries=0) as interp:
        assert interp.execute("llm_query('?')").echo == "'yes'"


def test_a_fork_collected_in_a_models_thread_does_not_wait_for_the_cell():
    """The cell waits for the model, and the model's thread may run the collector."""
    def model(messages):
        forks.clear()
        gc.collect()
        return "answered"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with Interpreter(model=model, retries=0) as interp:
            forks = [interp.fork()]
            result = interp.execute("llm_query('?')", timeout=60)
            assert result.echo == "'answered'", result
    assert [engine.id for engine in _engine._idle].count(interp._engine.id) == 1


def test_a_template_collected_in_a_models_thread_does_not_wait_for_the_cell():
    def model(messages):
        templates.clear()
        gc.collect()
        return "answered"

    with Interpreter(model=model, retries=0) as interp:
        templates = [interp.template()]
        result = interp.execute("llm_query('?')", timeout=60)
        assert result.echo == "'answered'", result
