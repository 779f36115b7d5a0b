"""Programs for alexzhang13/rlm and agentic-codebase-navigator, with their own imports and
arguments: written here, in the way of their published examples, against a server that speaks
OpenAI's protocol."""
import asyncio
import json
import socket
import subprocess
import sys
import textwrap

import pytest

import droste
import droste.compat


@pytest.fixture(autouse=True)
def peers():
    """The peers' names, for one test."""
    droste.compat.activate()
    yield
    droste.compat.deactivate()


def repl(code):
    return "Now.\n```repl\n%s\n```" % code


def backend(server, model="scripted", **more):
    return {"backend": "openai", "backend_kwargs":
            {"model_name": model, "api_key": "k", "base_url": server.url, **more}}


READY = repl("answer['content'] = %s\nanswer['ready'] = True")


# -- rlm: RLM and what it tells

def test_a_completion_has_rlms_shape(serve):
    """Its model is named as the program names it; its usage is an object with methods, its metadata
    None without a logger."""
    from rlm import RLM
    server = serve(script=[repl("print(len(context))"), READY % "42"])
    result = RLM(environment="local", environment_kwargs={}, max_iterations=5,
                 **backend(server)).completion("How long am I?")
    assert (result.response, result.root_model, result.prompt,
            result.metadata) == ("42", "scripted", "How long am I?", None)
    used = result.usage_summary
    assert list(used.model_usage_summaries) == ["scripted"] and used.model_usage_summaries[
        "scripted"].total_calls == 2
    assert used.total_input_tokens == used.model_usage_summaries[
        "scripted"].total_input_tokens > 0 < used.total_output_tokens
    assert result.execution_time > 0 and result.to_dict()["usage_summary"] == used.to_dict()
    from rlm.core.types import UsageSummary
    assert UsageSummary.from_dict(used.to_dict()) == used


def test_a_loggers_trajectory_is_the_metadata(serve, tmp_path):
    """Each turn: what the model was told and said, its code and what that came to; the same lines
    are in the file."""
    from rlm import RLM
    from rlm.logger import RLMLogger
    server = serve(script=[repl("print('seen', len(context)); n = 5") + "\n" + repl("1 / 0"),
                           READY % "n"])
    logger = RLMLogger(log_dir=str(tmp_path / "logs"), file_name="mine")
    rlm = RLM(logger=logger, max_iterations=4, **backend(server))
    found = rlm.completion("the context").metadata
    assert found["run_metadata"]["root_model"] == "scripted" and found["run_metadata"][
        "max_iterations"] == 4
    assert "k" not in found["run_metadata"]["backend_kwargs"].values() and found["run_metadata"][
        "environment_type"] == "local"
    first, second = found["iterations"]
    assert set(first) == {"type", "iteration", "timestamp", "prompt", "response", "code_blocks",
                          "final_answer", "iteration_time"}
    assert [first["iteration"], second["iteration"]] == [1, 2] and first[
        "final_answer"] is None and second["final_answer"] == "5"
    assert first["prompt"][0]["role"] == "system" and len(second["prompt"]) > len(first["prompt"])
    assert second["prompt"][:len(first["prompt"])] == first["prompt"] and "seen 11" in json.dumps(
        second["prompt"][-2:])
    shown, failed = [block["result"] for block in first["code_blocks"]]
    assert shown["stdout"] == "seen 11\n" and shown["stderr"] == "" and shown["locals"][
        "n"] == "5" and shown["rlm_calls"] == []
    assert "ZeroDivisionError" in failed["stderr"] and second["code_blocks"][0]["result"][
        "final_answer"] == "5"
    lines = [json.loads(line) for line in open(logger.log_file_path)]
    assert [line["type"] for line in lines] == ["metadata", "iteration",
                                                "iteration"] and lines[1:] == found["iterations"]
    assert "mine_" in logger.log_file_path and logger.iteration_count == 2


def test_a_logger_begins_anew_with_each_completion(serve):
    """Its iterations are those of the last one."""
    from rlm import RLM
    from rlm.logger import RLMLogger
    server, logger = serve(script=[READY % "1", READY % "2"]), RLMLogger()
    rlm = RLM(logger=logger, **backend(server))
    first, second = rlm.completion("a").metadata, rlm.completion("b").metadata
    assert [len(m["iterations"]) for m in (first,
                                           second)] == [1, 1] and logger.get_trajectory() == second
    assert first["iterations"][0]["final_answer"] == "1"


SUBCALLS = [
    {"model": "root", "content":
     repl("leaf = llm_query('a leaf')\nkids = rlm_query_batched(['task one', 'task two'])\n"
                   "print(leaf, kids)"), "contains": "Turn 1"},
    {"model": "root", "content": READY % "kids"},
    {"model": "sub", "content": "leaf said", "contains": "a leaf"},
    {"model": "sub", "content": READY % "'one'", "contains": "task one"},
    {"model": "sub", "content": READY % "'two'", "contains": "task two"},
]


