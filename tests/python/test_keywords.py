"""Every keyword of every compatibility class and function has an effect or is refused by name.

`SHOWN` names the test that shows it for each; the test below walks over the signatures of all that
`droste.compat` lends, and over rlm's list of its RLM's arguments, and demands one. The first part
of this file are the tests that had no other place.
"""
import ast
import dataclasses
import enum
import inspect
import os
import re
import threading

import pytest

import droste
import droste.compat
from droste.compat import config, modules

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = {"names": "python/test_names.py", "kwargs": "python/test_environment_kwargs.py",
         "adapters": "python/test_adapters.py",
         "rlm": "python/test_rlm.py", "select": "python/test_select.py",
         "peers": "python/test_peers.py",
         "here": "python/test_keywords.py",
         "modal": "clouds/test_modal_python.py", "daytona": "clouds/test_daytona.py"}


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)


@pytest.fixture
def lent():
    droste.compat.activate()
    yield
    droste.compat.deactivate()


# ---- rlm's RLM

def prompt_of(**arguments):
    """What the root of an RLM with these arguments is told first."""
    seen = []

    def model(messages):
        seen.append(messages)
        return "FINAL(1)"

    droste.RLM(model, **arguments).completion("prompt")
    return "\n".join(m["content"] for m in seen[0])


def test_prompts_of_the_program_reach_the_model():
    """custom_system_prompt and user_prologue, also together."""
    assert "Be brief." in prompt_of(custom_system_prompt="Be brief.")
    assert "Look first." in prompt_of(user_prologue="Look first.")
    both = prompt_of(custom_system_prompt="Be brief.", user_prologue="Look first.",
                     instructions="And kind.")
    assert all(text in both for text in ("Be brief.", "Look first.", "And kind."))
    assert "Be brief." not in prompt_of()


def test_the_system_prompt_can_be_replaced():
    """system_prompt replaces it, with its placeholders; custom_system_prompt, rlm's name, adds to
    it."""
    mine = prompt_of(system_prompt="Mine.\n\n{session}", custom_system_prompt="Be brief.")
    assert mine.startswith(
        "Mine.\n\n- `context`: ") and "Be brief." in mine and "Example 1" not in mine
    assert "Example 1" in prompt_of(custom_system_prompt="Be brief.")


def test_models_are_functions_or_names():
    """model writes the code, sub_model answers what that asks."""
    rlm = droste.RLM(model=lambda messages: "```repl\nSUBMIT(llm_query('x'))\n```",
                     sub_model=lambda messages: "said " + messages[-1]["content"])
    assert rlm.run("q").answer == "said x"
    pairs = dict(droste.RLM(model="openai/a", sub_model="openai/b")._pairs)
    assert (pairs["model"], pairs["sub-model"]) == ("openai/a", "openai/b")


def test_a_logger_is_configured(tmp_path):
    """LoggerConfig: `logger` says which, `logger_kwargs` where it writes; a place for none is
    refused."""
    made = config.LoggerConfig(logger="jsonl",
                               logger_kwargs={"log_dir": str(tmp_path), "file_name": "mine"}).made()
    droste.RLM(lambda messages: "FINAL(1)", logger=made).completion("q")
    assert [path.name.startswith("mine_") for path in tmp_path.iterdir()] == [True]
    assert config.LoggerConfig().made() is None
    with pytest.raises(droste.ArgumentError, match="LoggerConfig"):
        config.LoggerConfig(logger="none", logger_kwargs={"log_dir": "x"}).made()


def test_compaction_threshold_pct_is_the_share():
    """With compaction=True; without, there is none."""
    assert dict(droste.RLM("m", compaction=True,
                           compaction_threshold_pct=0.5)._pairs)["compaction"] == "0.5"
    assert dict(droste.RLM("m", compaction=True)._pairs)["compaction"] == "0.85"
    assert "compaction" not in dict(droste.RLM("m", compaction=False,
                                               compaction_threshold_pct=0.5)._pairs)


@pytest.mark.parametrize("word, value, usual", [("depth", 1, 0), ("orchestrator", False, True)])
def test_what_means_nothing_to_a_run_is_refused(word, value, usual):
    with pytest.raises(droste.UnsupportedError, match=word):
        droste.RLM("m", **{word: value})
    droste.RLM("m", **{word: usual})


