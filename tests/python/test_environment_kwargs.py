"""`environment_kwargs`: each name of another runtime has an effect or is refused by name, and so is
what no runtime knows."""
import sys

import pytest

import droste
from droste.compat import EnvironmentConfig, RLMConfig, create_rlm_from_config


def settings_of(environment, **kwargs):
    """What RLM(environment=…, environment_kwargs=…) comes to."""
    return dict(droste.RLM(lambda messages: "x", environment=environment,
                           environment_kwargs=kwargs)._pairs)


def configured(code, environment="local", model=None, **kwargs):
    """What an RLM of navigator's configuration comes to, whose model writes these cells; `shown` is
    what it was shown of them."""
    turns, shown = ["```repl\n%s\n```" % cell
                    for cell in ([code] if isinstance(code, str) else code)], []

    def root(messages):
        shown.append(messages[-1]["content"])
        return turns.pop(0)

    rlm = create_rlm_from_config(RLMConfig(env=EnvironmentConfig(environment, kwargs),
                                           rlm_kwargs={"model": root, "sub_model": model
                                                       or (lambda messages: "said")}))
    done = rlm.run("q", "context")
    done.shown = "\n".join(shown)
    return done


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)


# ---- refusals, and their twins

@pytest.mark.parametrize("environment", ["local", "docker", "modal", "prime", "daytona", "e2b"])
def test_unknown_options_are_refused(environment):
    """With the name of the environment and what that takes; a setting of Droste's own is not."""
    with pytest.raises(droste.ArgumentError,
                       match="'no_such_thing', which the environment '%s'" % environment):
        settings_of(environment, no_such_thing=1)
    assert settings_of(environment, output_limit=2048)["output-limit"] == "2048"


@pytest.mark.parametrize("environment", ["local", "docker", "modal", "prime", "daytona", "e2b"])
@pytest.mark.parametrize("word", ["context_payload", "lm_handler_address", "subcall_fn", "depth",
                                  "persistent", "custom_tools",
                                  "custom_sub_tools", "compaction", "max_concurrent_subcalls"])
def test_what_rlm_gives_by_itself_is_refused(environment, word):
    """It would do nothing; the message says where it is given instead. None is what it is by
    default."""
    with pytest.raises(droste.UnsupportedError, match=word):
        settings_of(environment, **{word: {"x": 1}})
    assert settings_of(environment, **{word: None})["env"] == environment


@pytest.mark.parametrize("word", ["cleanup_subprocess_timeout_s", "thread_join_timeout_s"])
def test_what_there_is_nothing_for_is_refused(word):
    with pytest.raises(droste.UnsupportedError, match=word):
        settings_of("docker", **{word: 5})


@pytest.mark.parametrize("environment, word, wrong, right, setting", [
    ("local", "execute_timeout_s", 0, 5, ("execute-timeout", "5")),
    ("local", "execute_timeout_s", "5", 5.0, ("execute-timeout", "5")),
    ("local", "execute_timeout_s", True, 1, ("execute-timeout", "1")),
    ("local", "execute_timeout_s", float("inf"), 1, ("execute-timeout", "1")),
    ("local", "execute_timeout_s", 301, 300, ("execute-timeout", "300")),
    ("local", "execute_timeout_cap_s", -1, 20, ("execute-timeout", "20")),
    ("local", "execute_timeout_cap_s", 21601, 21600, ("execute-timeout-cap", "21600")),
    ("local", "broker_timeout_s", None.__class__, 7, ("broker-timeout", "7")),
    ("local", "allowed_import_roots", "math", ["math"], ("allow-import", "math")),
    ("local", "allowed_import_roots", [""], {"math"}, ("standard-imports", "no")),
    ("local", "setup_code", 3, "x = 1", ("setup-code", "x = 1")),
    ("docker", "image", "", "mine:1", ("image", "mine:1")),
    ("docker", "subprocess_timeout_s", 0, 9, ("execute-timeout", "9")),
    ("docker", "proxy_http_timeout_s", -1, 9, ("broker-timeout", "9")),
    ("docker", "stop_grace_s", 1.5, 4, ("grace", "4")),
    ("docker", "allowed_import_roots", {"math"}, None, ("env", "docker")),
    ("prime", "docker_image", 1, "python:3.13", ("image", "python:3.13")),
    ("prime", "timeout_minutes", 0, 5, ("timeout", "300")),
    ("prime", "network_access", "yes", True, ("network", "open")),
    ("prime", "name", 1, "mine", ("label", "name=mine")),
    ("e2b", "timeout", 0, 300, ("timeout", "300")),
    ("modal", "secrets", ["s"], [], ("env", "modal")),
    ("daytona", "api_key", "k", None, ("env", "daytona")),
    ("daytona", "auto_stop_interval", -1, 5, ("idle-timeout", "300"))])
def test_a_wrong_value_is_refused_and_a_right_one_is_a_setting(environment, word, wrong, right,
                                                               setting):
    with pytest.raises(droste.Error, match=word):
        settings_of(environment, **{word: wrong})
    assert setting in settings_of(environment, **{word: right}).items()


