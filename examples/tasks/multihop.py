#!/usr/bin/python3
"""Facts that lead from one to the next: examples/tasks/multihop.py --out multihop [--count N]
[--size CHARACTERS] [--seed N]

A context is a register of people. A question names one of them and a way of two to five steps: "the
doctor of the neighbour of Ada Hill". No line has more than one step, the lines are shuffled, and
all that is written of others leads elsewhere.
"""
import kit

FIRST = ["Ada", "Ben", "Cleo", "Dan", "Edda", "Finn", "Greta", "Hugo", "Ines", "Jon", "Kaja",
         "Lars", "Mira", "Nils",
         "Olga", "Paul", "Rita", "Sven", "Tess", "Ulf", "Vera", "Wim"]
LAST = ["Hill", "Marsh", "Stone", "Reed", "Field", "Brook", "Thorn", "Lake", "Moss", "Wood",
        "Heath", "Ford", "Dale",
        "Combe", "Shaw", "Holt", "Firth", "Ness", "Barrow", "Croft"]
STEPS = ["doctor", "neighbour", "teacher", "employer", "landlord", "piano tuner"]
TOWNS = ["Arnfell", "Brackwater", "Cold Ness", "Dunmorra", "Eastholm", "Farrow", "Gullrock",
         "Highmoor"]


def people(rng, size):
    """As many as fill the context: each has a line of about 45 characters for each step, and one
    for a town."""
    names = ["%s %s" % (first, last) for first in FIRST for last in LAST]
    names += ["%s %s-%s" % (first, a, b) for first in FIRST for a in LAST for b in LAST if a != b]
    rng.shuffle(names)
    return names[:max(8, min(len(names), size // (45 * (len(STEPS) + 1))))]


def make(given):
    def one(rng, number):
        names = people(rng, given.size)
        relations = {(name, step):
                     rng.choice([other for other in names[:64] + [names[-1]] if other != name])
                     for name in names for step in STEPS}
        towns = {name: rng.choice(TOWNS) for name in names}
        lines = ["The %s of %s is %s." % (step, name, other)
                 for (name, step), other in relations.items()]
        lines += ["%s was born in %s." % (name, town) for name, town in towns.items()]
        rng.shuffle(lines)
        hops = 2 + number % 4
        path = [rng.choice(STEPS) for _ in range(hops)]
        start = person = rng.choice(names)
        for step in path:
            person = relations[person, step]
        way = "".join("the %s of " % step for step in reversed(path)) + start
        question = "In which town was %s born? Answer with the town alone." % way
        return "\n".join(lines) + "\n", question, towns[person], "exact", {"hops": hops + 1}
    return one


if __name__ == "__main__":
    given = kit.arguments("Tasks in which one fact leads to the next.", 60000)
    kit.write(given, make(given))
