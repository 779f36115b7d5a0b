"""Environments of users' own as programs in any language: the example of examples/, and others
that are none."""
import json
import os
import subprocess

import pytest
from droste_cli import ROOT, droste
from harness import PATIENT, wait_until

EXAMPLE = os.path.join(ROOT, "examples", "bridge.py")
BRIDGE = "bridge:" + EXAMPLE


def cell(home, own, code, *flags, **env):
    return droste(home, "exec", "--json", "--env", own, *flags, "-c", code, DROSTE_DATABASE="none",
                  **env)


def parsed(result):
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def still_running(mark):
    return subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True).stdout


def test_cells_run_there(tmp_path):
    """Answer, output of a subprocess, and the level by its name."""
    reply = parsed(cell(tmp_path, BRIDGE,
                        "import subprocess; subprocess.run(['echo', 'far']); SUBMIT(6 * 7)"))
    assert reply["submit"] == {"output":
                               42} and reply["stdout"] == "far\n" and reply["isolation"] == "remote"


def test_a_volume_and_staged_files_are_carried_there_and_back(tmp_path):
    """What a cell has changed is here with its result, also where the guest ends itself; nothing of
    it is left there."""
    (tmp_path / "notes.txt").write_text("staged")
    settings = ("--volume-name", "v", "--context-path", str(tmp_path / "notes.txt"))
    first = parsed(cell(tmp_path, BRIDGE,
                        "save_to_volume('a.txt', read_file(CONTEXT_PATHS[0]))\n"
                        "SUBMIT([MEMORY_ROOT, WORKSPACE_ROOT])", *settings))
    assert first["status"] == "submitted", first
    assert droste(tmp_path, "volume", "get", "v", "a.txt", "-").stdout == "staged"
    died = parsed(cell(tmp_path, BRIDGE,
                       "save_to_volume('b.txt', load_from_volume('a.txt') + '!'); import os; "
                       "os._exit(3)", *settings))
    assert died["killed"] == "exit 3"
    assert droste(tmp_path, "volume", "get", "v", "b.txt", "-").stdout == "staged!"
    assert not any(os.path.exists(place) for place in first["submit"]["output"])


def test_files_that_cannot_be_staged_are_reported(tmp_path):
    """A disk that is full over there is the session's end, with its words; the volume here is as it
    was."""
    (tmp_path / "large").write_bytes(bytes(4 << 20))
    assert droste(tmp_path, "volume", "create", "v").returncode == 0
    assert droste(tmp_path, "volume", "put", "v", str(tmp_path / "large"), "large").returncode == 0
    reply = cell(tmp_path, BRIDGE, "1", "--volume-name", "v", "--file-size", "1M")
    # the limit is the guest's, not that of who brings the files
    assert parsed(reply)["status"] == "ok"
    bridge = tmp_path / "full.py"
    bridge.write_text("#!/bin/sh\nulimit -f 1024\nexec %s\n"
                      % os.path.join(ROOT, "examples", "bridge.py"))
    bridge.chmod(0o755)
    result = cell(tmp_path, "bridge:%s" % bridge, "1", "--volume-name", "v")
    assert (result.returncode == 4 and "sending files to /tmp/droste-files-" in result.stdout
            + result.stderr)
    assert "large" in droste(tmp_path, "volume", "ls", "v").stdout


def bridge_over(place, command):
    """The example with another command: {words} in it is what it was given, quoted for one more
    shell."""
    with open(EXAMPLE) as lines:
        text = lines.read()
    words = 'message["words"])'
    assert words in text
    return bridge_of(place, text.replace(words, "%s)" % command).replace(
        "import contextlib", "import shlex, contextlib"))


def test_over_another_command(tmp_path):
    """As over ssh: the words go through one more shell, quotes and all."""
    bridge = bridge_over(tmp_path, '["env", "THERE=yes", "sh", "-c", shlex.join(message["words"])]')
    reply = parsed(cell(tmp_path, bridge, "import os; SUBMIT(os.environ['THERE'])"))
    assert reply["submit"] == {"output": "yes"}


def test_a_large_value_each_way(tmp_path):
    text = "0123456789abcde\n" * (1 << 20)
    (tmp_path / "c").write_text(text)
    result = droste(tmp_path, "exec", "--env", BRIDGE, "--context", "c", "--output-limit", "20M",
                    "-c",
                    "import sys; sys.stdout.write(context)", DROSTE_DATABASE="none")
    assert result.returncode == 0 and result.stdout == text