def run_subcalls(serve, **more):
    from rlm import RLM
    server = serve(script=SUBCALLS)
    other = {"model_name": "scripted-sub", "api_key": "k", "base_url": server.url}
    return RLM(other_backends=["openai"], other_backend_kwargs=[other], max_depth=2,
               max_iterations=4,
               **backend(server, "scripted-root"),
               **more).completion("the context", root_prompt="do it")


def test_the_metadata_of_children_is_nested(serve):
    """A call of a model is a leaf; a child run has a trajectory of its own, in the call that began
    it."""
    from rlm.logger import RLMLogger
    result = run_subcalls(serve, logger=RLMLogger())
    assert result.answer == ["one", "two"], result.error
    calls = result.metadata["iterations"][0]["code_blocks"][0]["result"]["rlm_calls"]
    assert [(call["prompt"], call["response"], call["root_model"]) for call in calls] == [
        ("a leaf", "leaf said", "scripted-sub"), ("task one", "one", "scripted-sub"),
        ("task two", "two", "scripted-sub")]
    assert "metadata" not in calls[0] and all(call["execution_time"] > 0 for call in calls)
    for call in calls[1:]:
        turns = call["metadata"]["iterations"]
        assert len(turns) == 1 and call["prompt"] in json.dumps(
            turns[0]["prompt"]) and "answer" in turns[0]["code_blocks"][0]["code"]
        assert call["usage_summary"]["model_usage_summaries"]["scripted-sub"]["total_calls"] == 1
        assert call["metadata"]["run_metadata"]["root_model"] == "scripted-sub"
    assert result.usage_summary.model_usage_summaries["scripted-sub"].total_calls == 3


def test_callbacks_get_children_and_turns(serve):
    """With depth, model, a preview, seconds and the error; one that raises does not end the run."""
    events = []

    def broken(*arguments):
        events.append(("turn over", *arguments[:2]))
        raise ValueError("mine")

    result = run_subcalls(serve, on_subcall_start=lambda *a: events.append(("begins", *a)),
                          on_subcall_complete=lambda depth, model, seconds,
                          error: events.append(("ends", depth, model, seconds > 0, error)),
                          on_iteration_start=lambda *a: events.append(("turn", *a)),
                          on_iteration_complete=broken)
    assert result.answer == ["one", "two"]
    assert sorted(t for t in events if t[0] == "begins") == [
        ("begins", 1, "scripted-sub", "task one"), ("begins", 1, "scripted-sub", "task two")]
    assert [t for t in events if t[0] == "ends"] == [("ends", 1, "scripted-sub", True, None)] * 2
    assert [t for t in events if t[:2]
            == ("turn", 0)] == [("turn", 0, 1), ("turn", 0, 2)] and ("turn over", 0, 2) in events
    assert events.index(("begins", 1, "scripted-sub",
                         "task one")) < events.index(("ends", 1, "scripted-sub", True, None))


def test_a_child_that_fails_is_reported_with_its_error(serve):
    """on_subcall_complete has why; the code's call has it too, and the run goes on."""
    from rlm import RLM
    from rlm.logger import RLMLogger
    server, events = serve(script=[
        {"model": "root", "content": repl(
        "try: rlm_query('task')\nexcept LLMError as e: print('failed', e)"), "contains": "Turn 1"},
        {"model": "root", "content": READY % "1"},
        {"model": "sub", "content": "", "status": 400}]), []
    other = {"model_name": "scripted-sub", "api_key": "k", "base_url": server.url}
    result = RLM(other_backends=["openai"], other_backend_kwargs=[other], max_depth=2,
                 logger=RLMLogger(),
                 on_subcall_complete=lambda *a: events.append(a),
                 **backend(server, "scripted-root")).completion("x", root_prompt="q")
    (call,) = result.metadata["iterations"][0]["code_blocks"][0]["result"]["rlm_calls"]
    assert result.answer == 1 and len(events) == 1 and events[0][:2] == (
        1, "scripted-sub") and "400" in events[0][3]
    assert call["error"] == events[0][3] and call["response"].startswith("Error: ")


def test_sampling_arguments_are_in_the_requests(serve):
    """sampling_args for the root, sub_sampling_args for what its code asks; backend_kwargs may have
    them as well."""
    from rlm import RLM
    server = serve(script=[repl("SUBMIT(llm_query('sub'))"), "SUB", READY % "1"])
    rlm = RLM(sampling_args={"top_p": 0.5, "max_tokens": 33},
              sub_sampling_args={"temperature": 0.75, "max_tokens": 9},
              **backend(server, sampling_args={"temperature": 0.25, "seed": 3}))

    def last_request():
        body = server.stats()["last"]["body"]
        return [body.get(name) for name in ("temperature", "top_p", "seed", "max_tokens")]

    assert rlm.completion("c", root_prompt="q").answer == "SUB"
    assert last_request() == [0.75, 0.5, 3, 9]
    assert rlm.completion("c", root_prompt="q").answer == 1
    assert last_request() == [0.25, 0.5, 3, 33]


