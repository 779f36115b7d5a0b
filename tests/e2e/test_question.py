"""The question of `droste run`: an argument, a flag, a file or standard input."""
import subprocess

import pytest

from harness import PATIENCE, answered, repl

SAID = repl("SUBMIT(answer='fine')")


def asked(droste):
    """The questions of the recorded runs."""
    return [line["question"] for line in droste.lines("run")]


@pytest.mark.parametrize("words", [
    ["What is it?"], ["-q", "What is it?"], ["--question", "What is it?"], ["@question.txt"],
    ["--question", "@question.txt"], ["-"],
], ids=" ".join)
def test_the_question_may_stand_in_each_place(droste, replay, words):
    """Its text is the same everywhere; the newline at the end of a file is not part of it."""
    with open(droste.home + "/question.txt", "w") as file:
        file.write("What is it?\n")
    stdin = "What is it?\n" if words == ["-"] else None
    answered(droste("run", *words, "--json", "--model", replay(SAID), input=stdin), "fine")
    assert asked(droste) == ["What is it?"]


def test_a_piped_context_goes_with_a_positional_question(droste, replay):
    """`journalctl | droste run QUESTION --context -`."""
    model = replay(repl("SUBMIT(answer=len(context.split()))"))
    result = droste("run", "How many?", "--context", "-", "--json", "--model", model,
                    input="one two")
    answered(result, 2)


@pytest.mark.parametrize("words, advice", [
    (["What?"], "--context -"), ([], "use `-` as the question"),
    (["one", "two"], "unexpected argument 'two'"), (["one", "-q", "two"], "two questions"),
    (["@nowhere.txt", "--context", "-"], "nowhere.txt"),
    (["-", "--context", "-"], "either the question or a context"),
])
def test_a_question_that_is_not_clear_is_refused(droste, replay, words, advice):
    """Piped input that nothing reads too; the message says what to do, and no model is asked."""
    result = droste("run", *words, "--model", replay(SAID), input="some data")
    assert result.status == 2 and result.out == "" and advice in result.err
    assert asked(droste) == []


def test_an_empty_question_is_refused(droste, replay):
    """From standard input as from the command line."""
    for words, stdin in ((["-"], "\n"), ([""], None)):
        result = droste("run", *words, "--model", replay(SAID), input=stdin)
        assert result.status == 2 and "the question is empty" in result.err


def test_a_reader_that_leaves_early_ends_help_quietly(droste):
    """`droste exec --help all | head -1`."""
    shell = 'set -o pipefail; "$0" exec --help all | head -1; echo "$?"'
    done = subprocess.run(["bash", "-c", shell, droste.program], capture_output=True, text=True,
                          timeout=PATIENCE)
    first, status = done.stdout.splitlines()
    assert first.startswith("usage: droste exec") and done.stderr == "" and status in ("0", "141")