def test_custom_sub_tools_are_all_or_none():
    """{} gives children none; others than the root's are refused."""
    tools = {"f": len, "data": [1]}
    assert dict(droste.RLM("m", custom_tools=tools,
                           custom_sub_tools={})._pairs)["sub-tools"] == "no"
    assert "sub-tools" not in dict(droste.RLM("m", custom_tools=tools,
                                              custom_sub_tools=dict(tools))._pairs)
    with pytest.raises(droste.UnsupportedError, match="custom_sub_tools"):
        droste.RLM("m", custom_tools=tools, custom_sub_tools={"g": len})


def test_tools_run_in_threads_where_that_is_asked_for():
    """tool_threads: a tool is not called in the thread that waits for the run."""
    seen = []

    def where() -> None:
        """Notes its thread."""
        seen.append(threading.current_thread() is threading.main_thread())

    for threads in (False, True):
        droste.RLM(lambda messages: "```repl\nwhere()\nSUBMIT(1)\n```", tools=[where],
                   tool_threads=threads).run("q")
    assert seen == [True, False]


# ---- rlm's environments, clients and handler

class Client:
    """A program's own client; how many are under way at once is counted."""
    model_name = "own"

    def __init__(self, name="own"):
        self.model_name, self.name = name, name
        self.now = self.most = 0

    def completion(self, prompt):
        return "%s: %s" % (self.name, prompt)

    async def acompletion(self, prompt):
        import asyncio
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return self.completion(prompt)

    def get_last_usage(self):
        return None

    def get_usage_summary(self):
        from rlm.core.types import UsageSummary
        return UsageSummary({})


def test_the_depth_says_which_client_answers(lent):
    """Depth 1 has the handler's other_backend_client; so an environment's `depth` has an effect,
    and that of a request."""
    from rlm.core.comms_utils import LMRequest, send_lm_request, send_lm_request_batched
    from rlm.core.lm_handler import LMHandler
    from rlm.environments import LocalREPL
    with LMHandler(Client(), host="127.0.0.1", port=0,
                   other_backend_client=Client("other")) as handler:
        for depth, name in ((1, "other"), (2, "own")):
            with LocalREPL(lm_handler_address=handler.address, depth=depth) as env:
                assert env.execute_code("print(llm_query('x'))").stdout == name + ": x\n"
            assert send_lm_request(handler.address, LMRequest(prompt="x"), timeout=60,
                                   depth=depth).chat_completion.response == name + ": x"
            (reply,) = send_lm_request_batched(handler.address, ["x"], model=None, timeout=60,
                                               depth=depth)
            assert reply.chat_completion.response == name + ": x"
        (reply,) = send_lm_request_batched(handler.address, ["x"], model="own", depth=1)
        assert reply.chat_completion.response == "own: x"


def test_a_batch_asks_only_so_many_at_once(lent):
    """batch_max_concurrent."""
    from rlm.core.comms_utils import send_lm_request_batched
    from rlm.core.lm_handler import LMHandler
    client = Client()
    with LMHandler(client, batch_max_concurrent=2) as handler:
        assert len(send_lm_request_batched(handler.address, ["x"] * 8)) == 8
    assert client.most == 2


def test_an_environments_children_are_only_so_many_at_once(lent):
    """max_concurrent_subcalls of a REPL: with 2, both of two are under way together, and no
    third."""
    from rlm.core.types import RLMChatCompletion, UsageSummary
    from rlm.environments import LocalREPL
    both, now, most = threading.Barrier(2, timeout=60), [], []

    def child(prompt, model=None):
        now.append(1)
        most.append(len(now))
        both.wait()
        now.pop()
        return RLMChatCompletion("m", prompt, "c", UsageSummary({}), 0.0)

    with LocalREPL(subcall_fn=child, max_concurrent_subcalls=2) as env:
        assert env.execute_code(
            "print(rlm_query_batched(['a', 'b', 'c', 'd']))").stdout == "['c', 'c', 'c', 'c']\n"
    assert max(most) == 2


def test_flags_of_an_environment(lent):
    """compaction: `history` is there and grows; custom_sub_tools is what children are to have, by
    default the same tools."""
    from rlm.environments import LocalREPL
    with LocalREPL(compaction=True, custom_tools={"RATE": 3}) as env:
        env.append_compaction_entry({"type": "summary", "content": "so far"})
        assert env.execute_code(
            "print(history[0]['content'], RATE)").stdout == "so far 3\n"
        assert env.custom_sub_tools == {"RATE": 3}
    with LocalREPL(custom_tools={"RATE": 3}, custom_sub_tools={}) as env:
        assert env.custom_sub_tools == {} and "NameError" in env.execute_code("history").stderr