def test_the_roots_sampling_is_not_another_models(serve):
    """As in rlm: other_backends has what it is given itself, and nothing else."""
    from rlm import RLM
    server = serve(script=[{"model": "root", "content": repl("x = llm_query('sub')\nSUBMIT(x)")},
                           {"model": "sub", "content": "SUB"}])
    other = {"model_name": "scripted-sub", "api_key": "k", "base_url": server.url}
    rlm = RLM(sampling_args={"temperature": 0.5, "max_tokens": 40}, other_backends=["openai"],
              other_backend_kwargs=[other],
              **backend(server, "scripted-root"))
    assert rlm.completion("q").response == "SUB"
    body = server.stats()["last"]["body"]
    assert body["model"] == "scripted-sub" and not {"temperature", "max_tokens"} & set(body)


def test_a_parameter_that_the_provider_has_not_is_refused_by_name(serve):
    """Before anything is asked; a model that is a function takes none."""
    from rlm import RLM
    with pytest.raises(droste.Error, match="Anthropic has no parameter 'seed'"):
        RLM(backend="anthropic", backend_kwargs={"model_name": "m", "api_key": "k"},
            sampling_args={"seed": 1}).completion("q")
    with pytest.raises(droste.Error, match="a model that is a function"):
        droste.RLM(lambda messages: "x", sampling_args={"seed": 1}).run("q")


# -- persistent

def test_a_persistent_rlm_keeps_its_session(serve):
    """Variables stay; later prompts are context_1, context_2; `close` ends the session, after which
    there is a fresh one."""
    from rlm import RLM
    server = serve(script=[READY % "len(context)",
                           repl("kept = context_0 + context_1") + "\n" + READY % "kept",
                           READY % "[kept, context_2, context]", READY % "'kept' in globals()"])
    with RLM(persistent=True, **backend(server)) as rlm:
        assert rlm.completion("first").response == "5"
        assert rlm.completion(" second").response == "first second"
        assert rlm.completion("third").answer == ["first second", "third", "first"]
        rlm.close()
        assert rlm.completion("fourth").answer is False


def test_a_persistent_rlm_keeps_the_conversation(serve):
    """`history_N` are the messages of the Nth completion, its code and output among them, and only
    its; `history` has the questions and answers of all. What the code binds to them does not
    stay."""
    from rlm import RLM
    server = serve(script=[repl("print('found it')") + "\n" + READY % "1",
                           repl("n = len(history_0); history_0 = None") + "\n" + READY % "n",
                           READY
                           % "[history_0, history_1, [m['content'] for m in history], 'history_2' "
                             "in globals()]",
                           READY % "'history_0' in globals()"])
    with RLM(persistent=True, **backend(server)) as rlm:
        rlm.completion("first")
        rlm.completion("second")
        zero, one, transcript, more = rlm.completion("third").answer
        rlm.close()
        assert rlm.completion("fresh").answer is False
    assert [m["role"] for m in zero] == ["user", "assistant"] and "first" in zero[0][
        "content"] and "found it" in zero[1]["content"]
    assert [m["role"] for m in one] == ["user", "assistant"] and "second" in one[0][
        "content"] and "first" not in str(one)
    assert transcript == ["first", "1", "second", "2"] and more is False


