"""The names of other runtimes: fleet-rlm's interpreters, configurations, environments written in
Python."""
import asyncio
import inspect
import subprocess
import sys
import threading

import pytest

import droste
import droste.compat
from droste import ReplResult, registry
from droste.compat import (DaytonaInterpreter, EnvironmentConfig, ExecutionProfile, LLMConfig,
                           ModalInterpreter, RLMConfig,
                           create_rlm_from_config)


@pytest.fixture
def locally(monkeypatch):
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")


@pytest.mark.parametrize("kind", [ModalInterpreter, DaytonaInterpreter])
def test_the_same_program_runs_locally(kind, locally):
    """The twin; submitted fields come first then, whatever they are called."""
    with kind(timeout=300) as interp:
        result = interp.execute("SUBMIT(answer=1, status='saved', items=[1], stdout='s')")
        assert (result.answer, result.status, result.items, result.stdout) == (1, "saved", [1], "s")
        assert interp.execute("print(1)").status == "ok"
        assert interp.execute("import os; SUBMIT(v=os.environ['NAME'])",
                              envs={"NAME": "value"}).v == "value"


def test_fields_hide_only_what_is_asked_by_their_names(locally):
    """What the host makes of its own is of its own: whether a cell ended well, what it shows of
    itself."""
    hosts = [name for name in vars(droste.Result) if not name.startswith("_")]
    with ModalInterpreter() as interp:
        result = interp.execute(
            "print('out'); SUBMIT(status='saved', fields=1, json=2, error=3, echo=4, stdout=5)")
        assert result.ok and result.raise_for_status() is result and result.calls == 0
        assert result["status"] == "saved" and "fields" in result and (result.fields, result.json,
                                                                       result.echo) == (1, 2, 4)
        assert repr(result).startswith(
            "<Result: submitted, status='saved'") and "out" in result._repr_html_()
        result = interp.execute("SUBMIT(**{n: n for n in %r})" % hosts)
        assert [getattr(result, name) for name in hosts] == hosts and "submitted" in repr(result)
        failed = interp.execute("1 / 0")
        assert not failed.ok and failed.error.type == "ZeroDivisionError"


def test_parameters_and_their_defaults_are_fleets(locally):
    """Those of the seeds' tables, and what they are to the sandbox."""
    defaults = DaytonaInterpreter().parameters
    assert {name: defaults[name] for name in (
        "timeout", "execute_timeout", "volume_name", "repo_url", "repo_ref", "context_paths",
        "max_llm_calls",
        "llm_call_timeout", "async_execute", "max_recursion_depth", "delegate_max_iterations")} == {
        "timeout": 900, "execute_timeout": None, "volume_name": None, "repo_url": None,
        "repo_ref": None,
        "context_paths": None, "max_llm_calls": 50, "llm_call_timeout": 60, "async_execute": True,
        "max_recursion_depth": 2, "delegate_max_iterations": 8}
    assert ModalInterpreter().parameters["timeout"] == 600 and ModalInterpreter().parameters[
        "secret_name"] == "LITELLM"
    with ModalInterpreter(timeout=300, execute_timeout=20, max_llm_calls=1,
                          sub_lm=lambda prompt: ["said " + prompt]) as interp:
        result = interp.execute(
            "try: print(llm_query('a'), llm_query('b'))\nexcept BudgetExceeded: print('no more')")
        assert result.stdout == "no more\n"
        limits = interp.execute("1").resources["limits"]
        assert limits["timeout"]["value"] == 300 and limits["execute-timeout"]["value"] == 20


@pytest.mark.parametrize("word, value", [
    ("owns_runtime", True), ("rlm_max_iterations", 5), ("delegate_max_calls_per_turn", 3),
    ("delegate_result_truncation_chars", 100),
    ("delegate_adapter", "chat"), ("child_isolation_mode", "context"),
    ("child_fork_fallback", "fail"), ("broker_health_timeout", 5.0),
    ("broker_start_retries", 3), ("secret_name", "MINE"), ("secrets", ["s"]),
    ("runtime", object())])
