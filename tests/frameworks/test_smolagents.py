"""DrosteExecutor under smolagents' own CodeAgent, with a model that replies as the test says."""
import asyncio
import datetime
import io
import os

import pytest

smolagents = pytest.importorskip("smolagents", exc_type=ImportError)
from smolagents import ChatMessage, CodeAgent, FinalAnswerTool, Model, tool  # noqa: E402

from droste.integrations.smolagents import DrosteExecutor  # noqa: E402


class Replies(Model):
    """Replies with these codes, one after the other; keeps what it was asked."""

    def __init__(self, *codes):
        super().__init__()
        self.codes, self.asked = list(codes), []

    def generate(self, messages, **kwargs):
        self.asked.append(str(messages[-1].content))
        code = self.codes.pop(0)
        return ChatMessage(role="assistant", content="Thus:\n<code>\n%s\n</code>" % code)


@tool
def host_process(offset: int, note: str = "") -> str:
    """Returns the process id of the host and a note.

    Args:
        offset: Added to the id.
        note: Any text.
    """
    return "%d%s" % (os.getpid() + offset, note)


@pytest.fixture
def agent_of():
    """agent_of(codes…): an agent whose model replies with these; all are cleaned up."""
    agents = []

    def make(*codes, tools=(), executor=None, **more):
        agents.append(CodeAgent(tools=list(tools), model=Replies(*codes), verbosity_level=0,
                                executor=executor or DrosteExecutor(), **more))
        return agents[-1]
    yield make
    for agent in agents:
        agent.cleanup()


@pytest.fixture
def executor():
    made = DrosteExecutor()
    yield made
    made.cleanup()


def test_an_agent_keeps_variables_and_answers_with_a_value(agent_of):
    """Across steps; the answer has the type that it had in the sandbox."""
    agent = agent_of("import datetime\nday = datetime.date(2026, 1, 31)\nprint('day', day)",
                     "final_answer({'day': day, 'next': (1, 2)})")
    assert agent.run("When?") == {"day": datetime.date(2026, 1, 31), "next": (1, 2)}
    assert "day 2026-01-31" in agent.model.asked[1]


def test_tools_run_in_this_process_and_code_does_not(agent_of):
    """By position and by name, with a default that smolagents knows as nullable."""
    agent = agent_of("import os\nfinal_answer((host_process(1), host_process(offset=0, note='!'), "
                     "os.getppid(), os.path.exists(%r)))" % __file__, tools=[host_process])
    first, second, parent, seen = agent.run("Where?")
    assert (first, second) == (str(os.getpid() + 1), "%d!" % os.getpid())
    assert parent != os.getpid() and not seen


def test_what_a_failing_step_printed_reaches_the_model(agent_of):
    """With the traceback of the code's own line; the variables stay."""
    agent = agent_of("kept = 1\nprint('before')\n1 / 0", "final_answer(kept)")
    assert agent.run("Divide.") == 1
    assert "ZeroDivisionError" in agent.model.asked[1]
    step = agent.memory.steps[1]
    assert "before" in step.observations and "line 3" in str(step.error)


def test_arguments_of_a_run_are_variables(agent_of):
    agent = agent_of("final_answer([type(day).__name__, sorted(words)])")
    variables = {"day": datetime.date(2026, 1, 1), "words": {"b", "a"}}
    assert agent.run("Which?", additional_args=variables) == ["date", ["a", "b"]]


def test_an_argument_that_cannot_travel_is_refused_by_name(executor):
    with pytest.raises(Exception, match="file"):
        executor.send_variables({"file": io.StringIO()})
    executor.send_variables({"file": "text"})
    assert executor("file").output == "text"


def test_the_end_of_code_is_where_it_answers(agent_of):
    """`except Exception` around it does not hold it up, and nothing after it runs."""
    agent = agent_of("try:\n    final_answer(1)\nexcept Exception:\n    pass\nfinal_answer(2)")
    assert agent.run("One?") == 1


def test_a_name_that_code_takes_from_the_answer_comes_back(executor):
    executor.send_tools({"final_answer": FinalAnswerTool()})
    assert not executor("final_answer = 5").is_final_answer
    done = executor("final_answer(answer=6)")
    assert (done.output, done.is_final_answer) == (6, True)


def test_an_agents_own_answer_tool_gets_what_the_code_gave(executor):
    class Doubled(FinalAnswerTool):
        def forward(self, answer):
            return 2 * answer
    executor.send_tools({"final_answer": Doubled()})
    assert executor("final_answer(21)").output == 42
    with pytest.raises(Exception, match="final_answer"):
        executor("final_answer()")


def test_values_and_images_of_a_last_expression(executor):
    assert executor("[1, (2, 'x')]").output == [1, (2, "x")]
    assert executor("object").output == "<class 'object'>" and executor("None").output is None
    code = ("class Dot:\n    def _repr_png_(self):\n        import base64\n"
            "        return base64.b64decode(%r)\nDot()")
    assert executor(code % PIXEL).output.size == (1, 1)


PIXEL = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
         "rkJggg==")


def test_a_step_that_takes_too_long_keeps_its_variables(agent_of):
    agent = agent_of("x = 7\nwhile True: pass", "final_answer(x)",
                     executor=DrosteExecutor(execute_timeout=2, grace=60))
    assert agent.run("Loop.") == 7


def test_a_sandbox_that_died_is_replaced_and_said(executor):
    executor("x = 1")
    with pytest.raises(Exception, match="variables are gone"):
        executor("import os; os.kill(os.getpid(), 9)")
    assert executor("'x' in globals()").output is False


def test_long_output_is_cut_in_its_middle():
    executor = DrosteExecutor(max_print_outputs_length=100)
    logs = executor("print('a' * 1000); print('end')").logs
    executor.cleanup()
    assert len(logs) < 900 and logs.startswith("aaa") and logs.endswith("end\n")


def test_within_an_event_loop(agent_of):
    """As in a notebook, where run() is called while a loop runs."""
    agent = agent_of("final_answer(host_process(0))", tools=[host_process])

    async def main():
        return agent.run("Where?")
    assert asyncio.run(main()) == str(os.getpid())


def test_managed_agents_work_in_their_own_sandboxes(agent_of):
    helper = agent_of("secret = 5\nfinal_answer('five')", name="helper", description="Counts.")
    agent = agent_of("final_answer((helper('count'), 'secret' in globals()))",
                     managed_agents=[helper])
    answer, seen = agent.run("Ask.")
    assert "five" in answer and not seen


def test_the_example(run_example):
    assert run_example("smolagents_agent.py") == "510\n"
