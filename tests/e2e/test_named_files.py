"""Files that a user names: Droste reads only regular ones, so no path blocks a program's loop."""
import json
import os
import subprocess

import pytest

from harness import PATIENCE, repl, write_replay

ANSWER = repl("SUBMIT(output=1)")


@pytest.fixture
def place(tmp_path, droste):
    """A directory with a FIFO that has no writer, and one valid file of each kind."""
    os.mkfifo(tmp_path / "fifo")
    files = {"code.py": "print(6 * 7)\n", "schema":
             '{"type": "object", "properties": {"output": {"type": "integer"}}}',
             "tools.py": 'def one():\n    "One."\n    return 1\n', "data": "[1]",
             "prices": "test 1 2\n", "empty": "",
             "tasks": '{"id": "a", "question": "q"}\n', "config": "timeout = 30\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "program").write_text("#!/bin/sh\necho 1\n")
    (tmp_path / "program").chmod(0o755)
    write_replay(tmp_path / "model", {"content": ANSWER, "repeat": True})
    assert droste("volume", "create", "v").status == 0
    return tmp_path


EXEC, RUN = ["exec", "-c", "print(42)"], ["run", "--question", "q", "--model", "replay:MODEL"]
NAMED = {  # the arguments with a path for PATH; a file that is good there
    "code": (["exec", "PATH"], "code.py"),
    "setup-code": ([*EXEC, "--setup-code", "@PATH"], "code.py"),
    "answer-schema": ([*RUN, "--answer-schema", "PATH"], "schema"),
    "instructions": ([*RUN, "--instructions", "@PATH"], "config"),
    "tools": ([*EXEC, "--tools", "PATH"], "tools.py"),
    "tool-data": ([*EXEC, "--tool-data", "d=PATH"], "data"),
    "tool": ([*EXEC, "--tool", "t=PATH"], "program"),
    "prices": ([*RUN, "--prices", "PATH"], "prices"),
    "record": ([*RUN, "--record", "PATH"], "empty"),
    "replay": (["run", "--question", "q", "--model", "replay:PATH"], "model"),
    "tasks": (["batch", "PATH", "--out", "OUT", "--model", "replay:MODEL"], "tasks"),
    "results": (["batch", "TASKS", "--out", "PATH", "--model", "replay:MODEL"], "empty"),
    "context": ([*EXEC, "--context", "PATH"], "data"),
    "context-path": ([*EXEC, "--context-path", "PATH"], "data"),
    "volume put": (["volume", "put", "v", "PATH", "copy"], "data"),
    "interpreter": ([*EXEC, "--python", "PATH"], "/usr/bin/python3"),
}


def arguments(words, place, path):
    names = {"PATH": str(path), "MODEL": str(place / "model"), "OUT": str(place / "out"),
             "TASKS": str(place / "tasks")}
    for name, value in names.items():
        words = [word.replace(name, value) for word in words]
    return words


@pytest.mark.parametrize("name", NAMED)
def test_a_fifo_is_refused_and_a_file_is_read(droste, place, name):
    """Reading a FIFO without a writer would wait for ever. Droste refuses it by name wherever a
    path may stand; it reads a regular file in the same place."""
    words, good = NAMED[name]
    refused = droste(*arguments(words, place, place / "fifo"))
    assert refused.status in (1, 2) and str(place / "fifo") in refused.err, refused
    assert name in ("interpreter",
                    "tool") or "is a pipe: give a regular file" in refused.err, refused
    read = droste(*arguments(words, place, place / good))
    assert read.status == 0, read


def test_the_configuration_may_be_dev_null(droste, place):
    """DROSTE_CONFIG may be a file or /dev/null, but no FIFO and no other device."""
    for path, status in (("config", 0), ("/dev/null", 0), ("fifo", 2), ("/dev/zero", 2)):
        result = droste(*EXEC, env={"DROSTE_CONFIG": str(place / path)})
        assert result.status == status, result
        assert status == 0 or "give a regular file" in result.err


@pytest.mark.parametrize("flag", ["--ca-file", "--cache"])
def test_a_client_of_a_server_reads_files_only(droste, place, flag):
    """A FIFO as the cache, or as certificates (libcurl would wait for it on the loop's thread), is
    refused before anything connects; with a file, connecting fails: nothing listens on the port."""
    words = ["run", "--question", "q", "--model", "openai:m", "--base-url", "https://127.0.0.1:9",
             "--retries", "0"]
    for path, complaint in (("fifo", "is a pipe: give a regular file"),
                            ("empty", "Failed to connect")):
        result = droste(*words, flag, place / path, env={"OPENAI_API_KEY": "k"})
        assert result.status != 0 and complaint in result.err, result


def test_the_description_of_a_tool_is_a_file(droste, place):
    """The JSON beside a tool's program is read by the same rule."""
    os.mkfifo(place / "program.json")
    refused = droste(*EXEC, "--tool", "t=%s" % (place / "program"))
    assert refused.status == 2 and "program.json is a pipe: give a regular file" in refused.err, (
        refused)
    os.unlink(place / "program.json")
    (place / "program.json").write_text('{"description": "One."}')
    assert droste(*EXEC, "--tool", "t=%s" % (place / "program")).status == 0


@pytest.mark.parametrize("name", ["code", "setup-code", "answer-schema", "tools", "tool-data",
                                  "prices", "tasks", "context", "volume put"])
def test_process_substitution_is_read(droste, place, name):
    """On the command line, `<(program)` is a pipe that has a writer. It is read to its end before
    the command begins, also where the library reads a path more than once."""
    words, good = NAMED[name]
    line = " ".join('"%s"' % word.replace("PATH", '"<(cat "%s")"' % (place / good))
                    for word in arguments(words, place, "PATH"))
    done = subprocess.run(["bash", "-c", '"%s" %s' % (droste.program, line)], env={**droste.env},
                          cwd=place,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0, done
    if name == "tasks":
        assert json.loads((place / "out").read_text())["id"] == "a"
    if name == "volume put":
        assert droste("volume", "get", "v", "copy", "-").out == "[1]"


def test_dev_stdin_is_read(droste):
    """So is /dev/stdin in a pipeline, and - reads the same."""
    for path in ("/dev/stdin", "-"):
        result = droste("exec", path, input="print(6 * 7)")
        assert (result.status, result.out) == (0, "42\n"), result