@pytest.mark.parametrize("code, flags, status, killed", [
    ("import os; os._exit(3)", (), "killed", "exit 3"),
    ("import os; os.kill(os.getpid(), 9)", (), "killed", "signal 9 SIGKILL"),
    ("while True: pass", ("--execute-timeout", "0.5", *PATIENT), "timeout", ""),
    ("import signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass",
     ("--execute-timeout", "0.5", "--grace", "0.5"), "timeout", "timeout"),
    ("raise ValueError(1)", (), "error", ""),
], ids=["exit", "signal", "soft deadline", "hard deadline", "error"])
def test_cells_end_as_locally(tmp_path, code, flags, status, killed):
    reply = parsed(cell(tmp_path, BRIDGE, code, *flags))
    if killed == "timeout" and reply["alive"]:      # the interrupt came before the code ignored it
        reply = parsed(cell(tmp_path, BRIDGE, code, "--execute-timeout", "10", *flags[2:]))
    assert reply["status"] == status and (reply["killed"] or "") == killed


def test_nothing_is_left(tmp_path):
    """What a cell has started ends with the session."""
    mark = "left-%d" % os.getpid()
    code = ("import subprocess; subprocess.Popen(['sh', '-c', 'sleep 1000; : %s'], "
            "start_new_session=True); print('started')" % mark)
    assert parsed(cell(tmp_path, BRIDGE, code))["stdout"] == "started\n"
    wait_until(lambda: not still_running("[;] : " + mark), what="its end")


def test_a_command_that_ends_is_reported(tmp_path):
    """A far end that ends at once ends the session, with its reason; that of the test above
    answers."""
    result = cell(tmp_path, bridge_over(tmp_path, '["sh", "-c", "exit 7"]'), "1")
    assert (result.returncode == 4 and "the program at the far end has ended" in result.stdout
            + result.stderr)


def test_what_it_cannot_give_is_refused_by_name(tmp_path):
    for flags, word in ((("--read", "/etc"), "--read"), (("--cpus", "1"), "--cpus"),
                        (("--image", "x"), "--image"),
                        (("--isolation", "full"), "--isolation")):
        result = cell(tmp_path, BRIDGE, "1", *flags)
        assert result.returncode == 4 and word in result.stdout + result.stderr, flags


# ---- what a bridge says of itself, and is told ----

SAYS = """#!/usr/bin/python3
import json, os, subprocess, sys
say = lambda **m: (sys.stdout.write(json.dumps(m) + "\\n"), sys.stdout.flush())
say(bridge=1, features=%r, collect=True)
for line in sys.stdin.buffer:
    message = json.loads(line)
    sys.stdin.buffer.read(message.get("bytes", 0))
    print(json.dumps(message), file=open("messages", "a"))
    if "open" in message:
        say(id=message["open"], text="far-1")
        say(notice=message["open"], text="it takes its time")
        say(ended=message["open"], why="that was all", kind="permission")
    elif "list" in message:
        say(listed=message["list"], sandboxes=[{"id": "a", "labels": message["labels"]}, {"id": "b", "labels": {**message["labels"], "droste.owner":
            "%%d 1 %%d 00000000-0000-0000-0000-000000000000" %% (2 ** 22 - 1, os.stat("/proc/self/ns/pid").st_ino)}}])
    elif "remove" in message:
        say(removed=message["remove"])
"""


def messages(place, words=("open",)):
    with open(place / "messages") as lines:
        return [m for m in map(json.loads, lines) if any(word in m for word in words)]


def test_only_requested_options_are_passed(tmp_path):
    """By the names of settings; with the limits, and the labels by which it is known as ours."""
    bridge = bridge_of(tmp_path, SAYS % {"image": "any", "network": True, "network-allow": True,
                                         "label": True, "gpus": True, "idle-timeout": 1,
                                         "region": "all", "app-name": "x", "sandbox": True,
                                         "disk-size": True, "cpus": True})
    result = cell(tmp_path, bridge, "1", "--image", "i:1", "--network-allow", "10.0.0.0/8",
                  "--network-allow", "a.org", "--gpus", "T4", "--label", "a=b=c",
                  "--idle-timeout", "5", "--region", "r", "--app-name", "n", "--cpus", "0.5",
                  "--disk-size", "1G", "--on-close", "stop", "--timeout", "77")
    assert "that was all" in result.stderr and result.returncode == 2
    [message] = messages(tmp_path)
    assert message["words"][1:3] == ["-u", "-c"] and message["labels"][
        "a"] == "b=c" and "droste.owner" in message["labels"]
    wanted = {"image": "i:1", "network-allow": ["10.0.0.0/8", "a.org"], "gpus": "T4",
              "idle-timeout": 5, "region": "r", "app-name": "n", "cpus": 0.5,
              "disk-size": 1 << 30, "on-close": "stop", "timeout": 77}
    assert {name: message[name]
            for name in wanted} == wanted and "network" not in message and "sandbox" not in message
    os.remove(tmp_path / "messages")
    cell(tmp_path, bridge, "1")
    [message] = messages(tmp_path)
    assert set(message) == {"open", "words", "memory", "processes", "labels"}