def test_a_new_sandbox_has_the_conversation(serve):
    """Where the code ends its sandbox, the next one has `history_N` of all completions before."""
    from rlm import RLM
    server = serve(script=[READY % "1", READY % "2",
                           repl("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
                           READY % "[len(history_0), len(history_1), 'os' in globals()]"])
    with RLM(persistent=True, **backend(server)) as rlm:
        for prompt in ("first", "second"):
            rlm.completion(prompt)
        assert rlm.completion("third").answer == [2, 2, False]


def test_a_persistent_rlm_keeps_its_tools(serve):
    """Functions of the program are called in each completion, and a logger has the turns of each;
    one question at a time."""
    from rlm import RLM
    from rlm.logger import RLMLogger
    server, called = serve(script=[READY % "twice(%d)" % n for n in (1, 2, 3)]), []

    def twice(n: int) -> int:
        called.append(n)
        return 2 * n

    with RLM(persistent=True, custom_tools={"twice": twice}, logger=RLMLogger(),
             **backend(server)) as rlm:
        found = [rlm.completion("context %d" % n) for n in range(3)]
    assert [done.answer for done in found] == [2, 4, 6] and called == [1, 2, 3]
    assert [len(done.metadata["iterations"]) for done in found] == [1, 1, 1]
    assert len(found[2].metadata["iterations"][0]["prompt"]) > len(
        found[0].metadata["iterations"][0]["prompt"])


def test_a_conversation_takes_one_question_at_a_time():
    """The second is refused by name, and the first goes on."""
    from rlm import RLM
    inside = []

    def model(messages):
        try:
            rlm.completion("second")
        except droste.Error as e:
            inside.append(str(e))
        return READY % "1"

    with RLM(model, persistent=True) as rlm:
        assert rlm.completion("first").answer == 1 and len(inside) == 1 and "is active" in inside[0]
        assert rlm.completion("third").answer == 1


def test_a_persistent_rlm_that_is_dropped_says_so(serve):
    """Its session ends with it."""
    from rlm import RLM
    rlm = RLM(lambda messages: READY % "1", persistent=True)
    rlm.completion("q")
    with pytest.warns(ResourceWarning, match="was not closed"):
        del rlm


def test_without_it_each_completion_has_its_own_session(serve):
    """The twin."""
    from rlm import RLM
    server = serve(script=[repl("kept = 1") + "\n" + READY % "kept", READY % "'kept' in globals()"])
    with RLM(**backend(server)) as rlm:
        assert rlm.completion("first").answer == 1 and rlm.completion("second").answer is False


def test_a_persistent_rlm_works_within_asyncio(serve):
    """acompletion goes on with the same session, and the loop is not held up."""
    from rlm import RLM
    server = serve(script=[repl("kept = 7") + "\n" + READY % "1", READY % "kept"])

    async def main():
        with RLM(persistent=True, **backend(server)) as rlm:
            await rlm.acompletion("first")
            return (await rlm.acompletion("second")).answer

    assert asyncio.run(main()) == 7


def test_persistence_elsewhere_is_refused_by_name():
    """As in rlm, a provider's sandbox cannot be kept this way."""
    from rlm import RLM
    with pytest.raises(ValueError,
                       match="persistent=True is not supported for the environment 'modal'"):
        RLM(environment="modal", persistent=True, backend_kwargs={"model_name": "m"})


# -- rlm: clients, handlers, environments

def test_a_client_asks_a_model_by_itself(serve):
    """A text or a list of messages; usage is counted, sampling is sent, and a failure is an
    exception."""
    from rlm.clients import get_client
    from rlm.clients.openai import OpenAIClient
    server = serve(key="k", script=["one", {"content": "two", "contains": "again"}])
    client = OpenAIClient(api_key="k", model_name="scripted", base_url=server.url,
                          sampling_args={"temperature": 0.5})
    assert client.completion("hello") == "one" and server.stats()["last"]["body"][
        "temperature"] == 0.5
    assert asyncio.run(client.acompletion([{"role": "system", "content": "s"},
                                           {"role": "user", "content": "again"}])) == "two"
    assert [m["role"] for m in server.stats()["last"]["body"]["messages"]] == ["system", "user"]
    assert client.get_usage_summary().model_usage_summaries["scripted"].total_calls == 2
    assert (client.get_last_usage().total_calls == 1
            and client.get_last_usage().total_output_tokens > 0)
    bad = get_client("openai", {"api_key": "wrong", "model_name": "scripted",
                                "base_url": server.url})
    with pytest.raises(droste.Error, match="401|key"):
        bad.completion("hello")
    with pytest.raises(ValueError, match="Unknown backend: bedrock"):
        get_client("bedrock", {})


def own_client():
    """A client that a program writes."""
    from rlm.clients.base_lm import BaseLM
    from rlm.core.types import ModelUsageSummary, UsageSummary

    class Own(BaseLM):
        def __init__(self):
            super().__init__(model_name="own")

        def completion(self, prompt):
            if prompt == "fail":
                raise ValueError("no")
            return "own: %s" % prompt

        async def acompletion(self, prompt):
            return self.completion(prompt)

        def get_usage_summary(self):
            return UsageSummary({"own": self.get_last_usage()})

        def get_last_usage(self):
            return ModelUsageSummary(1, 2, 3)

    return Own()


def test_an_environment_asks_the_handler_of_its_address():
    """The code's llm_query goes to the program's client; what it asked is in the result, failures
    are texts as in rlm."""
    from rlm.core.lm_handler import LMHandler
    from rlm.environments.local_repl import LocalREPL
    with LMHandler(client=own_client()) as handler:
        assert handler.address == (handler.host, handler.port) and handler.port > 0
        with LocalREPL(lm_handler_address=handler.address, context_payload="the context",
                       setup_code="secret = 7") as env:
            result = env.execute_code(
                "r = llm_query('hi')\nmany = llm_query_batched(['a', 'fail'])\nprint(r, context, "
                "secret)")
            assert (result.stdout == "own: hi the context 7\n" and result.stderr == ""
                    and result.execution_time > 0)
            assert env.locals["r"] == "own: hi" and env.locals["many"] == [
                "own: a", "Error: llm() call failed - no"]
            assert [(c.root_model, c.response)
                    for c in result.rlm_calls] == [("own", "own: hi"), ("own", "own: a")]
            assert result.rlm_calls[0].usage_summary.total_input_tokens == 2
        assert handler.get_usage_summary().model_usage_summaries["own"].total_calls == 1
    with LocalREPL() as env:
        assert env.execute_code(
            "print(llm_query('hi'))").stdout == "Error: No LM handler configured\n"


def test_an_environment_says_what_code_came_to():
    """Locals as JSON has them, else their repr; the answer; errors at the end of stderr. After
    cleanup nothing is there."""
    from rlm.environments import get_environment
    env = get_environment("local", {"context_payload": {"a": [1]}})
    assert env.execute_code("x = context['a']; f = lambda: 1").locals["x"] == [
        1] and "lambda" in env.locals["f"]
    assert "ZeroDivisionError" in env.execute_code("1 / 0").stderr
    result = env.execute_code("answer['content'] = 42\nanswer['ready'] = True")
    assert result.final_answer == "42" and env.execute_code("x").final_answer is None
    assert env.add_context("more") == 1 and env.get_context_count() == 2 and env.locals[
        "context_1"] == "more"
    assert env.add_history([{"role": "user", "content": "q"}]) == 0 and env.get_history_count() == 1
    assert env.execute_code(
        "print(history[0]['content'], history_0 == history, "
        "context is not None)").stdout == "q True True\n"
    env.cleanup()
    assert env.locals == {}
    with pytest.raises(RuntimeError, match="cleanup"):
        env.execute_code("1")


def test_an_environment_restores_what_code_overwrites():
    """After each cell, as rlm does: contexts, also when there are several, functions and tools. The
    code's own names stay."""
    from rlm.environments import LocalREPL
    with LocalREPL(context_payload={"a": [1]}, custom_tools={"twice": lambda n: 2 * n}) as env:
        env.execute_code(
            "kept = context; llm_query = SHOW_VARS = twice = context = context_0 = answer = own = "
            "5")
        look = ("print(context is kept, context_0, llm_query('hi'), SHOW_VARS() != 5, twice(4), "
                "type(answer).__name__, own)")
        assert env.execute_code(
            look).stdout == "True {'a': [1]} Error: No LM handler configured True 8 dict 5\n"
        assert env.add_context("more") == 1
        assert "ZeroDivisionError" in env.execute_code("context = context_1 = 5; 1 / 0").stderr
        assert env.execute_code(
            "print(context is kept, context_1)").stdout == "True more\n" and env.locals["own"] == 5


def test_an_environment_has_custom_tools_and_children():
    """Functions of the program, values, and a subcall_fn behind rlm_query, several at once."""
    from rlm.core.types import RLMChatCompletion, UsageSummary
    from rlm.environments import LocalREPL

    def child(prompt, model=None):
        return RLMChatCompletion(model or "child", prompt, "child of %s" % prompt,
                                 UsageSummary(model_usage_summaries={}), 0.0)

    tools = {"twice": {"tool": lambda n: 2 * n, "description": "Doubles."}, "RATE": 3}
    with LocalREPL(custom_tools=tools, subcall_fn=child) as env:
        result = env.execute_code(
            "print(twice(RATE), rlm_query('a', model='m'), rlm_query_batched(['b', 'c']))")
        assert (result.stdout == "6 child of a ['child of b', 'child of c']\n"
                and result.stderr == "")
        assert sorted(c.root_model for c in result.rlm_calls) == ["child", "child", "m"]
    with pytest.raises(ValueError,
                       match=r"cannot override reserved REPL functions: \['llm_query'\]"):
        LocalREPL(custom_tools={"llm_query": len})


def test_the_handlers_protocol_is_rlms():
    """Four bytes of length and JSON; what makes no sense is an error, and the next request is
    answered."""
    from rlm.core.comms_utils import (LMRequest, LMResponse, send_lm_request,
                                      send_lm_request_batched, socket_recv, socket_send)
    from rlm.core.lm_handler import LMHandler
    with LMHandler(own_client()) as handler:
        for nonsense in (["list"], {"model": "own"}):
            with socket.create_connection(handler.address) as connection:
                socket_send(connection, nonsense)
                assert socket_recv(connection)["error"]
        with socket.create_connection(handler.address) as connection:
            connection.sendall(b"\xff\xff\xff\xff{}")
            assert "is more than" in socket_recv(connection)["error"]
        reply = send_lm_request(handler.address, LMRequest(prompt="hi"))
        assert reply.success and reply.chat_completion.response == "own: hi"
        assert [t.success for t in send_lm_request_batched(handler.address,
                                                           ["a", "fail"])] == [True, False]
        address = handler.address
    assert not send_lm_request(address, LMRequest(prompt="hi"), timeout=5).success
    assert LMResponse.from_dict(LMResponse(error="e").to_dict()).error == "e"


def test_what_droste_has_not_is_refused_by_name():
    """When it is used, or when it is looked for."""
    import rlm
    from rlm.environments import IPythonREPL
    from rlm.logger import VerbosePrinter
    for kind, words in ((IPythonREPL, "Droste has no IPythonREPL"),
                        (VerbosePrinter, "Droste has no VerbosePrinter"),
                        (rlm.DefaultStoppingPolicy, "max_iterations")):
        with pytest.raises(NotImplementedError, match=words):
            kind()
    with pytest.raises(ImportError, match="parse_nothing"):
        from rlm.core.types import parse_nothing  # noqa: F401
    with pytest.raises(AttributeError, match="Droste has no rlm.nothing"):
        rlm.nothing
    with pytest.raises(ModuleNotFoundError, match="rlm.domain.relay"):
        import rlm.domain.relay  # noqa: F401


def test_exceptions_have_rlms_attributes():
    """By both of the names that programs import them by."""
    import rlm
    from rlm.utils import exceptions
    assert rlm.TimeoutExceededError is exceptions.TimeoutExceededError
    late = exceptions.TimeoutExceededError(elapsed=2.0, timeout=1.0, partial_answer="part")
    assert (late.elapsed, late.timeout,
            late.partial_answer) == (2.0, 1.0, "part") and "2.0 s of 1.0 s" in str(late)
    assert exceptions.BudgetExceededError(2, 1).spent == 2 and exceptions.CancellationError(
        "p").partial_answer == "p"
    assert exceptions.TokenLimitExceededError(5, 4).token_limit == 4
    assert exceptions.ErrorThresholdExceededError(3, 3, last_error="x").last_error == "x"


# -- navigator

def test_a_scripted_model_answers(serve):
    """Its reply's FINAL_VAR is the answer; usage is by the adapter's name."""
    from rlm import create_rlm
    from rlm.adapters.llm import MockLLMAdapter
    rlm = create_rlm(MockLLMAdapter(model="test", script=[
        "```repl\nx = 6 * 7\n```\nFINAL_VAR('x')"]), environment="local",
                     max_iterations=2)
    result = rlm.completion("a prompt")
    assert (result.response == "42" and result.root_model == "test"
            and result.usage_summary.model_usage_summaries["test"].total_calls == 1)
    assert asyncio.run(create_rlm(MockLLMAdapter(script=["FINAL(done)"])).acompletion(
        "q")).response == "done"


def test_a_call_goes_to_the_model_that_it_names():
    """other_llms by their names; without a name the first one answers; a name that is none's is an
    error of the call."""
    from rlm import create_rlm
    from rlm.adapters.llm.mock import MockLLMAdapter
    root = repl("a = llm_query('x', model='sub')\nb = llm_query('y')\n"
                "try: llm_query('z', model='nobody')\n"
                "except Exception as e: print(e)") + "\nFINAL_VAR('a')"
    seen = []

    class Own:
        model_name = "own"

        def complete(self, request):
            from rlm.domain.models import ChatCompletion, UsageSummary
            seen.append(request.prompt)
            return ChatCompletion("own", request.prompt, root if isinstance(request.prompt, list)
                                  else "root said", UsageSummary(), 0.0)

    result = create_rlm(Own(), other_llms=[MockLLMAdapter(model="sub", script=["sub said"])],
                        max_iterations=3).completion("q")
    assert result.response == "sub said" and "y" in seen
    used = result.usage_summary.model_usage_summaries
    assert used["sub"].total_calls == 1 and used["own"].total_calls == 2
    with pytest.raises(Exception, match="different names"):
        create_rlm(MockLLMAdapter(), other_llms=[MockLLMAdapter()])


def test_agent_mode_tools_calls_functions_of_the_program():
    """What the model asks for by function calling is called, and its text is the answer then."""
    from rlm import create_rlm
    from rlm.adapters.llm import MockLLMAdapter
    from rlm.adapters.tools import ToolRegistry, tool
    called, registry = [], ToolRegistry()

    @tool
    def add(a: float, b: float) -> float:
        """Adds two numbers."""
        called.append((a, b))
        return a + b

    registry.register(add)
    script = [{"tool_calls": [{"id": "1", "name": "add", "arguments": {"a": 2, "b": 3}}]},
              "The sum is 5."]
    assert create_rlm(MockLLMAdapter(script=script), tools=registry,
                      agent_mode="tools").completion("2 + 3?").response == "The sum is 5."
    assert called == [(2, 3)]
    with pytest.raises(Exception, match="agent_mode='tools' needs tools"):
        create_rlm(MockLLMAdapter(), agent_mode="tools")
    with pytest.raises(droste.ArgumentError, match="'code' or 'tools'"):
        create_rlm(MockLLMAdapter(), agent_mode="both")


def test_an_adapter_of_a_provider_is_that_model(serve):
    """Its arguments reach the requests; it can be asked by itself, too."""
    from rlm import create_rlm
    from rlm.adapters.llm.openai import build_openai_adapter
    from rlm.domain.models import LLMRequest
    server = serve(key="k", script=["FINAL(7)", "alone"])
    llm = build_openai_adapter(model="scripted", api_key="k", base_url=server.url,
                               default_request_kwargs={"temperature": 0.5})
    assert create_rlm(llm, system_prompt="Be brief.").completion("q").response == "7"
    body = server.stats()["last"]["body"]
    assert body["temperature"] == 0.5 and "Be brief." in body["messages"][0]["content"]
    assert llm.complete(
        LLMRequest(prompt="hello")).response == "alone" and llm.get_last_usage().total_calls == 1


def test_a_configuration_has_loggers_and_other_models(tmp_path):
    """LoggerConfig, other_llms, the backend mock, and tools that come with the call."""
    from rlm.api import (EnvironmentConfig, LLMConfig, LoggerConfig, RLMConfig,
                         create_rlm_from_config)
    script = [repl("x = llm_query('x', model='sub') + str(double(4))") + "\nFINAL_VAR('x')"]
    config = RLMConfig(llm=LLMConfig(backend="mock", model_name="root",
                                     backend_kwargs={"script": script}),
                       other_llms=[LLMConfig(backend="mock", model_name="sub",
                                             backend_kwargs={"script": ["s"]})],
                       env=EnvironmentConfig(environment="local"),
                       logger=LoggerConfig("jsonl", {"log_dir": str(tmp_path)}),
                       max_iterations=3)

    def double(n: int) -> int:
        return 2 * n

    assert create_rlm_from_config(config, tools=[double]).completion("q").response == "s8"
    (log,) = tmp_path.glob("*.jsonl")
    assert [json.loads(line)["type"] for line in open(log)] == ["metadata", "iteration"]
    with pytest.raises(droste.ArgumentError, match="LoggerConfig.logger must be none, jsonl"):
        create_rlm_from_config(RLMConfig(logger=LoggerConfig("syslog")))
    with pytest.raises(NotImplementedError, match="llm_registry"):
        create_rlm_from_config(config, llm_registry=object())


@pytest.mark.parametrize("argument", ["broker_factory", "environment_factory", "nested_call_policy",
                                      "nested_call_handler",
                                      "stopping_policy", "context_compressor", "output_type"])
def test_extensions_of_navigators_are_refused_by_name(argument):
    """Each says what Droste has in its place."""
    from rlm import create_rlm
    from rlm.adapters.llm import MockLLMAdapter
    with pytest.raises(NotImplementedError, match=argument):
        create_rlm(MockLLMAdapter(), **{argument: object()})


# -- fleet-rlm

def test_the_host_asks_the_model_of_a_session(monkeypatch):
    """interp.llm_query() and llm_query_batched(): the same model, counted with the calls of the
    code, under the same limit."""
    from fleet_rlm.runtime.execution.interpreter import ModalInterpreter
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")

    def model(prompt):
        if prompt == "fail":
            raise ValueError("no answer")
        return ["said " + prompt]

    with ModalInterpreter(sub_lm=model, max_llm_calls=6) as interp:
        assert interp.llm_query("a {brace} \"quote\"") == "said a {brace} \"quote\""
        assert interp.llm_query_batched(["b", "c"]) == [
            "said b", "said c"] and interp.llm_query_batched([]) == []
        assert interp.execute("SUBMIT(r=llm_query('d'))").r == "said d"
        with pytest.raises(RuntimeError, match="no answer"):
            interp.llm_query_batched(["fail"])
        with pytest.raises(RuntimeError, match="BudgetExceeded.*6"):
            interp.llm_query_batched(["e", "f"])
        assert interp.llm_query("g") == "said g"
        with pytest.raises(ValueError, match="prompt cannot be empty"):
            interp.llm_query("")
        assert "_" not in str(
            interp.execute("print([n for n in dir() if n.startswith('reply')])").stdout)


def test_a_whole_program_runs_as_a_script(serve, tmp_path):
    """In a process of its own, with the names lent by one line, and the server in the environment's
    variables."""
    server = serve(script=[repl("print(lookup('b'))"), READY % "len(context)"])
    program = tmp_path / "program.py"
    program.write_text("import droste.compat\ndroste.compat.activate()\n" + textwrap.dedent("""
        import os
        from rlm import RLM
        from rlm.logger import RLMLogger

        def lookup(name: str) -> int:
            "Looks up."
            return {"a": 1, "b": 2}[name]

        rlm = RLM(backend="openai", backend_kwargs={"model_name": "scripted", "api_key": os.getenv("OPENAI_API_KEY")},
                  environment="local", custom_tools={"lookup": {"tool": lookup, "description": "Looks up."}, "LIMIT": 5},
                  logger=RLMLogger(log_dir="./logs"), max_iterations=5)
        result = rlm.completion("x" * 3000, root_prompt="How long is it?")
        print(result.response, len(result.metadata["iterations"]), os.listdir("logs")[0].endswith(".jsonl"))
    """))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=120, cwd=tmp_path, env={
        **__import__("os").environ, "PYTHONPATH": ":".join(sys.path), "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": server.url})
    assert done.stdout == "3000 2 True\n", done.stderr