def test_persistent_environments_are_local_ones(lent):
    """As in rlm: persistent=True says that one stays from question to question, which those of
    providers do not."""
    import rlm.environments
    with rlm.environments.LocalREPL(persistent=True, context_payload="one") as env:
        env.execute_code("x = 1")
        assert env.persistent and env.add_context("two") == 1
        assert env.execute_code("print(x, context_0, context_1)").stdout == "1 one two\n"
    for name in ("ModalREPL", "DaytonaREPL", "PrimeREPL", "E2BREPL"):
        with pytest.raises(NotImplementedError, match="persistent"):
            getattr(rlm.environments, name)(persistent=True)


@pytest.mark.parametrize("name", ["LocalREPL", "DockerREPL", "ModalREPL", "DaytonaREPL",
                                  "PrimeREPL", "E2BREPL"])
def test_other_arguments_of_an_environment_are_refused(lent, name):
    """What is neither rlm's nor a setting."""
    import rlm.environments
    with pytest.raises(droste.ArgumentError, match="no_such_thing"):
        getattr(rlm.environments, name)(no_such_thing=1)
    with pytest.raises(droste.ArgumentError, match="no_such_thing"):
        rlm.environments.get_environment(name.replace("REPL", "").lower(),
                                         environment_kwargs={"no_such_thing": 1})


def test_arguments_of_clients(lent):
    """api_key, base_url and timeout are settings of the model's, for each provider; get_client
    takes them as backend_kwargs."""
    from rlm.clients import (AnthropicClient, AzureOpenAIClient, GeminiClient, OpenAIClient,
                             PortkeyClient, get_client)
    for kind, word in ((OpenAIClient, ""), (PortkeyClient, "portkey-"),
                       (AnthropicClient, "anthropic-"), (GeminiClient, "gemini-")):
        pairs = dict(kind(api_key="k", model_name="m", base_url="http://127.0.0.1:1/v1",
                          timeout=7.0)._rlm(None)._pairs)
        assert (pairs[word + "api-key"], pairs[word + "base-url"],
                pairs["llm-call-timeout"]) == ("k", "http://127.0.0.1:1/v1", "7")
        assert pairs["sub-model"].endswith("/m")
        with pytest.raises(droste.ArgumentError, match="no_such_thing"):
            kind(model_name="m", no_such_thing=1)
    assert dict(AzureOpenAIClient(api_key="k",
                                  model_name="m")._rlm(None)._pairs)["azure-api-key"] == "k"
    client = get_client("openai", backend_kwargs={"api_key": "k", "model_name": "m"})
    assert dict(client._rlm(None)._pairs)["api-key"] == "k" and client.model_name == "m"


def test_arguments_of_a_base_client_and_environment(lent):
    """What a program's own class hands to its base is kept there: model_name, timeout; persistent,
    depth, max_concurrent_subcalls."""
    from rlm.clients.base_lm import BaseLM
    from rlm.environments import BaseEnv

    class Own(BaseLM):
        completion = acompletion = get_usage_summary = get_last_usage = None

    class Env(BaseEnv):
        setup = load_context = execute_code = None

    own, env = Own(model_name="m", timeout=5.0,
                   more=1), Env(persistent=True, depth=2, max_concurrent_subcalls=3)
    assert (own.model_name, own.timeout, own.kwargs) == ("m", 5.0, {"more": 1})
    assert (env.persistent, env.depth, env.max_concurrent_subcalls) == (True, 2, 3)


# ---- navigator's adapters