def test_what_it_does_not_say_that_it_can_is_refused(tmp_path):
    """Also a false, a null and a name of nothing; what it can is not."""
    bridge = bridge_of(tmp_path, SAYS % {"image": False, "gpus": None, "magic": True,
                                         "region": True})
    for flag in ("--image", "--gpus", "--network-allow"):
        result = cell(tmp_path, bridge, "1", flag, "x")
        assert (result.returncode == 4 and flag in result.stderr
                and "does not declare" in result.stderr)
    assert "that was all" in cell(tmp_path, bridge, "1", "--region", "x").stderr


def test_events_are_reported(tmp_path):
    """A line for people about what takes its time."""
    assert "it takes its time" in cell(tmp_path, bridge_of(tmp_path, SAYS % {}), "1").stderr


def test_what_dead_hosts_left_is_removed_and_nothing_else(tmp_path):
    """Of two sandboxes of this machine's, that whose host is not known to be gone stays."""
    bridge = bridge_of(tmp_path, SAYS % {})
    result = droste(tmp_path, "env", "gc", "--env", bridge)
    assert result.stdout == "removed 1 orphaned sandbox\n", result.stderr
    assert [m["id"] for m in messages(tmp_path, ("remove",))] == ["b"]
    refused = droste(tmp_path, "env", "gc", "--env", BRIDGE)
    assert refused.returncode == 4 and "does not support listing" in refused.stderr


def test_the_example_is_short():
    with open(os.path.join(ROOT, "examples", "bridge.py")) as lines:
        assert len(list(lines)) <= 64


# ---- a bridge that is none, or ends ----

def bridge_of(place, text):
    path = place / "bridge"
    path.write_text(text)
    path.chmod(0o755)
    return "bridge:%s" % path


@pytest.mark.parametrize("text, words", [
    ("#!/bin/sh\nexit 3\n", "ended with status 3"),
    ("#!/bin/sh\necho some words >&2; kill -9 $$\n", "died of signal 9: some words"),
    ("#!/bin/sh\necho hello\nsleep 100\n", "sent a line that is not a message"),
    ("#!/bin/sh\necho '{\"read\": 1, \"bytes\": -5}'\nsleep 100\n",
     "sent a line that is not a message"),
    ("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x\nsleep 100\n",
     "sent a line that is too long"),
    ("#!/bin/sh\nread line\necho '{\"ended\": 1, \"why\": \"no room on the moon\"}'\nsleep 100\n",
     "no room on the moon"),
    ("#!/bin/sh\nread line\necho '{\"joined\": 1}'\necho '{\"ended\": 1}'\nsleep 100\n",
     "the program at the far end has ended"),
], ids=["ends", "is killed", "no JSON", "negative", "flood", "refuses", "ended"])
def test_a_bridge_that_fails_is_reported(tmp_path, text, words):
    result = cell(tmp_path, bridge_of(tmp_path, text), "1")
    assert result.returncode == 4 and words in result.stdout + result.stderr


def test_messages_of_strangers_are_ignored(tmp_path):
    """Of sandboxes that are none, and bytes for them: passed over."""
    text = open(os.path.join(ROOT, "examples", "bridge.py")).read()
    greeting = next(line for line in text.splitlines(True) if line.startswith('say({"bridge"'))
    text = text.replace(greeting, greeting
                        + "say({'joined': 77})\nsay({'read': 78, 'bytes': 3}, "
                          "b'abc')\nsay({'ended': 79})\n")
    assert parsed(cell(tmp_path, bridge_of(tmp_path, text), "SUBMIT(1)"))["submit"] == {"output": 1}


def test_a_program_that_is_none(tmp_path):
    result = cell(tmp_path, "bridge:./nothing", "1")
    assert result.returncode != 0 and "starting bridge:./nothing" in result.stdout + result.stderr
