"""Two episodes of an environment of SkyRL Gym, whose actions are Python.

    python skyrl_episodes.py

Needs no key: the policy is a recording. SkyRL's trainer calls the environment in the same way, with
the replies of the model that it trains.
"""
import skyrl_gym

from droste.integrations.skyrl import PythonEnv

ROWS = [{"question": "What is the sum of the primes below 30?",
         "reward_model": {"ground_truth": 129}},
        {"question": "What is 2 to the 20th?", "reward_model": {"ground_truth": 1048576}}]
REPLIES = [["```python\nprimes = [n for n in range(2, 30) if all(n % k for k in range(2, n))]\n"
            "print(primes)\n```", "```python\nSUBMIT(sum(primes))\n```"],
           ["```python\nSUBMIT(2 * 20)\n```"]]


class Sums(PythonEnv):
    def score(self, answer):
        return float(answer == self.extras["reward_model"]["ground_truth"])


def play(row, replies):
    """One episode: gives its reward."""
    env = skyrl_gym.make("sums", env_config={"max_turns": 4}, extras=row)
    env.init([{"role": "user", "content": row["question"]}])
    try:
        for reply in replies:
            step = env.step(reply)
            for seen in step["observations"]:
                print("  seen:", seen["content"].strip())
            if step["done"]:
                return step["reward"]
    finally:
        env.close()


if __name__ == "__main__":
    skyrl_gym.register(id="sums", entry_point=Sums)
    for row, replies in zip(ROWS, REPLIES):
        print(row["question"])
        print("  reward:", play(row, replies))
