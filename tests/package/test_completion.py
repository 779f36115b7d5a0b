"""Completion in the real shells, by the scripts that the command prints."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time

import oci
import pytest
from wheels import make_wheel
from installed import BUILD, DROSTE, ROOT, commands, run

PATIENCE = 300


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a run, two volumes, files and a snapshot in one of them, a template, keys, an image
    and a set of packages in it."""
    tmp_path = tmp_path_factory.mktemp("home")
    env = {"PATH": BUILD + ":/usr/bin:/bin", "HOME": str(tmp_path),
           "DROSTE_HOME": str(tmp_path / "data"),
           "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    (tmp_path / "model.jsonl").write_text(json.dumps({"content": "```repl\nSUBMIT(answer=1)\n```"})
                                          + "\n")
    run(DROSTE, "run", "How many?", "--model", "replay:model.jsonl", cwd=tmp_path, env=env,
        stdin=subprocess.DEVNULL)
    for name in ("results", "sources"):
        run(DROSTE, "volume", "create", name, cwd=tmp_path, env=env)
    (tmp_path / "reports" / "2026").mkdir(parents=True)
    for name in ("reports/2026/may.csv", "reports/notes", "reports/$(touch ran)"):
        (tmp_path / name).write_text("x")
    run(DROSTE, "volume", "put", "results", "reports", "reports", cwd=tmp_path, env=env)
    run(DROSTE, "volume", "snapshot", "results", "before-cleanup", cwd=tmp_path, env=env)
    run(DROSTE, "template", "create", "frames", "--preload", "json", cwd=tmp_path, env=env)
    for words in (["nightly"], ["prometheus"], ["elsewhere", "--keys", "other.json"]):
        run(DROSTE, "keys", "create", *words, cwd=tmp_path, env=env)
    layout = tmp_path / "layout"
    oci.write_layout(layout, [oci.layer([("a", "")])])
    run(DROSTE, "image", "pull", "oci:layout", cwd=tmp_path, env=env)
    for directory in (tmp_path, *tmp_path.parents):     # the build's sandbox gets here
        if str(directory) == tempfile.gettempdir():
            break
        directory.chmod(0o755)
    make_wheel(str(tmp_path), "hello", {"hello.py": ""})
    run(DROSTE, "packages", "build", "--packages", "hello", "--find-links", tmp_path,
        "--package-index", "none", cwd=tmp_path, env=env)
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / ("droste." + shell)).write_text(run(DROSTE, "completion", shell, env=env))
    return tmp_path, env


def ids_of(home):
    """Of what the home has one of."""
    place, env = home
    ids = {}
    for kind, command in (("RUN", "runs"), ("IMAGE", "image"), ("PACKAGES", "packages")):
        (found,) = json.loads(run(DROSTE, command, "ls", "--json", cwd=place, env=env))
        ids[kind] = found["id"] if "id" in found else found["run"]
    return ids


def bash(home, line):
    """What bash makes of the line's last word."""
    place, env = home
    words = re.findall(r"[^\s=]+|=|(?<=\s)$", line)
    script = ('source droste.bash; COMP_WORDBREAKS=$\' \\t\\n"\\\'><=;|&(:\'; COMP_WORDS=("$@"); '
              'COMP_CWORD=$(($# - 1)); _droste; printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "--norc", "-c", script, "bash", *words, cwd=place, env=env).split()


def fish(home, line):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    place, env = home
    output = run("fish", "--no-config", "-c", "source droste.fish; complete -C \"$argv[1]\"", line,
                 cwd=place, env=env)
    return [row.split("\t")[0].rpartition("=")[2] for row in output.splitlines()]


def zsh(home, line):
    """Types the line and a tab on a terminal; gives what was listed, or the completed last word."""
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    place, env = home
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execve("/usr/bin/zsh", ["zsh", "-f", "-i"], {**env, "ZDOTDIR": str(place)})
    output = ""
    try:
        os.write(fd,
                 b"PROMPT='rea''dy> '; autoload -U compinit; compinit -u -D; source ./droste.zsh; "
                 b"LISTMAX=10000\n")
        output = read_until(fd, output, "ready> ")
        os.write(fd, line.encode() + b"\x04\x05\x15print -r E''ND\n")    # ^D lists the matches
        listed = read_until(fd, output, "END").partition(line.strip())[2].partition("ready> ")[0]
        return [word for row in listed.splitlines()
                for word in re.findall(r"[^\s=]+", row.partition(" -- ")[0])]
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


def read_until(fd, output, text):
    """Adds to what was said until the text is in it."""
    deadline = time.monotonic() + PATIENCE
    while text not in output:
        assert time.monotonic() < deadline, output
        if select.select([fd], [], [], 1)[0]:
            output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r| \x08", "",
                            output + os.read(fd, 65536).decode("utf-8", "replace"))
    return output