def test_a_parameter_that_would_do_nothing_is_refused(word, value, monkeypatch):
    """By its name and with the reason, where it says another thing than fleet-rlm's default; the
    default itself is taken."""
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)
    kind = ModalInterpreter if word in ("secret_name", "secrets") else DaytonaInterpreter
    with pytest.raises(droste.UnsupportedError, match=word):
        kind(**{word: value})
    kind(**{word: inspect.signature(kind).parameters[word].default})


def test_a_child_run_has_a_sandbox_of_its_own(locally):
    """child_isolation_mode="clean" is what Droste does, and "auto" leaves it the choice."""
    for mode in ("auto", "clean"):
        DaytonaInterpreter(child_isolation_mode=mode)


def test_limits_of_calls_are_fleets(locally):
    """broker_tool_call_timeout is that of tools, delegate_execution_timeout that of a call of the
    code's, max_recursion_depth and delegate_max_iterations those of child runs, llm_call_timeout a
    model's."""
    pairs = dict(DaytonaInterpreter()._pairs)
    assert (pairs["tool-timeout"], pairs["broker-timeout"], pairs["max-recursion-depth"],
            pairs["delegate-max-iterations"],
            pairs["llm-call-timeout"],
            pairs["max-llm-calls"]) == ("180", "300", "2", "8", "60", "50")
    pairs = dict(DaytonaInterpreter(broker_tool_call_timeout=5, delegate_execution_timeout=6,
                                    max_recursion_depth=1, delegate_max_iterations=3,
                                    llm_call_timeout=7, max_llm_calls=9)._pairs)
    assert (pairs["tool-timeout"], pairs["broker-timeout"], pairs["max-recursion-depth"],
            pairs["delegate-max-iterations"],
            pairs["llm-call-timeout"], pairs["max-llm-calls"]) == ("5", "6", "1", "3", "7", "9")


def test_a_call_of_the_code_waits_as_long_as_the_interpreter_says(locally):
    """delegate_execution_timeout: the call is given up, the cell goes on."""
    ended = threading.Event()
    with DaytonaInterpreter(sub_lm=lambda prompt: ended.wait(60) and ["late"],
                            delegate_execution_timeout=0.3) as interp:
        result = interp.execute("try: llm_query('a')\nexcept LLMTimeout as e: SUBMIT(why=str(e))")
        ended.set()
        assert "0.3 s" in result.why


def test_async_execute_says_whether_results_may_be_awaited(locally):
    """Without it, execute() waits also within asyncio."""
    async def kinds():
        with ModalInterpreter(async_execute=False) as interp:
            done = interp.execute("SUBMIT(x=1)").done
        async with ModalInterpreter() as interp:
            result = interp.execute("import time; time.sleep(0.2); SUBMIT(x=1)")
            return done, result.done, (await result).x

    assert asyncio.run(kinds()) == (True, False, 1)


def test_envs_and_variables_are_the_cells(locally):
    """Of execute(): `code`, `variables`, `timeout` and `envs`."""
    with ModalInterpreter() as interp:
        assert interp.execute(code="SUBMIT(x=v)", variables={"v": 5}).x == 5
        assert interp.execute("import os; SUBMIT(x=os.environ['NAME'])",
                              envs={"NAME": "n"}).x == "n"
        late = interp.execute("while True: pass", timeout=0.3)
        assert late.ok is False and late.error.type == "TimeoutError"


def test_a_result_as_text_is_what_fleet_returns(locally):
    """summarize_stdout, stdout_summary_threshold, stdout_summary_prefix_len: what is longer is
    summarised; `stdout` itself is whole."""
    code = "for i in range(3): print('line', i)"
    with ModalInterpreter(stdout_summary_threshold=10, stdout_summary_prefix_len=8) as interp:
        assert str(interp.execute(code)) == '[Output: 21 chars, 3 lines]\nPrefix: "line 0\\nl..."'
        assert interp.execute(code).stdout == "line 0\nline 1\nline 2\n"
        assert str(
            interp.execute("print('short')\n1 / 0")) == "short\nZeroDivisionError: division by zero"
    with ModalInterpreter(stdout_summary_threshold=10, summarize_stdout=False) as interp:
        assert str(interp.execute(code)) == "line 0\nline 1\nline 2" and str(
            interp.execute("1 + 1")) == "2"
        assert str(interp.execute("SUBMIT(x=1)")) == "<Result: submitted, x=1>"
    with DaytonaInterpreter() as interp:
        assert str(interp.execute("print('x' * 20000)")) == "x" * 20000