def test_two_that_say_different_things_are_refused():
    """A setting of RLM's and one of environment_kwargs; of two timeouts, the run's and its
    sandbox's, the shorter one counts."""
    with pytest.raises(droste.ArgumentError, match="output_limit=4096.*2048"):
        droste.RLM("m", environment="local", environment_kwargs={"output_limit": 2048},
                   output_limit=4096)
    rlm = droste.RLM("m", environment="e2b", environment_kwargs={"timeout": 60}, max_timeout=30)
    assert dict(rlm._pairs)["timeout"] == "30"
    rlm = droste.RLM("m", environment="local", environment_kwargs={"execute_timeout_cap_s": 9.0},
                     execute_timeout=5)
    assert dict(rlm._pairs)["execute-timeout"] == "5"


def test_what_only_a_sandbox_elsewhere_has_is_dropped_where_the_user_runs_locally(monkeypatch):
    """DROSTE_ENVIRONMENT=local is the user's word for that; limits in time stay, and what nobody
    knows is refused as ever."""
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    found = settings_of("prime", docker_image="python:3.13", timeout_minutes=5, network_access=True,
                        name="x")
    assert found == {"env": "local", "timeout": "300"}
    assert settings_of("docker", image="x:1", subprocess_timeout_s=9)["execute-timeout"] == "9"
    with pytest.raises(droste.ArgumentError, match="no_such_thing"):
        settings_of("prime", no_such_thing=1)


# ---- the local environment of navigator's page

def test_whose_words_are_used_says_whose_environment_is_meant():
    """rlm's `local` has no limits and no rules; one of navigator's own names means navigator's."""
    assert settings_of("local", setup_code="x = 1") == {"env": "local", "setup-code": "x = 1"}
    assert settings_of("local", execute_timeout_s=5)["rules"] == "yes"
    assert settings_of("local", broker_timeout_s=5)["execute-timeout-cap"] == "300"


def test_the_rules_are_laid():
    """Imports, built-ins and open(); and the twin: what computes is there."""
    for code, why in (("import os", "rules of this session"),
                      ("eval('1')", "switched off by the rules"),
                      ("open('/etc/passwd')", "let cells read only below")):
        done = configured(
            [code, "import json, math\nopen('x', 'w').write('x')\nSUBMIT(answer=math.floor(1.5))"])
        assert why in done.shown and done.answer == 1, code


def test_modules_names_are_all_that_may_be_imported():
    """As in navigator: {"math"} leaves no json."""
    done = configured(["import json", "import math\nSUBMIT(answer=math.floor(1.5))"],
                      allowed_import_roots={"math"})
    assert done.answer == 1 and "do not allow the module 'json'" in done.shown
    assert configured("import json\nSUBMIT(answer=json.loads('2'))").answer == 2


def test_directories_come_to_what_may_be_imported(tmp_path):
    """As on navigator's page, whose example is a path."""
    tmp_path.chmod(0o755)
    (tmp_path / "of_mine.py").write_text("value = 5\n")
    code = "import json, of_mine\nSUBMIT(answer=of_mine.value)"
    assert configured(code, allowed_import_roots={str(tmp_path)}).answer == 5
    with pytest.warns(UserWarning, match="this directory does not exist"):
        done = configured([code, "SUBMIT(answer='not there')"],
                          allowed_import_roots={"/no/such/modules"})
    assert done.answer == "not there"


def test_the_setup_code_runs_before_each_execution():
    """What a cell does to its names is undone; in rlm's `local` it is kept."""
    code = ["print(x); x = 2", "SUBMIT(answer=x)"]
    assert configured(code, setup_code="x = 1").answer == 1
    turns = ["```repl\n%s\n```" % cell for cell in code]
    rlm = droste.RLM(lambda messages: turns.pop(0), environment="local",
                     environment_kwargs={"setup_code": "x = 1"})
    assert rlm.run("q").answer == 2


def test_a_cell_that_takes_too_long_ends_as_a_timeout_error():
    """And the run goes on."""
    done = configured(["while True: pass", "SUBMIT(answer=1)"], execute_timeout_s=2,
                      grace=60)
    assert done.answer == 1 and "TimeoutError: the cell ran longer than 2 s" in done.shown


def test_a_call_waits_only_so_long():
    """broker_timeout_s; the code goes on. The model answers only after the cell has ended."""
    import threading
    ended = threading.Event()

    def late(messages):
        ended.wait(60)
        return "late"

    try:
        done = configured(
            "try:\n    llm_query('a')\nexcept Exception as e:\n    SUBMIT(answer=str(e))",
            model=late, broker_timeout_s=0.5)
    finally:
        ended.set()
    assert "0.5 s (broker-timeout)" in done.answer


def test_the_code_runs_in_the_programs_own_python():
    """With the packages that are installed for it."""
    done = configured("import sys\nSUBMIT(answer=list(sys.version_info[:3]))")
    assert done.answer == list(sys.version_info[:3])