# -- utils

def test_utils_of_trajectories():
    """Code in replies, outputs as messages, contexts as values or texts."""
    from rlm.core.types import CodeBlock, REPLResult, RLMIteration
    from rlm.utils.parsing import (convert_context_for_repl, find_code_blocks,
                                   format_execution_result, format_iteration)
    assert find_code_blocks("a\n```repl\nx = 1\n```\n```python\ny\n```") == ["x = 1"]
    result = REPLResult("out", "bad", {"x": 1, "_y": 2, "f": len})
    assert format_execution_result(result) == "\nout\n\n\nbad\n\nREPL variables: ['x']\n"
    assert format_execution_result(REPLResult("", "", {})) == "No output"
    one, two = CodeBlock("a", REPLResult("12345", "", {})), CodeBlock("b", REPLResult("6", "", {}))
    assert format_iteration(RLMIteration("q", "said",
                                         [])) == [{"role": "assistant", "content": "said"}]
    assert format_iteration(RLMIteration("q", "said", [one]), max_character_length=3)[1] == {
        "role": "user", "content": "REPL output:\n\n12... + [3 chars...]"}
    assert format_iteration(RLMIteration("q", "said", [one, two]))[1]["content"] == (
        "REPL output (block 1):\n\n12345\n\nREPL output (block 2):\n\n6")
    assert convert_context_for_repl("text") == (None, "text") and convert_context_for_repl(
        {"k": 1}) == ({"k": 1}, None)
    assert convert_context_for_repl([{"role": "user", "content": "c"}]) == (["c"], None)


