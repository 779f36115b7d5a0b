"""An evaluation of inspect-ai whose commands run in a sandbox: `python inspect_task.py`.

Needs no key: the solver runs recorded commands. With `use_tools(bash(timeout=30)), generate()` in
its place, a model writes them.
"""
from inspect_ai import eval, Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import sandbox


@solver
def recorded(command: str):
    """Runs the command in the sample's sandbox; what it prints is the answer."""
    async def solve(state, generate):
        done = await sandbox().exec(["sh", "-c", command], timeout=30)
        state.output = ModelOutput.from_content("recorded", done.stdout + done.stderr)
        return state
    return solve


@task
def lines() -> Task:
    sample = Sample(input="How many lines has notes.txt?", target="3",
                    files={"notes.txt": "one\ntwo\nthree\n"})
    return Task(dataset=[sample], solver=recorded("wc -l < notes.txt"), scorer=includes(),
                sandbox="droste")


if __name__ == "__main__":
    log = eval(lines(), model="mockllm/model", display="none", log_dir="logs")[0]
    print(log.status, log.results.scores[0].metrics["accuracy"].value)
    print(log.samples[0].output.completion.strip())
