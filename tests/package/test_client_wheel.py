"""The wheel in pure Python, installed by pip in an environment without the library."""
import os
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
sys.path.append(os.path.join(ROOT, "python"))
import package      # noqa: E402

PROGRAM = """
import asyncio, droste

def lookup(key: str) -> str:
    return {"a": "found"}[key]

async def twice():
    async with droste.Interpreter() as interp:
        return (await interp.execute("SUBMIT(x=(1, {2}))")).x

with droste.Interpreter(tools=[lookup], model=lambda messages: "said") as interp:
    print(interp.execute("SUBMIT(a=lookup('a'), b=llm_query('q'))").fields)
    interp.files.write("f", "text")
    print(interp.commands.run("cat f").stdout)
    with interp.fork() as fork:
        print(fork.execute("1 + 1").echo)
print(asyncio.run(twice()))
try:
    droste.Interpreter(server="").start()
except droste.UnsupportedError as e:
    print("server=" in str(e), "wheel for Linux" in str(e))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("client")
    return str(place / package.write_client(str(place)))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment that has nothing but the wheel."""
    place = str(tmp_path_factory.mktemp("venv") / "v")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    path = os.path.join(place, "bin", "python")
    subprocess.run([path, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                    "--disable-pip-version-check", wheel], check=True)
    return path


@pytest.fixture
def server(tmp_path):
    process = subprocess.Popen([os.path.join(BUILD, "droste"), "serve", "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "DROSTE_HOME": str(tmp_path)})
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(60)
    process.stdout.close()


def test_the_wheel_is_for_any_machine_and_has_no_binary(wheel):
    assert wheel.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {os.path.splitext(name)[1] for name in names if ".dist-info" not in name} == {
            ".py", ".typed"}
        about = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
        points = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    assert "Operating System :: OS Independent" in about
    assert "console_scripts" not in points    # there is no command without the library


def test_a_program_uses_a_server_without_the_library(python, server, tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_SERVER": server}
    done = subprocess.run([python, "-I", "-c", PROGRAM], env=env, cwd=str(tmp_path), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.stdout.splitlines() == ["{'a': 'found', 'b': 'said'}", "text", "2", "(1, {2})",
                                        "True True"]


def test_every_module_imports_without_the_library(python):
    """But for those of other packages, which say so."""
    code = ("import importlib, pkgutil, droste\n"
            "for found in pkgutil.walk_packages(droste.__path__, 'droste.'):\n"
            "    if found.name == 'droste.__main__': continue\n"
            "    try: importlib.import_module(found.name)\n"
            "    except ImportError as e: print(found.name)\n")
    done = subprocess.run([python, "-I", "-c", code], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    assert set(done.stdout.split()) <= {
        "droste.dspy", "droste.jupyter", "droste.modal_bridge", "droste.integrations.harbor",
        "droste.integrations.inspect_ai", "droste.integrations.nemo_gym",
        "droste.integrations.ray", "droste.integrations.skyrl",
        "droste.integrations.smolagents", "droste.integrations.verifiers"}
