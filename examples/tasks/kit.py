"""What the generators share: their flags, and the files that they write."""
import argparse
import json
import os
import random


def arguments(what, size, count=12):
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="where tasks.jsonl and the contexts go")
    parser.add_argument("--count", type=int, default=count, help="tasks [%(default)s]")
    parser.add_argument("--size", type=int, default=size,
                        help="characters of each context, about [%(default)s]")
    parser.add_argument("--seed", type=int, default=1,
                        help="the same seed makes the same files [%(default)s]")
    given = parser.parse_args()
    if given.count < 1 or given.size < 1000:
        parser.error("--count is at least 1, --size at least 1000")
    return given


def write(given, make):
    """make(random, number) gives (context, question, expected, grader, meta) of each task."""
    os.makedirs(os.path.join(given.out, "contexts"), exist_ok=True)
    with open(os.path.join(given.out, "tasks.jsonl"), "w", encoding="utf-8") as tasks:
        for number in range(given.count):
            context, question, expected, grader, meta = make(
                random.Random("%d/%d" % (given.seed, number)), number)
            name = os.path.join("contexts", "%04d.txt" % number)
            with open(os.path.join(given.out, name), "w", encoding="utf-8") as f:
                f.write(context)
            tasks.write(json.dumps({"id": "%04d" % number, "question": question, "context": name,
                                    "expected": expected,
                                    "grader": grader, "meta": meta}) + "\n")
    print("%d tasks in %s" % (given.count, os.path.join(given.out, "tasks.jsonl")))