def test_arguments_of_adapters(lent):
    """model, api_key, base_url and default_request_kwargs reach the model; retry_config is refused
    by name."""
    from rlm import create_rlm
    from rlm.adapters.llm import (AnthropicAdapter, AzureOpenAIAdapter, GeminiAdapter,
                                  OpenAIAdapter, PortkeyAdapter)
    for kind, word in ((OpenAIAdapter, ""), (AnthropicAdapter, "anthropic-"),
                       (GeminiAdapter, "gemini-"), (PortkeyAdapter, "portkey-")):
        llm = kind(model="m", api_key="k", base_url="http://127.0.0.1:1/v1",
                   default_request_kwargs={"max_tokens": 5})
        pairs = dict(create_rlm(llm)._pairs)
        assert (pairs[word + "api-key"], pairs[word + "base-url"],
                pairs["max-tokens"]) == ("k", "http://127.0.0.1:1/v1", "5")
        assert pairs["model"].endswith("/m")
        with pytest.raises(droste.UnsupportedError, match="retry_config"):
            kind(model="m", retry_config={"attempts": 1})
    pairs = dict(create_rlm(AzureOpenAIAdapter(deployment="d", api_key="k",
                                               endpoint="https://x.example",
                                               api_version="2024-10-21"))._pairs)
    assert (pairs["model"], pairs["azure-api-key"], pairs["azure-endpoint"],
            pairs["azure-api-version"]) == (
        "azure/d", "k", "https://x.example", "2024-10-21")


def test_arguments_of_a_scripted_model_and_of_tools(lent):
    """MockLLMAdapter's max_prompt_preview_chars, and a NativeToolAdapter's name and description."""
    from rlm.adapters.llm import MockLLMAdapter
    from rlm.adapters.tools import NativeToolAdapter
    from rlm.domain.models import LLMRequest
    assert MockLLMAdapter(max_prompt_preview_chars=3).complete(
        LLMRequest("abcdef")).response == "Mock response to: abc"
    tool = NativeToolAdapter(len, name="count", description="Counts.").tool()
    assert (tool.name, tool.description) == ("count", "Counts.")


# ---- the table, and all signatures

#: rlm's arguments of RLM, which Droste takes from **settings
RLM_ARGUMENTS = """backend backend_kwargs environment environment_kwargs depth max_depth max_iterations max_budget max_timeout max_tokens
    max_errors custom_system_prompt other_backends other_backend_kwargs logger verbose persistent custom_tools custom_sub_tools compaction
    compaction_threshold_pct max_concurrent_subcalls on_subcall_start on_subcall_complete on_iteration_start on_iteration_complete
    sampling_args sub_sampling_args orchestrator user_prologue""".split()

_REPL = {
    "peers::test_an_environment_asks_the_handler_of_its_address":
    "lm_handler_address context_payload setup_code",
    "peers::test_an_environment_has_custom_tools_and_children": "subcall_fn custom_tools",
    "here::test_the_depth_says_which_client_answers": "depth",
    "here::test_flags_of_an_environment": "custom_sub_tools compaction",
    "here::test_persistent_environments_are_local_ones": "persistent",
    "here::test_an_environments_children_are_only_so_many_at_once": "max_concurrent_subcalls",
}
_CLIENT = {"here::test_arguments_of_clients": "api_key model_name base_url timeout"}
_BASE = {"here::test_arguments_of_a_base_client_and_environment":
         "persistent depth max_concurrent_subcalls"}
_ADAPTER = {"here::test_arguments_of_adapters":
            "api_key base_url default_request_kwargs retry_config"}
_REFUSED = "names::test_a_parameter_that_would_do_nothing_is_refused"
_BOTH = {
    "names::test_parameters_and_their_defaults_are_fleets":
    "timeout execute_timeout max_llm_calls sub_lm volume_name",
    "names::test_limits_of_calls_are_fleets": "llm_call_timeout",
    "names::test_an_execution_profile_says_which_helpers_a_cell_has": "default_execution_profile",
    "names::test_async_execute_says_whether_results_may_be_awaited": "async_execute",
}

