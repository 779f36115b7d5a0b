"""The manual page says what the program does."""
import os
import re
import shutil
import subprocess

import pytest
from droste_cli import ROOT, droste

PAGE = os.path.join(ROOT, "docs", "droste.1")


def page():
    with open(PAGE) as text:
        return text.read()


def test_the_manual_has_every_setting_in_order(tmp_path):
    """The flags under SETTINGS are those of the help, with their kinds of value."""
    shown = droste(tmp_path, "run", "--help", "all").stdout.partition("\nSettings")[2]
    flags = re.findall(r"^  --([a-z-]+) (\S+) ", shown, re.M)
    settings = page().partition(".Sh SETTINGS")[2].partition(".Sh ENVIRONMENT")[0]
    assert len(flags) > 30
    assert re.findall(r"^\.It Fl \\-([a-z-]+) Ar (\S+)$", settings, re.M) == flags
    assert ".It Cm api-key" in settings


def test_the_manual_has_every_command_and_variable(tmp_path):
    """Commands of the overview, and variables of the help."""
    commands = re.findall(r"^  ([a-z-]+) +\S", droste(tmp_path, "--help").stdout, re.M)
    assert {"run", "exec", "repl", "runs", "doctor", "run-basic"} <= set(commands)
    synopsis = page().partition(".Sh SYNOPSIS")[2].partition(".Sh DESCRIPTION")[0]
    shown = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"^\.Nm\n\.Cm (.*)$", synopsis, re.M))))
    for command in commands:
        assert command in shown, command
        assert re.search(r"^\.It Cm (.* , )?%s( , .*)?$" % command, page(), re.M), command
    for variable in re.findall(r"\(\$([A-Z_]+)\)",
                               droste(tmp_path, "exec", "--help", "all").stdout):
        assert ".It Ev " + variable in page()


def test_the_manual_is_well_formed():
    """groff has nothing to warn of."""
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man or groff is not here")
    r = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", PAGE], capture_output=True,
                       text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
    assert r.returncode == 0 and r.stderr == "" and "DROSTE(1)" in r.stdout
