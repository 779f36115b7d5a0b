"""The generators of examples/tasks: what they expect is what their contexts say, read by somebody
else.

Each task is solved in a sandbox by code that knows the question and the context only, written here
without a look at how the answer was made; `droste batch` runs and grades it.
"""
import json
import os
import subprocess

import pytest
from harness import PYTHON, ROOT, repl, write_replay

NEEDLE = r"""
import re
place = re.search(r'station (.+?)\?', question).group(1)
(code,) = re.findall('station %s is ([0-9]{7})' % re.escape(place), context)
SUBMIT(answer=code)
"""

# A message is about what its words are of; no word is in two lists.
OOLONG = r"""
import re
words = {'food': 'baked soup recipe', 'sport': 'match coach kilometres', 'music': 'choir album violinist',
         'weather': 'rained forecast fog', 'travel': 'ferry airport hotel'}
def about(text):
    (label,) = [label for label in words if set(words[label].split()) & set(re.findall('[a-z]+', text.lower()))]
    return label
rows = [re.fullmatch(r'Date: (\S+) \|\| User: (\d+) \|\| Message: (.*)', line).groups() for line in context.splitlines()]
rows = [(date, user, about(text)) for date, user, text in rows]
of = lambda label, rows: sum(1 for row in rows if row[2] == label)
ask = question.split('one message. ')[1]
user, before = re.search(r'user (\d+)', ask), re.search(r'before (\S+) are', ask)
asked = re.findall('food|sport|music|weather|travel', ask)
if ask.startswith('How many'):
    rows = [r for r in rows if (not user or r[1] == user.group(1)) and (not before or r[0] < before.group(1))]
    SUBMIT(answer=of(asked[0], rows))
elif ask.startswith('Are more'):
    a, b = of(asked[0], rows), of(asked[1], rows)
    SUBMIT(answer='equal' if a == b else 'more' if a > b else 'fewer')
else:
    SUBMIT(answer=max(asked, key=lambda label: of(label, rows)))
"""

MULTIHOP = r"""
import re
way = re.search('was (.*) born', question).group(1)
*steps, person = re.split(' of ', way)
for step in reversed(steps):
    (person,) = re.findall('^%s of %s is (.*)[.]$' % (step.replace('the ', 'The '), re.escape(person)), context, re.M)
(town,) = re.findall('^%s was born in (.*)[.]$' % re.escape(person), context, re.M)
SUBMIT(answer=town)
"""

SOLVERS = {"needle": NEEDLE, "oolong": OOLONG, "multihop": MULTIHOP}


def generate(name, out, *flags):
    subprocess.run([PYTHON, "-B", os.path.join(ROOT, "examples", "tasks", name + ".py"), "--out",
                    str(out), *flags],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(str(out), "tasks.jsonl")) as f:
        return [json.loads(line) for line in f]


@pytest.mark.parametrize("name", SOLVERS)
def test_what_is_expected_is_what_the_context_says(droste, tmp_path, name):
    """All are solved by reading; and one that is changed in the context is not what was expected
    any more."""
    tasks = generate(name, tmp_path / "made", "--count", "20", "--size", "20000", "--seed", "5")
    assert len(tasks) == 20 and len({task["question"] for task in tasks}) > 5
    model = write_replay(tmp_path / "model", *[
        {"content": repl("question = %r\n%s" % (task["question"], SOLVERS[name])),
         "contains": task["question"],
         "repeat": True} for task in tasks])
    r = droste("batch", tmp_path / "made" / "tasks.jsonl", "--out", "results.jsonl", "--model",
               model, "--json")
    assert r.status == 0 and (r.json["graded"], r.json["passed"]) == (20, 20), r
    for task in tasks:
        size = os.path.getsize(tmp_path / "made" / task["context"])
        assert 15000 < size < 30000


@pytest.mark.parametrize("name", SOLVERS)
def test_a_wrong_answer_does_not_pass(droste, tmp_path, name):
    """What the generated tasks expect is not text that anything passes for."""
    generate(name, tmp_path / "made", "--count", "4", "--size", "5000")
    model = write_replay(tmp_path / "model",
                         {"content": repl("SUBMIT(answer='nobody knows -1')"), "repeat": True})
    r = droste("batch", tmp_path / "made" / "tasks.jsonl", "--out", "results.jsonl", "--model",
               model, "--json")
    assert r.status == 0 and (r.json["graded"], r.json["passed"]) == (4, 0), r


@pytest.mark.parametrize("name", SOLVERS)
def test_the_same_seed_makes_the_same_files(tmp_path, name):
    """And another one others, of another answer."""
    flags = ["--count", "3", "--size", "3000", "--seed"]
    made = [generate(name, tmp_path / str(i), *flags, seed)
            for i, seed in enumerate(["7", "7", "8"])]
    text = [[(tmp_path / str(i) / task["context"]).read_bytes() for task in made[i]]
            for i in range(3)]
    assert made[0] == made[1] and text[0] == text[1]
    assert made[0] != made[2] and text[0] != text[2]


def test_needles_lie_at_all_depths(tmp_path):
    """The first task's at the beginning, the last one's at the end."""
    tasks = generate("needle", tmp_path, "--count", "5", "--size", "10000")
    for i, task in enumerate(tasks):
        text = (tmp_path / task["context"]).read_text()
        assert abs(text.index(task["expected"]) / len(text) - i / 4) < 0.05


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("flags", [("--count", "0"), ("--size", "10")])
def test_what_cannot_be_made_is_refused(tmp_path, name, flags):
    """And no directory is left of the attempt."""
    with pytest.raises(subprocess.CalledProcessError):
        generate(name, tmp_path / "made", *flags)
    assert not (tmp_path / "made").exists()
