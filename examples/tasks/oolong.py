#!/usr/bin/python3
"""Counting over all of a long text, in the manner of OOLONG:
examples/tasks/oolong.py --out oolong [--count N] [--size CHARACTERS] [--seed N]

Each line of a context is a message with a date and a user. What it is about is not written there:
it has to be judged, line by line, and then counted, compared, or counted for some users or dates
only. (The messages are made here, from few patterns; the benchmark's own are real ones.)
"""
import datetime

import kit

ABOUT = {
    "food": ["My sister baked %s and nobody left a crumb.",
             "The soup was too salty, but the %s saved the dinner.",
             "Does anyone have a recipe for %s?"],
    "sport": ["We lost the match in the last minute because of %s.",
              "The coach says that %s wins the season.",
              "I ran ten kilometres and thought of %s."],
    "music": ["The choir rehearsed until %s came out right.",
              "Her new album has a song named after %s.",
              "The violinist broke a string during %s."],
    "weather": ["It rained all night, and then there was %s.", "The forecast says hail and %s.",
                "A fog as thick as %s lay over the bay."],
    "travel": ["Our train was late, so we missed the ferry and %s.",
               "At the airport they took my bag and %s.",
               "The hotel by the station had no beds, only %s."],
}
FILLERS = ["the apples", "a blue kite", "patience", "the second part", "an old coat", "grey wool",
           "lemon cake",
           "the third verse", "a long pause", "Tuesday"]


def messages(rng, size):
    labels, weights = list(ABOUT), [rng.randint(1, 6) for _ in ABOUT]
    users = rng.sample(range(10000, 99999), 12)
    found, length = [], 0
    while length < size:
        label = rng.choices(labels, weights)[0]
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(366))
        text = rng.choice(ABOUT[label]) % rng.choice(FILLERS)
        found.append((day, rng.choice(users), label, text))
        length += len(line(found[-1])) + 1
    return found


def line(message):
    day, user, _, text = message
    return "Date: %s || User: %d || Message: %s" % (day.isoformat(), user, text)


def count(found, label):
    return sum(message[2] == label for message in found)


def ask_count(rng, found):
    label = rng.choice(list(ABOUT))
    return "How many messages are about %s? Answer with a number." % label, count(found,
                                                                                  label), "numeric"


def ask_user(rng, found):
    label, user = rng.choice(list(ABOUT)), rng.choice(sorted({message[1] for message in found}))
    of_user = [message for message in found if message[1] == user]
    return ("How many messages of user %d are about %s? Answer with a number." % (user, label),
            count(of_user, label),
            "numeric")


def ask_dates(rng, found):
    label, month = rng.choice(list(ABOUT)), rng.randint(2, 11)
    before = [message for message in found if message[0] < datetime.date(2024, month, 1)]
    return ("How many messages from before 2024-%02d-01 are about %s? Answer with a number."
            % (month, label),
            count(before, label), "numeric")


def ask_most(rng, found):
    counts = {label: count(found, label) for label in ABOUT}
    best = [label for label in ABOUT if counts[label] == max(counts.values())]
    return (
        "Of food, sport, music, weather and travel, what are the most messages about? Answer with "
        "that word alone.",
        best, "exact")


def ask_compared(rng, found):
    a, b = rng.sample(list(ABOUT), 2)
    more = count(found, a) - count(found, b)
    return (
        "Are more, fewer or equally many messages about %s than about %s? Answer with 'more', "
        "'fewer' or 'equal'."
        % (a, b), "more" if more > 0 else "fewer" if more < 0 else "equal", "exact")


ASKS = [ask_count, ask_most, ask_user, ask_compared, ask_dates]


def make(given):
    def one(rng, number):
        found = messages(rng, given.size)
        ask = ASKS[number % len(ASKS)]
        question, expected, grader = ask(rng, found)
        intro = "Each line is one message. "
        return ("".join(line(message) + "\n" for message in found), intro + question, expected,
                grader,
                {"kind": ask.__name__[len("ask_"):], "messages": len(found)})
    return one


if __name__ == "__main__":
    given = kit.arguments("Tasks in which every line of a long text counts.", 50000, count=10)
    kit.write(given, make(given))
