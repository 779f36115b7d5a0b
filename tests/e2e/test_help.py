"""Help in two sizes, and suggestions for what was mistyped."""
import re

import pytest


@pytest.mark.parametrize("words, meant", [
    (["rnu"], "did you mean run?"),
    (["help", "exce"], "did you mean exec?"),
    (["exec", "-c", "1", "--memroy", "1G"], "did you mean --memory?"),
    (["run", "--modle=m", "q"], "did you mean --model?"),
    (["runs", "ls", "--limt", "3"], "did you mean --limit?"),
])
def test_typing_mistakes_get_a_suggestion(droste, words, meant):
    """In commands and flags; a word that resembles none gets no suggestion."""
    result = droste(*words)
    assert result.status == 2 and meant in result.err and result.out == ""
    assert "did you mean" not in droste("frobnicate").err


def test_typing_mistakes_in_the_configuration_get_a_suggestion(droste):
    """With the file and the line."""
    droste.configure("memory = 1G\nmodle = m\n")
    result = droste("exec", "-c", "1")
    assert result.status == 2 and "line 2" in result.err and "did you mean model?" in result.err
    droste.configure("memory = 1G\nmax-cost = 1\n")
    assert droste("exec", "-c", "print(1)").out == "1\n"


def flags(text, until):
    """The names of a command's own flags."""
    return re.findall(r"^  --?([a-z-]+)",
                      text.partition(until)[0].partition("\nFlags:")[2].partition("\n\n")[0], re.M)


def test_help_fits_one_screen(droste):
    """Of 80 columns and 45 rows, for every command; --help all has the rest."""
    commands = re.findall(r"^  ([a-z-]+) +\S", droste("--help").out, re.M)
    assert len(commands) > 12
    for command in commands:
        short, whole = droste(command, "--help"), droste("help", command, "all")
        assert short.status == whole.status == 0
        assert sum(1 + max(0, len(line) - 1) // 80
                   for line in short.out.splitlines()) <= 45, command
        assert "'droste %s --help all'" % command in short.out
        assert whole.out == droste(command, "--help", "all").out
        assert flags(short.out, "\nMost used settings:") == flags(whole.out, "\nSettings "), command
    assert droste("exec", "--help").out.count("\n  --") < 20 < droste("exec", "--help",
                                                                      "all").out.count("\n  --")