@pytest.mark.parametrize("shell", [bash, zsh, fish])
@pytest.mark.parametrize("line, offered, missing", [
    ("droste ex", "exec", "run"),
    ("droste exec --isol", "--isolation", "--memory"),
    ("droste exec --isolation ", "landlock", "exec"),
    ("droste exec --env=do", "docker", "local"),
    ("droste env show mo", "modal", "docker"),
    ("droste runs ", "resume", "answered"),
    ("droste runs show ", "RUN", "resume"),
    ("droste run --continue ", "RUN", "results"),
    ("droste volume tree ", "results", "RUN"),
    ("droste exec --volume-name so", "sources", "results"),
    ("droste exec mod", "model.jsonl", "exec"),
    ("droste keys revoke ", "nightly", "elsewhere"),
    ("droste keys revoke pro", "prometheus", "nightly"),
    ("droste keys --keys other.json revoke ", "elsewhere", "nightly"),
    ("droste template show ", "frames", "results"),
    ("droste exec --template ", "frames", "results"),
    ("droste volume restore results ", "before-cleanup", "model.jsonl"),
    ("droste volume rm results --snapshot ", "before-cleanup", "sources"),
    ("droste volume get results ", "reports/", "model.jsonl"),
    ("droste volume get results reports/2", "reports/2026/", "reports/notes"),
    ("droste volume get results reports/n", "reports/notes", "reports/2026/"),
    ("droste volume put results mod", "model.jsonl", "reports/"),
    ("droste image rm oc", "oci:layout", "results"),
    ("droste image inspect ", "IMAGE", "results"),
    ("droste exec --image oc", "oci:layout", "IMAGE"),
    ("droste packages rm ", "PACKAGES", "IMAGE"),
    ("droste exec --select v", "vote", "first"),
], ids=lambda value: value if isinstance(value, str) and " " in value else "")
def test_the_shell_completes(home, shell, line, offered, missing):
    """Commands, flags, fixed words, environments, verbs, runs, volumes and files."""
    ids = ids_of(home)
    found = shell(home, line)
    assert ids.get(offered, offered) in found, found
    assert ids.get(missing, missing) not in found, found


def test_a_name_that_a_shell_would_run_is_no_candidate(home):
    """Names in a volume are the guest's, and bash takes candidates as they are."""
    place, env = home
    assert "touch" in run(DROSTE, "volume", "tree", "results", env=env)
    offered = run(DROSTE, "completion", "words", "--", "volume", "get", "results", "reports/",
                  env=env, cwd=place)
    assert {row.split("\t")[0] for row in offered.splitlines()} == {"reports/2026/",
                                                                     "reports/notes"}


def test_every_command_and_flag_is_a_candidate(home):
    """Those of the help, and no secret ones."""
    place, env = home
    offered = run(DROSTE, "completion", "words", "--", "", env=env)
    assert {row.split("\t")[0] for row in offered.splitlines()} == {"help", *commands()}
    for command in commands():
        shown = set(re.findall(r"^  (--?[a-z-]+) ", run(DROSTE, command, "--help", "all", env=env),
                               re.M))
        offered = run(DROSTE, "completion", "words", "--", command, "-", env=env, cwd=place)
        assert {row.split("\t")[0] for row in offered.splitlines()} == shown | {"--help"}, command


def test_fixed_words_are_those_of_the_settings(home):
    """What is offered for a setting is named by its help, and taken."""
    place, env = home
    for setting in ("isolation", "pull", "root", "seccomp", "reuse", "on-close", "layout", "select",
                    "context-type"):
        words = [row.split("\t")[0] for row in
                 run(DROSTE, "completion", "words", "--", "exec", "--" + setting, "",
                     env=env).splitlines()]
        (row,) = re.findall(r"^  --%s .*" % setting, run(DROSTE, "exec", "--help", "all", env=env),
                            re.M)
        assert len(words) >= 2 and all(word in row for word in words)


def test_completion_says_nothing_where_it_knows_nothing(home):
    """No error may land on the command line: an unknown command, a damaged configuration."""
    place, env = home
    config = place / "config.ini"
    config.write_text("garbage\n")
    for words in (["frobnicate", ""], ["exec", "--env", ""]):
        done = subprocess.run([DROSTE, "completion", "words", "--", *words], capture_output=True,
                              text=True, timeout=300,
                              env={**env, "DROSTE_CONFIG": str(config)})
        assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_an_unknown_shell_is_refused(words):
    """With those that are."""
    done = subprocess.run([DROSTE, "completion", *words], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 2 and re.search("bash, zsh(,| or) fish", done.stderr)


def test_the_installed_scripts_are_those_that_the_command_prints():
    """One source each."""
    for shell in ("bash", "zsh", "fish"):
        with open(os.path.join(ROOT, "src", "cli", "completion", "droste." + shell)) as file:
            assert file.read() == run(DROSTE, "completion", shell)