@pytest.mark.parametrize("kind", [ModalInterpreter, DaytonaInterpreter])
def test_fleets_functions_are_restored(kind, locally):
    """SUBMIT, llm_query and llm_query_batched, after each cell; a variable stays, and so does
    everything with restore_name=[]."""
    overwrite = "SUBMIT = llm_query = llm_query_batched = peek = context = 5"
    with kind(sub_lm=lambda prompt: ["re: " + prompt]) as interp:
        interp.execute(overwrite)
        assert interp.execute(
            "SUBMIT(x=[llm_query('a'), llm_query_batched(['b']), peek, context])").x == [
            "re: a", ["re: b"], 5, 5]
    with kind(restore_name=[]) as interp:
        interp.execute(overwrite)
        assert interp.execute("SUBMIT(x=1)").error.type == "TypeError"


def test_grep_is_that_of_each_interpreter(locally):
    """fleet-rlm's helper in a Modal sandbox finds plain text in upper or lower case, its helper in
    Daytona's a regular expression, which Droste's own does too."""
    code = "SUBMIT(hits=grep('a.c\\nabc\\nA.C', 'a.c'))"
    for kind, hits in ((ModalInterpreter, ["a.c", "A.C"]), (DaytonaInterpreter, ["a.c", "abc"]),
                       (droste.Interpreter, ["a.c", "abc"])):
        with kind() as interp:
            assert interp.execute(code).hits == hits
    with ModalInterpreter(literal_grep=False) as interp:
        assert interp.execute(code).hits == ["a.c", "abc"]


def own_tool() -> int:
    """A tool."""
    return 5


@pytest.mark.parametrize("kind", [ModalInterpreter, DaytonaInterpreter])
def test_an_execution_profile_says_which_helpers_a_cell_has(kind, locally):
    """ROOT_INTERLOCUTOR: none, and no tools, but SUBMIT and llm_query; the next cell has them
    again. Said for a cell, for a while (execution_profile), or from the start
    (default_execution_profile)."""
    def ask(prompt):
        return ["re: " + prompt]

    code = "SUBMIT(found=grep('a', 'a'), tool=own_tool())"
    with kind(tools=[own_tool], sub_lm=ask) as interp:
        assert interp.execute(code).tool == 5
        why = interp.execute("grep('a', 'a')",
                             execution_profile=ExecutionProfile.ROOT_INTERLOCUTOR).error
        assert why.type == "RuntimeError" and why.message.startswith(
            "Helper 'grep' is not available in ROOT_INTERLOCUTOR profile.")
        with interp.execution_profile("ROOT_INTERLOCUTOR"):
            assert interp.execute("own_tool()").error.type == "NameError"
            assert interp.execute("SUBMIT(reply=llm_query('x'))").reply == "re: x"
            assert interp.execute(code,
                                  execution_profile=ExecutionProfile.RLM_DELEGATE).found == ["a"]
        for profile in ("RLM_ROOT", "MAINTENANCE", None):
            assert interp.execute(code, execution_profile=profile).tool == 5
        with pytest.raises(droste.ArgumentError, match="'OTHER'.*RLM_DELEGATE"):
            interp.execute("1", execution_profile="OTHER")
    with kind(default_execution_profile=ExecutionProfile.ROOT_INTERLOCUTOR,
              tools=[own_tool]) as interp:
        assert interp.execute("own_tool()").error.type == "NameError" and interp.tools
        assert interp.execute("peek('x')").error.type == "RuntimeError"


