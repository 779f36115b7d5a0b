"""Every version of Python that the package is for, where it is installed here."""
import glob
import os
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMOKE = """
import asyncio, os, sys, threading
from droste import Interpreter, RLM
with Interpreter(tools={"double": lambda n: 2 * n}, model=lambda messages: "said") as interp:
    r = interp.execute("print(llm_query('q')); SUBMIT(answer=double(21), items=v)", {"v": [1, 2]})
    assert (r.answer, r.items, r.stdout) == (42, [1, 2], "said\\n"), r
    assert interp.execute("SUBMIT(a=v, b=v * 3)", {"v": "é" * 30000}).fields == {"a": "é" * 30000, "b": "é" * 90000}
    assert interp.execute("1 / 0").error.type == "ZeroDivisionError"

async def main():
    async def later(n):
        await asyncio.sleep(0)
        return n
    async def one(n):
        async with Interpreter(tools=[later]) as interp:
            return (await interp.execute("SUBMIT(n=later(%d))" % n)).n
    assert await asyncio.gather(*[one(n) for n in range(5)]) == list(range(5))
    async def model(messages):
        return "```repl\\nSUBMIT(answer=len(context))\\n```"
    assert (await RLM(model).arun("q", "abc")).answer == 3

asyncio.run(main())
pid = os.fork()
if pid == 0:
    with Interpreter() as interp:
        os._exit(0 if interp.execute("1").ok else 1)
assert os.waitpid(pid, 0)[1] == 0
print("fine on", sys.version.split()[0])
"""


def find(version):
    """An interpreter of this version: in PATH, or where pyenv has them."""
    for pattern in ("~/.pyenv/versions/%s.*/bin/python", "/opt/python%s/bin/python3"):
        for path in sorted(glob.glob(os.path.expanduser(pattern % version))):
            return path
    return shutil.which("python" + version)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_package_works_with(version):
    """Sessions, tools, models, asyncio, runs, forks, without a warning; the guest is this machine's
    Python."""
    python = find(version)
    if python is None or subprocess.run([python, "-c", "import ctypes, asyncio"]).returncode != 0:
        pytest.skip("there is no Python %s here" % version)
    # 3.12 warns of every fork with threads
    ignore = ["-W", "ignore:This process:DeprecationWarning"]
    done = subprocess.run([python, "-W", "error", *ignore, "-c", SMOKE], capture_output=True,
                          text=True, timeout=60, env={
        **os.environ, "PYTHONPATH": os.path.join(ROOT, "python"),
        "DROSTE_PYTHON": "/usr/bin/python3"})
    assert done.returncode == 0 and done.stdout.startswith("fine on " + version), done.stderr
