"""Type checkers know the settings: right keywords pass, wrong ones and wrong types are refused."""
import os
import subprocess
import sys
import typing

import pytest

from droste import _keywords, _library
from droste.compat import arguments

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARAMETERS = {"model", "sub_model", "tools", "tool_data", "template", "select"}
CHECKER = "/usr/bin/python3"

RIGHT = '''
import pathlib
import droste

droste.Interpreter(isolation="full", memory="512M", timeout=3, execute_timeout=0.5, rules=True,
                   preload=["numpy"], read=pathlib.Path("/data"), env_var={"A": "1"}, cpus=None,
                   database=pathlib.Path("runs.db"), tool_data="a=a.json", model="openai/gpt-5-mini")
droste.RLM("openai/gpt-5-mini", max_iterations=3, max_cost=0.5, sampling={"temperature": 0}, tools=[len])
droste.RLM(backend="openai", backend_kwargs={"model_name": "gpt-5-mini"}, max_depth=1, verbose=True)
done = droste.batch([{"question": "?"}], "results.jsonl", grader="exact", model="openai/gpt-5-mini",
                    concurrency=32, batch_max_cost=2.5, again=True, on_result=print, max_cost=0.5)
passed: int = done.passed
answers = [result.grade.score if result.grade else result.answer for result in done.results]
older: int = droste.runs.gc(older=3600, keep=10).runs
kinds = [step.kind for step in droste.runs.follow("20261120", interval=1)]
names = [one.name for one in droste.volumes.snapshots("data", volume_root="/srv")]
'''
WRONG = {
    'droste.Interpreter(isolatoin="full")': "isolatoin",
    'droste.RLM("m", max_iteration=3)': "max_iteration",
    'droste.Interpreter(memory=["512M"])': "memory", 'droste.Interpreter(rules=0.5)': "rules",
    'droste.Interpreter(isolation=5)': "isolation", 'droste.RLM("m", max_cost=[1])': "max_cost",
    'droste.RLM("m", api_key=5)': "api_key",
    'droste.batch([], "r.jsonl", garder="exact")': "garder",
    'droste.batch([], "r.jsonl", batch_max_calls="2")': "batch_max_calls",
    'droste.runs.gc(keep="2")': "gc",
}


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    if subprocess.run([CHECKER, "-c", "import mypy"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the Debian package mypy is not installed")
    directory = tmp_path_factory.mktemp("types")

    def run(code):
        path = directory / "program.py"
        path.write_text(code)
        env = {**os.environ, "MYPYPATH": os.path.join(ROOT, "python")}
        words = ["--follow-imports=silent", "--cache-dir=%s" % (directory / "cache"),
                 "--no-color-output"]
        version = subprocess.run([CHECKER, "-m", "mypy", "--version"],
                                 stdout=subprocess.PIPE).stdout.split()[1]
        if tuple(map(int, version.split(b".")[:2])) < (1, 7):
            words.append("--enable-incomplete-feature=Unpack")
        done = subprocess.run([CHECKER, "-m", "mypy", *words, str(path)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=env, cwd=str(directory))
        return done.stdout.decode()
    return run


def test_right_keywords_pass_and_wrong_ones_are_refused(check):
    """Each wrong line, and no right one, is an error that names the keyword."""
    output = check(RIGHT + "\n".join(WRONG) + "\n")
    first = RIGHT.count("\n") + 1
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert [int(line.split(":")[1])
            for line in errors] == list(range(first, first + len(WRONG))), output
    for error, keyword in zip(errors, WRONG.values()):
        assert keyword in error


def test_every_setting_is_a_keyword():
    """The library's settings are those of the file, which the lint compares with the table."""
    names = {name.replace("-", "_") for name in _library.options}
    assert set(_keywords.Settings.__annotations__) == names - PARAMETERS
    assert "tool_data" in _keywords.InterpreterSettings.__annotations__
    keywords = set(_keywords.RLMSettings.__annotations__)
    assert {*arguments.RLM_SETTINGS, *arguments.RLM_FIXED, *arguments.RLM_WISHES} <= keywords


def test_the_file_is_current():
    subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "settings-types"), "--check"],
                   check=True)


def test_nothing_is_imported_for_types():
    """typing_extensions belongs to the type checker: the package runs without it."""
    code = ("import sys; sys.modules['typing_extensions'] = None; import droste; "
            "assert 'droste._keywords' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")})
    assert typing.TYPE_CHECKING is False