def test_a_new_session_has_all_helpers_again(locally):
    """A profile is a cell's, and none of the sandbox that comes after."""
    interp = ModalInterpreter()
    interp.start()
    interp.execute("1", execution_profile="ROOT_INTERLOCUTOR")
    interp.shutdown()
    interp.start()
    assert interp.execute("SUBMIT(x=peek('abc'))").x == "abc"
    interp.shutdown()


def test_profiles_hold_within_asyncio(locally):
    """In the order in which cells are started."""
    async def main():
        async with ModalInterpreter() as interp:
            cells = [interp.execute("peek('abc')", execution_profile=p)
                     for p in ("ROOT_INTERLOCUTOR", None, "ROOT_INTERLOCUTOR")]
            return [(await cell).ok for cell in cells]

    assert asyncio.run(main()) == [False, True, False]


def test_variables_of_the_environment_are_the_sessions(locally):
    """From that cell on; the code's own names stay as they are, and what is not a str is
    refused."""
    with ModalInterpreter() as interp:
        interp.execute("os = 5")
        assert interp.execute("os, '_envs' in globals()", {"v": 1},
                              envs={"NAME": "it's é"}).echo == "(5, False)"
        assert interp.execute("import os; os.environ['NAME']").echo == '"it\'s é"'
        for envs in ({"NAME": 1}, {1: "x"}):
            with pytest.raises(droste.ArgumentError, match="envs"):
                interp.execute("1", envs=envs)


def test_a_repository_and_paths_are_staged(locally, tmp_path, monkeypatch):
    """By fleet's parameters; the result names the commit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DROSTE_VOLUME_ROOT", str(tmp_path / "volumes"))
    subprocess.run("git init -q repo && cd repo && echo text > README.md && git add . && "
                   "git -c user.name=n -c user.email=e commit -qm first && git tag v1", shell=True,
                   check=True, cwd=tmp_path)
    (tmp_path / "notes.txt").write_text("a note")
    code = "SUBMIT(text=read_file('README.md'), note=read_file(CONTEXT_PATHS[0]), repo=REPO_PATH)"
    with DaytonaInterpreter(repo_url="file://%s/repo" % tmp_path, repo_ref="v1",
                            context_paths=[str(tmp_path / "notes.txt")]) as interp:
        result = interp.execute(code)
        assert (result.text, result.note) == ("text\n",
                                              "a note") and result.repo.endswith("/workspace/repo")


@pytest.mark.parametrize("kind, config", [(ModalInterpreter, {"volume_mount_path": "/mnt"}),
                                          (DaytonaInterpreter, {"volume_subpath": "a"})])
def test_a_volume_is_where_it_is(kind, config, locally):
    with pytest.raises(droste.UnsupportedError, match=next(iter(config))):
        kind(**config)


def test_the_planner_comes_from_variables(monkeypatch, locally, tmp_path):
    for name in ("DSPY_LM_MODEL", "DSPY_LLM_API_KEY", "DSPY_LM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert droste.compat.configure_planner_from_env() is False
    monkeypatch.setenv("DSPY_LM_MODEL", "openai/gpt-5-mini")
    assert droste.compat.configure_planner_from_env() is False
    monkeypatch.setenv("DSPY_LM_API_KEY", "key")
    monkeypatch.setenv("DSPY_LM_API_BASE", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("DSPY_LM_MAX_TOKENS", "77")
    try:
        assert droste.compat.configure_planner_from_env() is True
        pairs = dict(DaytonaInterpreter()._pairs)
        assert pairs["model"] == "openai/gpt-5-mini" and pairs["api-key"] == "key" and pairs[
            "base-url"].endswith(":1/v1")
        assert pairs["max-tokens"] == "77"
        monkeypatch.setenv("DSPY_LLM_API_KEY", "first")
        assert droste.compat.configure_planner_from_env() and dict(DaytonaInterpreter()._pairs)[
            "api-key"] == "first"
        monkeypatch.delenv("DSPY_LLM_API_KEY")
        # A file has what the environment has not.
        monkeypatch.delenv("DSPY_LM_API_KEY")
        (tmp_path / "env").write_text(
            "# a comment=1\nexport DSPY_LM_API_KEY='of the file'\nDSPY_LM_MODEL=gemini/other\n\n")
        assert droste.compat.configure_planner_from_env() is False
        assert droste.compat.configure_planner_from_env(env_file=str(tmp_path / "env")) is True
        assert {("model", "openai/gpt-5-mini"),
                ("api-key", "of the file")} <= set(DaytonaInterpreter()._pairs)
        monkeypatch.setenv("DSPY_LM_API_KEY", "key")
        droste.compat.configure_planner_from_env()
        # What the program says goes before that.
        own = DaytonaInterpreter(model="anthropic/x", anthropic_api_key="mine")._pairs
        assert ("model", "anthropic/x") in own and "api-key" not in dict(own)
        assert "model" not in dict(DaytonaInterpreter(sub_lm=lambda prompt: ["said"])._pairs)
        assert ("api-key", "mine") in DaytonaInterpreter(api_key="mine")._pairs and (
            "api-key", "key") not in DaytonaInterpreter(api_key="mine")._pairs
    finally:
        monkeypatch.delenv("DSPY_LM_MODEL")
        droste.compat.configure_planner_from_env()


NAVIGATOR = {"env": "local", "rules": "yes", "setup-each": "yes", "execute-timeout": "30",
             "execute-timeout-cap": "300", "broker-timeout": "30",
             "python": sys.executable, "max-recursion-depth": "0", "max-iterations": "30"}


def test_a_configuration_makes_an_rlm(tmp_path):
    """With what navigator's page has by default: the rules, 30 seconds of 300, setup code before
    each execution, the program's Python."""
    rlm = create_rlm_from_config(RLMConfig(
        llm=LLMConfig(backend="openai", model_name="gpt-4"),
        env=EnvironmentConfig(environment="local", environment_kwargs={
            "execute_timeout_s": 20.0, "broker_timeout_s": 40.0,
            "allowed_import_roots": {str(tmp_path)},
            "setup_code": "import math"})))
    assert dict(rlm._pairs) == {**NAVIGATOR, "model": "openai/gpt-4", "allow-import": str(tmp_path),
                                "standard-imports": "yes",
                                "execute-timeout": "20", "broker-timeout": "40",
                                "setup-code": "import math"}