#: owner: {test: the keywords that it shows}
SHOWN = {
    "format_iteration": {"peers::test_utils_of_trajectories": "max_character_length"},
    "ModalInterpreter": {
        **_BOTH, _REFUSED: "secrets secret_name",
        "modal::test_an_image_and_an_app_of_modals_own_reach_an_interpreter": "image app",
        "modal::test_the_parameters_of_modal_interpreter":
        "idle_timeout app_name image_python_version image_pip_packages",
        "names::test_a_volume_is_where_it_is": "volume_mount_path",
        "names::test_a_result_as_text_is_what_fleet_returns":
        "summarize_stdout stdout_summary_threshold stdout_summary_prefix_len",
    },
    "DaytonaInterpreter": {
        **_BOTH,
        _REFUSED:
        "runtime owns_runtime rlm_max_iterations delegate_max_calls_per_turn "
        "delegate_result_truncation_chars delegate_adapter "
                  "child_isolation_mode child_fork_fallback broker_health_timeout "
                  "broker_start_retries",
        "names::test_a_repository_and_paths_are_staged": "repo_url repo_ref context_paths",
        "names::test_limits_of_calls_are_fleets":
        "llm_call_timeout max_recursion_depth delegate_max_iterations delegate_execution_timeout "
                                                  "broker_tool_call_timeout",
        "daytona::test_each_parameter_of_an_interpreter_reaches_what_it_names":
        "volume_subpath sandbox_spec sandbox_labels delete_session_on_shutdown",
        "daytona::test_variables_end_with_their_session_in_any_case": "delete_context_on_shutdown",
    },
    "ModalInterpreter.execute": {
        "names::test_envs_and_variables_are_the_cells": "variables timeout envs",
        "names::test_an_execution_profile_says_which_helpers_a_cell_has": "execution_profile"},
    "DaytonaInterpreter.execute": {
        "names::test_envs_and_variables_are_the_cells": "variables timeout envs",
        "names::test_an_execution_profile_says_which_helpers_a_cell_has": "execution_profile"},
    "configure_planner_from_env": {"names::test_the_planner_comes_from_variables": "env_file"},
    "RLM": {
        "rlm::test_rlms_arguments_are_settings":
        "backend backend_kwargs other_backends other_backend_kwargs max_depth max_iterations "
        "max_budget "
            "max_timeout max_tokens max_errors compaction max_concurrent_subcalls custom_tools "
            "sampling_args",
        "kwargs::test_two_that_say_different_things_are_refused": "environment environment_kwargs",
        "rlm::test_a_run_answers": "tools tool_data",
        "here::test_models_are_functions_or_names": "model sub_model",
        "rlm::test_a_runs_tools_are_no_other_sessions": "tool_source",
        "select::test_the_function_chooses": "select",
        "rlm::test_progress_is_shown_on_a_terminal": "progress",
        "rlm::test_events_are_sent_as_they_happen": "on_event",
        "names::test_a_configurations_limits_are_the_rlms": "verbose",
        "peers::test_a_loggers_trajectory_is_the_metadata": "logger",
        "peers::test_a_persistent_rlm_keeps_its_session": "persistent",
        "peers::test_callbacks_get_children_and_turns":
        "on_subcall_start on_subcall_complete on_iteration_start on_iteration_complete",
        "peers::test_sampling_arguments_are_in_the_requests": "sub_sampling_args",
        "here::test_prompts_of_the_program_reach_the_model":
        "custom_system_prompt user_prologue",
        "here::test_compaction_threshold_pct_is_the_share": "compaction_threshold_pct",
        "here::test_what_means_nothing_to_a_run_is_refused": "depth orchestrator",
        "here::test_custom_sub_tools_are_all_or_none": "custom_sub_tools",
        "here::test_tools_run_in_threads_where_that_is_asked_for": "tool_threads",
    },
    "RLMConfig": {
        "names::test_a_configurations_limits_are_the_rlms":
        "llm max_depth max_iterations verbose rlm_kwargs",
        "names::test_a_configuration_makes_an_rlm": "env",
        "peers::test_a_configuration_has_loggers_and_other_models": "other_llms logger",
        "peers::test_agent_mode_tools_calls_functions_of_the_program": "agent_mode"},
    "LLMConfig": {
        "names::test_a_configuration_makes_an_rlm": "backend model_name",
        "names::test_a_configurations_limits_are_the_rlms": "backend_kwargs"},
    "EnvironmentConfig": {"names::test_a_configuration_makes_an_rlm":
                          "environment environment_kwargs"},
    "LoggerConfig": {"here::test_a_logger_is_configured": "logger logger_kwargs"},
    "create_rlm_from_config": {"peers::test_a_configuration_has_loggers_and_other_models":
                               "tools llm"},
    "LocalEnvironmentAdapter": {
        "adapters::test_parameters_are_those_of_the_environment":
        "execute_timeout_s execute_timeout_cap_s broker_timeout_s allowed_import_roots setup_code",
        "adapters::test_models_are_asked_by_the_broker_or_at_its_address":
        "broker broker_address correlation_id"},
    "DockerEnvironmentAdapter": {
        "adapters::test_parameters_of_dockers_environment":
            "image subprocess_timeout_s proxy_http_timeout_s setup_code broker broker_address "
            "correlation_id"},
    **{name: _REPL for name in ("LocalREPL", "DockerREPL", "ModalREPL", "DaytonaREPL", "PrimeREPL",
                                "E2BREPL")},
    **{name: _BASE for name in ("BaseEnv", "IsolatedEnv", "NonIsolatedEnv")},
    "get_environment": {"here::test_other_arguments_of_an_environment_are_refused":
                        "environment_kwargs"},
    "BaseLM": {"here::test_arguments_of_a_base_client_and_environment": "model_name timeout"},
    **{name: _CLIENT for name in ("OpenAIClient", "PortkeyClient", "AnthropicClient",
                                  "GeminiClient", "AzureOpenAIClient")},
    "get_client": {"here::test_arguments_of_clients": "backend_kwargs"},
    "LMHandler": {
        "here::test_the_depth_says_which_client_answers": "host port other_backend_client",
        "here::test_a_batch_asks_only_so_many_at_once": "batch_max_concurrent"},
    "send_lm_request": {"here::test_the_depth_says_which_client_answers": "timeout depth"},
    "send_lm_request_batched": {"here::test_the_depth_says_which_client_answers":
                                "model timeout depth"},
    "RLMLogger": {"peers::test_a_loggers_trajectory_is_the_metadata": "log_dir file_name"},
    "MockLLMAdapter": {
        "peers::test_a_scripted_model_answers": "model script",
        "here::test_arguments_of_a_scripted_model_and_of_tools": "max_prompt_preview_chars"},
    **{name: _ADAPTER for name in ("OpenAIAdapter", "AnthropicAdapter", "GeminiAdapter",
                                   "PortkeyAdapter")},
    "AzureOpenAIAdapter": {"here::test_arguments_of_adapters": "api_key endpoint api_version"},
    "NativeToolAdapter": {"here::test_arguments_of_a_scripted_model_and_of_tools":
                          "name description"},
}
#: records of what was: their fields are what a program is told, and not asked of it
RECORDS = ("REPLResult", "QueryMetadata")
ARGUMENTS = (config.RLMConfig, config.LLMConfig, config.EnvironmentConfig, config.LoggerConfig)


