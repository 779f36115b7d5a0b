"""PythonEnv under SkyRL Gym's own registry."""
import pytest

skyrl_gym = pytest.importorskip("skyrl_gym", exc_type=ImportError)

from droste.integrations.skyrl import PythonEnv  # noqa: E402

PROMPT = [{"role": "user", "content": "What is 2 + 3?"}]


class Sums(PythonEnv):
    def score(self, answer):
        return float(answer == self.extras["reward_model"]["ground_truth"])


@pytest.fixture(scope="module", autouse=True)
def registered():
    skyrl_gym.register(id="sums", entry_point=Sums)


@pytest.fixture
def env():
    made = skyrl_gym.make("sums", env_config={"max_turns": 3},
                          extras={"reward_model": {"ground_truth": 5}})
    assert made.init(PROMPT) == (PROMPT, {})
    yield made
    made.close()


def act(env, code):
    return env.step("Thus:\n```python\n%s\n```" % code)


def test_variables_stay_and_an_answer_has_its_reward(env):
    first = act(env, "x = 2\nprint('seen', x)")
    assert first["observations"] == [{"role": "user", "content": "seen 2\n"}]
    assert (first["done"], first["reward"]) == (False, 0.0)
    last = act(env, "SUBMIT(x + 3)")
    assert (last["done"], last["reward"], last["observations"]) == (True, 1.0, [])
    assert last["metadata"]["answer"] == 5 and env.interpreter is None


def test_a_wrong_answer_has_none(env):
    last = act(env, "SUBMIT(4)")
    assert (last["done"], last["reward"]) == (True, 0.0)


def test_errors_and_replies_without_code_are_observations(env):
    assert "ZeroDivisionError" in act(env, "1 / 0")["observations"][0]["content"]
    step = env.step("I think it is 5.")
    assert "```python" in step["observations"][0]["content"] and not step["done"]
    last = act(env, "pass")     # the third turn
    assert (last["done"], last["reward"]) == (True, 0.0)


def test_episodes_share_nothing(env):
    act(env, "x = 1")
    env.init(PROMPT)
    assert "NameError" in act(env, "print(x)")["observations"][0]["content"]


def test_code_runs_in_a_sandbox(env):
    shown = act(env, "import os\nprint(os.path.exists(%r))" % __file__)
    assert shown["observations"][0]["content"] == "False\n"


def test_the_example_plays_its_episodes(run_example):
    said = run_example("skyrl_episodes.py")
    assert "seen: [2, 3, 5, 7" in said
    assert [line.strip() for line in said.splitlines() if "reward" in line] == [
        "reward: 1.0", "reward: 0.0"]
