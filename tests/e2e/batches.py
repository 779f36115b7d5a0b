"""The files of `droste batch`: tasks and results."""
import json
import os

from harness import repl

LENGTH = repl("SUBMIT(answer=len(context))")


def tasks(droste, *lines, name="tasks.jsonl"):
    """A file of tasks; dicts are lines, strings are lines as they stand."""
    path = os.path.join(droste.home, name)
    with open(path, "w") as f:
        for line in lines:
            f.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path


def some(count, **more):
    return [{"id": "t%d" % i, "question": "How long?", "context_text": "x" * i, "expected": i,
             **more}
            for i in range(count)]


def results(droste, name="results.jsonl"):
    with open(os.path.join(droste.home, name)) as f:
        text = f.read()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]
