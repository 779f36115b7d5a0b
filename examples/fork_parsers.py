#!/usr/bin/env python3
"""Loads a log once, and tries many parsers on it, each in a fork of the session.

    python3 examples/fork_parsers.py [MEGABYTES] [FORKS]        # default: 500 and 32

A fork has the log without loading it: it shares the session's memory, which is in huge pages, as
that makes forks of so large a session cheaper. Each fork tries its parser on a sample, lines from
all parts of the log. The best parser is kept, as the session that goes on, and counts the lines.
Prints the time of loading the log once and twice, and of everything.
"""
import asyncio
import itertools
import os
import sys
import tempfile
import time

from droste import Interpreter

LINE = '10.0.%d.%d - user%d [2026-11-24T02:%02d:%02d] "GET /item/%d HTTP/1.1" %d %d\n'
# What a model might propose: combinations of patterns for the parts of a line.
PARTS = [[r"(\S+) ", r"(\d+\.\d+\.\d+\.\d+) "], [r"- (\w+) ", r"- (user9\d*) "],
         [r"\[(.+?)\] ", r"\[(\d+-\d+-\d+) \d+:\d+\] "],
         [r'"(\S+) (\S+) \S+" ', r'"(POST) (\S+) \S+" '], [r"(\d{3}) (\d+)$", r"(200) (\d+)$"]]
TRY = """
import re
pattern = re.compile(r'''%s''')
step = max(1, len(log) // 20)
lines = []
for at in range(0, len(log), step):
    lines += log[at:at + 4000].splitlines()[1:-1]       # without those that are cut
SUBMIT(score=sum(bool(pattern.match(line)) for line in lines) / len(lines))
"""


def write_log(path, megabytes):
    piece = "".join(LINE % (n % 7, n % 251, n % 97, n % 60, n % 59, n, 404 if n % 3 else 200, n)
                    for n in range(10000))
    with open(path, "w") as file:
        for _ in range(max(1, megabytes * 1000000 // len(piece))):
            file.write(piece)


async def attempt(fork, pattern):
    result = await fork.execute(TRY % pattern)
    return result.score, pattern, fork


async def try_parsers(path, count):
    """Returns the seconds of loading, and the best (score, pattern, lines of the log)."""
    async with Interpreter(processes=4 * count + 64, huge_pages=True) as session:
        begun = time.perf_counter()
        session.load("log", path)
        loading = time.perf_counter() - begun
        patterns = ["".join(parts) for parts in itertools.islice(itertools.product(*PARTS), count)]
        forks = await session.fork(len(patterns))
        tried = await asyncio.gather(*map(attempt, forks, patterns))
        score, pattern, best = max(tried, key=lambda t: t[0])
        for fork in forks:
            if fork is not best:
                await fork.ashutdown()
        lines = (await best.execute("SUBMIT(lines=log.count('\\n'))")).lines
        await best.ashutdown()
        return loading, (score, pattern, lines)


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "access.log")
        write_log(path, megabytes)
        with Interpreter(huge_pages=True) as other:     # to have a second time of loading
            begun = time.perf_counter()
            other.load("log", path)
            again = time.perf_counter() - begun
        begun = time.perf_counter()
        loading, (score, pattern, lines) = asyncio.run(try_parsers(path, count))
        whole = time.perf_counter() - begun
    print("best of %d parsers: %.0f%% of the lines match %s" % (count, 100 * score, pattern))
    print("lines in the log: %d" % lines)
    print("loading it once: %.3f s; twice: %.3f s; loading it and %d forks: %.3f s"
          % (loading, loading + again, count, whole))


if __name__ == "__main__":
    main()
