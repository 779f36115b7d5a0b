"""The whole life of a sandbox by E2B's own SDK (e2b): run by test_e2b.py against
tests/fakes/e2b.py, which so has what the SDK asks for and not what our client would like."""
import json
import os
import urllib.request

from e2b import CommandExitException, Sandbox, SandboxQuery
from e2b.exceptions import AuthenticationException, SandboxException, SandboxNotRunningException


def order(**asked):
    urllib.request.urlopen(urllib.request.Request(os.environ["E2B_API_URL"] + "/_fake",
                                                  json.dumps(asked).encode(), method="POST"))


box = Sandbox.create("base", timeout=3600, request_timeout=600, metadata={"who": "sdk"},
                     allow_internet_access=False, envs={"A": "b"})
assert box.is_running()
assert box.commands.run("echo out; echo err >&2").stdout == "out\n"
try:
    box.commands.run("exit 3")
    raise SystemExit("a failure that was none")
except CommandExitException as e:
    assert e.exit_code == 3
live = box.commands.run("echo begun; read line; echo got $line; cat >/dev/null; exit 0",
                        background=True, stdin=True, timeout=0)
events = iter(live)


def line():
    """What it says next, up to the end of a line, in however many pieces it comes."""
    output = ""
    while not output.endswith("\n"):
        output += next(events)[0] or ""
    return output


assert line() == "begun\n"
live.send_stdin("one\n")
assert line() == "got one\n"
live.disconnect()
again = box.commands.connect(live.pid, timeout=0)           # attached once more, by its pid
assert live.pid in [p.pid for p in box.commands.list()]
again.close_stdin()
assert again.wait().exit_code == 0
loop = box.commands.run("sleep 1000", background=True, timeout=0)
assert loop.kill() and not box.commands.kill(loop.pid + 100000)
found = Sandbox.list(query=SandboxQuery(metadata={"who": "sdk"})).next_items()
assert [b.sandbox_id for b in found] == [box.sandbox_id], found
box.set_timeout(3000)
info = box.get_info()
assert info.metadata == {"who": "sdk"} and info.allow_internet_access is False, info
assert box.pause()
assert not Sandbox.connect(box.sandbox_id).commands.run("true").exit_code      # resumed by its id
other = Sandbox.create("base", timeout=3600, request_timeout=600)
order(kill=other.sandbox_id)
try:
    other.commands.run("true")
    raise SystemExit("a command in a sandbox that is gone")
except SandboxNotRunningException:
    pass
assert box.kill() and not box.kill()
for wrong, error in ((dict(template="nothing"), SandboxException),
                     (dict(template="base", api_key="e2b_" + "1" * 40), AuthenticationException)):
    try:
        Sandbox.create(**wrong)
        raise SystemExit("%s was taken" % wrong)
    except error:
        pass
print("all")
