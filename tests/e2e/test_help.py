"""Help in two sizes, and suggestions for what was mistyped."""
import re

import pytest


@pytest.mark.parametrize("words, meant", [
    (["rnu"], "did you mean run?"),
    (["help", "exce"], "did you mean exec?"),
    (["exec", "-c", "1", "--memroy", "1G"], "did you mean --memory?"),
    (["run", "--modle=m", "q"], "did you mean --model?"),
    (["runs", "ls", "--limt", "3"], "did you mean --limit?"),
    (["exec", "-c", "1", "--env", "dokcer"], "did you mean docker?"),
    (["exec", "-c", "1", "--isolation", "ligth"], "did you mean light?"),
    (["exec", "-c", "1", "--context", ".", "--context-type", "jsno"], "did you mean json?"),
    (["exec", "-c", "1", "--layout", "daytnoa"], "did you mean daytona?"),
    (["exec", "-c", "1", "--checkpoint", "atuo"], "did you mean auto?"),
    (["run", "q", "--model", "replya:x.jsonl"], "did you mean replay:?"),
    (["run", "q", "--model", "anthropic:claude"], "did you mean anthropic/?"),
    (["run", "q", "--model", "opnai/gpt-5"], "did you mean openai?"),
    (["bench", "strat"], "did you mean start?"),
    (["completion", "bsh"], "did you mean bash?"),
    (["runs", "export", "x", "--format", "htlm"], "did you mean html?"),
    (["keys", "create", "x", "--scopes", "raed"], "did you mean read?"),
    (["packages", "build", "numpy"], "as a setting: --packages 'numpy'"),
    (["serve", "--workers", "2", "--tokens-per-minute", "9"], "use --join or one worker"),
])
def test_typing_mistakes_get_a_suggestion(droste, words, meant):
    """In commands, flags and values; a word that resembles none gets no suggestion."""
    result = droste(*words)
    assert result.status == 2 and meant in result.err and result.out == ""
    for others in (["frobnicate"], ["exec", "-c", "1", "--env", "slurm"],
                   ["run", "q", "--model", "llama3:8b"]):
        assert "did you mean" not in droste(*others).err


def test_help_all_lists_every_setting(droste):
    """In both forms, and no more commands than the overview."""
    whole = droste("help", "all")
    assert whole.status == 0 and whole.out == droste("--help", "all").out
    overview = droste("help").out
    assert set(re.findall(r"^  [a-z-]+ .*", overview, re.M)) <= set(whole.out.splitlines())
    settings = re.findall(r"^  --([a-z-]+) ", droste("exec", "--help", "all").out, re.M)
    assert len(settings) > 90 and "--max-cost" in whole.out and "--" not in overview.split("'")[0]
    assert "unknown command 'al'" in droste("help", "al").err


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


def test_help_of_a_verb_has_its_flags_only(droste):
    """Those that name it, without its name, and those of all verbs."""
    text = droste("runs", "show", "--help").out
    assert flags(text.replace("Flags of show", "Flags"), "\nExamples") == [
        "full", "save-results", "save-artifacts", "json", "database", "server"], text
    assert " shorten nothing, and show prompts, too." in text and " show: " not in text
    assert "\nFlags:\n" in droste("runs", "--help").out


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
        assert "..." not in re.sub(r"\busage: .*?\n\n|Examples:.*|\.\.\.\]| \S+,\.\.\.", "",
                                   short.out, flags=re.S), command      # no sentence is cut
        assert whole.out == droste(command, "--help", "all").out
        assert max(map(len, short.out.partition("Examples:")[0].splitlines())) <= 80, command
        assert flags(short.out, "\nMost used settings:") == flags(whole.out, "\nSettings "), command
    assert droste("exec", "--help").out.count("\n  --") < 21 < droste("exec", "--help",
                                                                      "all").out.count("\n  --")
