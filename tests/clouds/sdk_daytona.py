"""Drives the fake Daytona through a sandbox's whole life by the vendor's own SDK. Runs in the
environment of Python's that has the SDK (scripts/setup clouds); DAYTONA_API_URL and DAYTONA_API_KEY
say where. Fails by an assertion."""
import json
import queue
import sys

import httpx_ws
from daytona import (CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Daytona,
                     DaytonaConfig, DaytonaError,
                     ListSandboxesQuery, Resources, VolumeMount)
from daytona.common.pty import PtySize

receive_event = httpx_ws.WebSocketSession.receive


def receive(session, timeout=None):
    """The SDK waits for a terminal in steps of 0.1 s, and expects another exception after each than
    this version of httpx_ws raises."""
    try:
        return receive_event(session, timeout)
    except queue.Empty as e:
        raise TimeoutError from e


httpx_ws.WebSocketSession.receive = receive


def refused(status, call):
    try:
        call()
    except DaytonaError as e:
        assert e.status_code == status, (e.status_code, str(e))
        return str(e)
    raise AssertionError("it was not refused with %d" % status)


def terminal(sandbox):
    """A shell on a real terminal, by both ways to it."""
    output = bytearray()
    pty = sandbox.process.create_pty_session("one", cwd="/tmp", envs={"WORD": "stays"},
                                             pty_size=PtySize(rows=30, cols=100))
    assert "one" in [s.id for s in sandbox.process.list_pty_sessions()]
    assert sandbox.process.get_pty_session_info("one").active
    pty.send_input("stty size; tty; echo $WORD $PWD\n")
    pty.send_input("echo to\"\"gether\n")
    for data in pty:
        output += data
        if b"together" in output:
            break
    assert b"30 100" in output and b"/dev/pts/" in output and b"stays /tmp" in output, bytes(output)
    assert pty.resize(PtySize(rows=40, cols=120)).cols == 120
    second = sandbox.process.connect_pty_session("one")      # any number may look on
    pty.send_input("exit 3\n")
    assert pty.wait().exit_code == 3 and second.wait().exit_code == 3
    refused(404, lambda: sandbox.process.get_pty_session_info("one"))
    killed = sandbox.process.create_pty_session("two")
    killed.kill()
    assert killed.wait().exit_code not in (None, 0)


def files(sandbox):
    data = bytes(range(256)) * 5000
    sandbox.fs.create_folder("deep/er", "755")
    sandbox.fs.upload_file(data, "deep/er/all.bin")
    assert sandbox.fs.download_file("deep/er/all.bin") == data
    assert [(f.name, f.size, f.is_dir)
            for f in sandbox.fs.list_files("deep/er")] == [("all.bin", len(data), False)]
    assert sandbox.fs.get_file_info("deep/er/all.bin").size == len(data)
    sandbox.fs.delete_file("deep", recursive=True)
    assert sandbox.process.exec("ls deep").exit_code != 0


def life(daytona):
    volume = daytona.volume.get("kept", create=True)
    while daytona.volume.get("kept").state != "ready":
        pass
    params = CreateSandboxFromImageParams(
        name="by-sdk", image="python:3.12-slim", labels={"of": "sdk"}, env_vars={"SHOWN": "yes"},
        auto_stop_interval=5,
        auto_delete_interval=-1, ttl_minutes=60, network_block_all=True,
        resources=Resources(cpu=2, memory=2, disk=5),
        volumes=[VolumeMount(volume_id=volume.id, mount_path="/home/daytona/memory",
                             subpath="part")])
    sandbox = daytona.create(params, timeout=0)       # the SDK would wait for a minute
    assert sandbox.state == "started" and (sandbox.cpu, sandbox.memory, sandbox.disk) == (2, 2, 5)
    refused(409, lambda: daytona.create(params))
    assert sandbox.get_work_dir() == "/home/daytona"
    done = sandbox.process.exec(
        "echo $SHOWN; id -u; ls -d /home/*; wc -l </proc/net/dev; echo kept > memory/file")
    assert done.exit_code == 0 and done.result.split() == ["yes", "21000", "/home/daytona",
                                                           "3"], done.result
    terminal(sandbox)
    files(sandbox)
    assert daytona.get("by-sdk").id == sandbox.id
    assert [s.id for s in daytona.list(ListSandboxesQuery(labels={"of": "sdk"}))] == [sandbox.id]
    assert not list(daytona.list(ListSandboxesQuery(labels={"of": "nobody"})))
    sandbox.set_labels({"of": "sdk", "more": "1"})
    assert list(daytona.list(ListSandboxesQuery(labels={"more": "1"})))
    sandbox.set_autostop_interval(9)
    sandbox.set_ttl(30)
    sandbox.stop(timeout=0)
    assert sandbox.state == "stopped"
    refused(400, lambda: sandbox.process.exec("true"))
    sandbox.start(timeout=0)
    assert sandbox.process.exec("cat memory/file").result == "kept\n"
    sandbox.delete(timeout=0, wait=True)
    refused(404, lambda: daytona.get("by-sdk"))
    again = daytona.create(CreateSandboxFromSnapshotParams(ephemeral=True, volumes=[
        VolumeMount(volume_id="kept", mount_path="/home/daytona/memory")]), timeout=0)
    assert again.process.exec("cat memory/part/file").result == "kept\n"
    again.stop(timeout=0)       # an ephemeral one is gone then
    refused(404, lambda: daytona.get(again.id))
    daytona.volume.delete(volume)
    refused(404, lambda: daytona.volume.get("kept"))


def refusals(daytona):
    refused(400, lambda: daytona.create(CreateSandboxFromSnapshotParams(snapshot="no-such")))
    error = refused(None, lambda: daytona.create(CreateSandboxFromImageParams(image="no-such:1")))
    assert "pull access denied" in error, error
    for left in daytona.list():
        left.delete()
    config = DaytonaConfig(api_key="wrong", api_url=daytona._api_url, use_deprecated_polling=True)
    refused(401, lambda: Daytona(config).create())


if __name__ == "__main__":
    client = Daytona()
    life(client)
    refusals(client)
    json.dump({"done": True}, sys.stdout)