def is_record(name, thing):
    return name in RECORDS or (dataclasses.is_dataclass(thing) and thing not in ARGUMENTS
                               and name != "MockLLMAdapter")


def lent_things():
    """All that `droste.compat` lends and that takes arguments, by name: no exceptions,
    enumerations, protocols, records, and none of what is refused whole."""
    found = {}
    for contents in modules.MODULES.values():
        for name, thing in contents.items():
            own = (getattr(thing, "__module__", "").startswith("droste.")
                   and not thing.__module__.endswith(".refused"))
            kind = (isinstance(thing, type) and (issubclass(thing, (BaseException, enum.Enum))
                                                 or getattr(thing, "_is_protocol", False)))
            if callable(thing) and own and not kind and not is_record(name, thing):
                found.setdefault(id(thing), (name, thing))
    for name in ("ModalInterpreter", "DaytonaInterpreter"):
        found[name] = name + ".execute", getattr(droste.compat, name).execute
    return dict(found.values())


def keywords_of(name, thing):
    """Its arguments that may be left out; those that may not have an effect in every call."""
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]
    return [p.name for p in parameters
            if p.default is not p.empty] + (RLM_ARGUMENTS if name == "RLM" else [])


def source_of(test):
    """Of a test, with its decorators; None where there is none of that name."""
    file, _, name = test.partition("::")
    with open(os.path.join(TESTS, FILES[file]), encoding="utf-8") as source:
        text = source.read()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1:node.end_lineno])
    return None


def test_every_keyword_has_a_test_of_its_effect_or_its_refusal():
    """Nothing that a program can say is accepted and dropped: each keyword is in the table above,
    and the test that stands there is there and has its name."""
    missing, things = [], lent_things()
    for name, thing in things.items():
        tests = {word: test for test, words in SHOWN.get(name, {}).items()
                 for word in words.split()}
        missing += ["%s(%s)" % (name, word) for word in keywords_of(name, thing)
                    if word not in tests]
        for word, test in tests.items():
            source = source_of(test)
            assert source is not None, "there is no test %s" % test
            if not re.search(r"\b%s\b" % re.escape(word), source):
                missing.append("%s says nothing of %s(%s)" % (test, name, word))
    assert missing == []
    assert [name for name in SHOWN if name not in things] == []
