"""What guests and models wrote does not act on a terminal, in machine-readable output either."""
import json

import pytest
from harness import write_replay
from droste_cli import Terminal

# DEL, C1 (CSI, OSC), direction and line controls, as text and as JSON has it.
NASTY = "a\x7fb\x9b31mc\x9d0;d\u202ee\u2066f\u200fg\u061ch\u2028i"
DANGEROUS = set("\x7f\x9b\x9d\u202e\u2066\u200f\u061c\u2028\x1b")


def output_of(tmp_path, *words):
    """All that the program says on a terminal until it ends."""
    terminal = Terminal(tmp_path, *words)
    try:
        while terminal.read(60):
            pass
    finally:
        terminal.close()
    return terminal.output


@pytest.mark.parametrize("code", ["print({0!a})", "SUBMIT(x={0!a})", "raise ValueError({0!a})"])
def test_json_of_a_cell_is_json_and_harmless(tmp_path, code):
    """Whatever field it comes in, it is escaped, and a reader of JSON gets what the guest wrote."""
    output = output_of(tmp_path, "exec", "--json", "--python", "/usr/bin/python3", "-c",
                       code.format(NASTY))
    assert not DANGEROUS & set(output)
    result = json.loads(output)
    assert NASTY in json.dumps(result, ensure_ascii=False) or repr(NASTY)[1:-1] in str(result)


def test_json_of_a_run_and_its_record_are_harmless(tmp_path):
    """The answer, the record's list, one run of it and its export."""
    model = write_replay(tmp_path / "replay.jsonl", "```repl\nSUBMIT(%a)\n```" % NASTY)
    output = output_of(tmp_path, "run", "--json", "--quiet", "--question", NASTY, "--model", model,
                       "--python", "/usr/bin/python3")
    assert not DANGEROUS & set(output) and json.loads(output.splitlines()[-1])
    for words in (["runs", "ls", "--json"], ["runs", "export", "--all"]):
        output = output_of(tmp_path, *words)
        assert not DANGEROUS & set(output) and "\\u202e" in output
        for line in output.splitlines():
            json.loads(line)