def test_a_configurations_limits_are_the_rlms():
    """Also what only Droste has; what is not said is as navigator has it."""
    rlm = create_rlm_from_config(RLMConfig(
        llm=LLMConfig(backend="anthropic", model_name="m", backend_kwargs={"api_key": "k"}),
        max_depth=3, max_iterations=5, verbose=True,
        rlm_kwargs={"custom_tools": {"f": len}, "memory": "1G"}))
    assert dict(rlm._pairs) == {**NAVIGATOR, "model": "anthropic/m", "anthropic-api-key": "k",
                                "max-recursion-depth": "2",
                                "max-iterations": "5", "memory": "1G"}
    assert list(rlm._tools) == ["f"] and rlm._progress is True
    assert dict(create_rlm_from_config(RLMConfig())._pairs) == NAVIGATOR


def test_an_environment_elsewhere_is_refused_when_it_runs(monkeypatch):
    """With its name; nothing is started before."""
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)
    monkeypatch.setenv("DROSTE_MODAL_PYTHON", "/nowhere/python3")
    rlm = droste.RLM(lambda messages: "x", environment="modal",
                     environment_kwargs={"app_name": "a", "timeout": 600})
    with pytest.raises(droste.NotFoundError, match="bridge for modal: /nowhere"):
        rlm.run("q")


class InThisProcess:
    """An environment as the seed has one: code runs in a namespace here."""
    made = []

    def __init__(self, *, broker, broker_address, correlation_id, custom_option="default"):
        self.broker, self.option, self.id = broker, custom_option, correlation_id
        self.names, self.clean = {"llm_query": broker.complete}, False
        InThisProcess.made.append(self)
        self.names["llm_query_batched"] = broker.complete_batched

    def load_context(self, context_payload):
        self.names["context"] = context_payload

    def execute_code(self, code):
        import contextlib
        import io
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return ReplResult(stdout=out.getvalue(), stderr="", locals=dict(self.names),
                          execution_time=0.1,
                          correlation_id=self.id, rlm_calls=[])

    def cleanup(self):
        self.clean = True


