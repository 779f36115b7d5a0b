#!/usr/bin/python3
"""One fact in a long text: examples/tasks/needle.py --out needle [--count N] [--size CHARACTERS]
[--seed N]

The text is small talk about weather stations. Somewhere in it stands the code of one of them, and
elsewhere the codes of others, which are not asked for. The depth at which the needle lies goes
evenly from the beginning to the end over the tasks.
"""
import kit

PLACES = ["Arnfell", "Brackwater", "Cold Ness", "Dunmorra", "Eastholm", "Farrow", "Gullrock",
          "Highmoor", "Inchbrae",
          "Jarnvik", "Kestrel", "Longstrand", "Merrow", "Northgate", "Oxbow", "Pellmere"]
SUBJECTS = ["The observer at %s", "The old barometer of %s", "A visitor to %s", "The keeper of %s",
            "The road to %s"]
VERBS = ["wrote of", "was known for", "had little to say about", "kept a diary on",
         "could not explain"]
THINGS = ["the fog in the morning", "a week of rain", "the colour of the ice",
          "three storms in April",
          "a wind from the north", "the silence after the snow", "birds that came too early"]


def sentence(rng):
    return "%s %s %s." % (rng.choice(SUBJECTS) % rng.choice(PLACES), rng.choice(VERBS),
                          rng.choice(THINGS))


def fact(place, code):
    return "The access code of station %s is %s." % (place, code)


def make(given):
    def one(rng, number):
        places = rng.sample(PLACES, 4)
        codes = rng.sample(range(1000000, 10000000), 4)
        lines, size = [], 0
        while size < given.size:
            lines.append(sentence(rng))
            size += len(lines[-1]) + 1
        depth = number / max(1, given.count - 1)
        for place, code in zip(places[1:], codes[1:]):
            lines.insert(rng.randrange(len(lines) + 1), fact(place, code))
        lines.insert(round(depth * len(lines)), fact(places[0], codes[0]))
        question = "What is the access code of station %s? Answer with the code alone." % places[0]
        return "\n".join(lines) + "\n", question, str(codes[0]), "exact", {"depth": round(depth, 3)}
    return one


if __name__ == "__main__":
    given = kit.arguments("Tasks in which one fact is to be found in a long text.", 200000)
    kit.write(given, make(given))
