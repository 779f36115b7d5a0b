"""A context of a gigabyte: the count is right, and the host does not pay for it twice."""
import os
import shutil

import pytest

from harness import repl, write_replay

SIZE = 1 << 30
LINE = b"a line of text, as plain as they come".ljust(63, b".") + b"\n"
BLOCK = LINE * ((1 << 20) // len(LINE))
LINES = SIZE // len(BLOCK) * BLOCK.count(b"\n")


def free_memory():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))


@pytest.fixture(scope="module")
def gigabyte(tmp_path_factory):
    directory = tmp_path_factory.mktemp("big")
    if shutil.disk_usage(directory).free < 4 << 30:
        pytest.skip("needs 4 GB of free disk")
    if free_memory() < 6 << 30:
        pytest.skip("needs 6 GB of free memory")
    path = directory / "big.txt"
    with open(path, "wb") as f:
        for _ in range(SIZE // len(BLOCK)):
            f.write(BLOCK)
    yield path
    path.unlink()


def run_measured(droste, *args):
    """(result, the largest resident memory of droste itself in bytes); its children do not
    count."""
    process = droste.start(*args)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    assert process.returncode == 0, (out, err)
    return out.decode(), usage.ru_maxrss << 10


def test_gigabyte_in_exec(droste, gigabyte):
    """exec counts the lines of a gigabyte; the host's memory stays under 1.2 times the file."""
    out, peak = run_measured(droste, "exec", "-c", "SUBMIT(context.count('\\n'))", "--context",
                             gigabyte)
    assert out == '{"output": %d}\n' % LINES
    assert peak < 1.2 * SIZE


def test_gigabyte_in_a_run(droste, gigabyte, tmp_path):
    """A run over the same file answers the same, within the same memory."""
    model = write_replay(tmp_path / "r.jsonl", repl("SUBMIT(context.count('\\n'))"))
    out, peak = run_measured(droste, "run", "--question", "q", "--context", gigabyte, "--model",
                             model)
    assert out == "%d\n" % LINES
    assert peak < 1.2 * SIZE


def test_gigabyte_as_bytes(droste, gigabyte):
    """The same file as bytes is as long as the file."""
    out, _ = run_measured(droste, "exec", "-c", "SUBMIT(len(context))", "--context", gigabyte,
                          "--context-type", "bytes")
    assert out == '{"output": %d}\n' % SIZE