def test_prompts_can_be_added_to(serve):
    """rlm's prompt and a sentence are Droste's own prompt and the sentence, also as a format with a
    place for tools; rlm's builders of messages are refused by name."""
    from rlm import RLM
    from rlm.utils.prompts import ORCHESTRATOR_ADDENDUM, RLM_SYSTEM_PROMPT, build_rlm_system_prompt
    prompts = []

    def model(messages):
        prompts.append(messages[0]["content"])
        return READY % "1"

    for prompt in (RLM_SYSTEM_PROMPT + ORCHESTRATOR_ADDENDUM + "Be brief.",
                   "Be {{brief}}.{custom_tools_section}", "Be {brief}.", None):
        RLM(model, custom_system_prompt=prompt).completion("q")
    assert "Be brief." in prompts[0] and "Be {brief}." in prompts[
        1] and "custom_tools_section" not in prompts[1] and "Be {brief}." in prompts[2]
    assert prompts[0].replace("Be brief.", "").split() == prompts[1].replace(
        "Be {brief}.", "").split() and len(prompts[3]) > 1000
    assert "llm_query" in prompts[0]
    with pytest.raises(droste.UnsupportedError,
                       match="Droste has no build_rlm_system_prompt: .*custom_system_prompt"):
        build_rlm_system_prompt(RLM_SYSTEM_PROMPT, None)
    with pytest.raises(droste.UnsupportedError,
                       match=r"RLM\(orchestrator=False\).*custom_system_prompt"):
        RLM(model, orchestrator=False)
    assert RLM(model, orchestrator=True).completion("q").answer == 1


def test_calls_of_a_batch_are_in_the_order_of_its_prompts():
    """Of rlm_query_batched in a REPL, whichever ends first."""
    import threading
    from rlm.core.types import RLMChatCompletion, UsageSummary
    from rlm.environments import LocalREPL
    second = threading.Event()

    def child(prompt, model=None):
        if prompt == "first":
            assert second.wait(60)
        else:
            second.set()
        return RLMChatCompletion("m", prompt, "to " + prompt, UsageSummary(), 0.0)

    with LocalREPL(subcall_fn=child) as environment:
        result = environment.execute_code("print(rlm_query_batched(['first', 'second']))")
    assert result.stdout == "['to first', 'to second']\n"
    assert [call.response for call in result.rlm_calls] == ["to first", "to second"]