def test_an_environment_in_python_runs_an_rlm():
    """Registered by a name: it gets the context, the blocks and a broker, and is cleaned up."""
    replies = iter(["Look.\n```repl\nn = len(context)\nprint(n, llm_query('half?'))\n```",
                    "So.\nFINAL_VAR(n)"])

    def model(messages):
        return "sub" if messages[-1]["content"] == "half?" else next(replies)

    InThisProcess.made.clear()
    registry.register("custom", InThisProcess)
    try:
        done = droste.RLM(model, environment="custom",
                          environment_kwargs={"custom_option": "mine"}).run("How long?", "abcd")
    finally:
        registry.unregister("custom")
    (made,) = InThisProcess.made
    assert done.answer == 4 and done.status == "answered" and done.usage["calls"] == 3
    assert made.option == "mine" and made.clean
    with pytest.raises(droste.ArgumentError, match="already has"):
        registry.register("local", InThisProcess)


@pytest.fixture
def custom():
    registry.register("custom", InThisProcess)
    InThisProcess.made.clear()
    yield InThisProcess.made
    registry.unregister("custom")


@pytest.mark.parametrize("replies, answer", [
    (["FINAL(at once)"], "at once"),
    (["```repl\nFINAL = print\nFINAL(1)\n```", "FINAL(two\nlines)"], "two\nlines"),
    (["```python\nx = 5\n```\nFINAL_VAR('x')"], 5), (["FINAL_VAR(nothing)", "FINAL(then)"], "then"),
    (["```py\nx = llm_query_batched(['FINAL(a)', 'b'])\n```\nFINAL_VAR(x)"], ["FINAL(a)", "b"]),
    (["```sh\nFINAL(no code)\n```\n", "FINAL(then)"], "then")])
def test_an_answer_may_be_given_outside_of_code(custom, replies, answer):
    """Alike in an environment that is written in Python and in Droste's own."""
    for environment in ("custom", "local"):
        left = list(replies)
        done = droste.RLM(lambda messages: left.pop(0) if len(messages) > 1
                          else messages[0]["content"],
                          environment=environment).run("q", "abc")
        assert (done.answer, done.status, done.iterations) == (answer, "answered", len(replies))
    assert custom[0].clean


def test_an_environment_in_python_ends_without_an_answer(custom):
    """After so many turns the model is asked for its last words; what was printed is shown, cut;
    and it is cleaned up."""
    seen = []

    def model(messages):
        seen.append(messages[-1]["content"])
        return "last words" if len(seen) == 3 else "```repl\nprint('x' * 50000)\n```"

    done = droste.RLM(model, environment="custom", max_iterations=2).run("q", "abc")
    assert (done.answer, done.status, done.iterations,
            done.usage["calls"]) == ("last words", "exhausted", 2, 3) and custom[0].clean
    assert "bytes left out" in seen[1] and len(seen[1]) < 30000


def test_module_names_are_replaced_and_restored():
    droste.compat.activate()
    try:
        from fleet_rlm import ModalInterpreter as modal
        from fleet_rlm.integrations.daytona.interpreter import DaytonaInterpreter as daytona
        from rlm.domain.ports import EnvironmentPort
        assert (modal is ModalInterpreter and daytona is DaytonaInterpreter
                and EnvironmentPort is droste.EnvironmentPort)
    finally:
        droste.compat.deactivate()
    assert "fleet_rlm" not in sys.modules


def test_a_real_package_of_the_name_comes_back(monkeypatch):
    """It is hidden meanwhile, however often that is asked for."""
    import types
    real = types.ModuleType("rlm")
    monkeypatch.setitem(sys.modules, "rlm", real)
    droste.compat.activate()
    assert "rlm.api.registries" in droste.compat.activate() and sys.modules["rlm"].RLM is droste.RLM
    droste.compat.deactivate()
    assert sys.modules["rlm"] is real and "rlm.api" not in sys.modules
    droste.compat.deactivate()
    assert sys.modules["rlm"] is real
