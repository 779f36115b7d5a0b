"""Commands of a session: programs that the host starts in its sandbox, whatever its code does
meanwhile. docs/commands.md has the rules. Each runs with the code's files, user and limits; what a
hostile one does costs the host nothing, and ends with the session.
"""
import os
import signal
import threading

import pytest

import droste

def test_a_commands_end_and_output_are_its_result(session):
    """The exit status, or the signal; both streams; a text goes to a shell, a list does not."""
    result = session.commands.run("echo out; echo err >&2; exit 3")
    assert result == (3, "out\n", "err\n", False) and not result.ok
    assert session.commands.run(["echo", "$HOME;", "a b"]).stdout == "$HOME; a b\n"
    assert session.commands.run("kill -TERM $$").exit_code == -signal.SIGTERM
    assert session.commands.run("echo out; echo err >&2", merge=True)[1:3] == ("out\nerr\n", "")


def test_commands_have_the_sessions_files_and_variables(session):
    """They start where cells start; what is given for one is not there for the next."""
    session.files.write("from host.txt", b"1")
    assert session.execute("open('from cell.txt', 'w').write('2')").ok
    assert session.commands.run("cat 'from host.txt' 'from cell.txt'").stdout == "12"
    session.files.make_dir("below")
    assert session.commands.run("basename $PWD", cwd="below").stdout == "below\n"
    assert session.commands.run('echo "$WORD"', env={"WORD": "a=b c"}).stdout == "a=b c\n"
    assert session.commands.run('echo "$WORD"').stdout == "\n"
    for name in ("from host.txt", "from cell.txt"):
        session.files.remove(name)


def test_input_of_any_size_is_written_while_output_is_read(session):
    """More than all buffers hold, both ways; a command that reads only a part of it is no error."""
    data = os.urandom(100).hex() * 10000
    assert session.commands.run("cat", input=data).stdout == data
    assert session.commands.run(["head", "-c", "7"], input=data).stdout == data[:7]
    assert session.commands.run("cat", input="").stdout == ""
    assert session.commands.run("cat").stdout == ""


def test_a_started_command_is_read_and_written(session):
    """Its output arrives as it is written, and its end after all output."""
    with session.commands.start("while read line; do echo got $line; done; exit 4",
                                stdin=True) as command:
        for word in ("a", "b"):
            command.write(word + "\n")
            assert command.read() == (b"got %s\n" % word.encode(), b"")
        command.close_stdin()
        assert command.wait() == command.exit_code == 4
        assert command.read() == (b"", b"")
        with pytest.raises(OSError):
            command.write("more")
    with pytest.raises(droste.ArgumentError, match="closed"):
        command.kill()


def test_signals_reach_the_whole_group(session):
    """The shell and what it has started; a command that has ended is signalled no more."""
    with session.commands.start("sleep 1000 & echo up; wait") as command:
        assert command.read().stdout == b"up\n"
        assert command.send_signal(signal.SIGTERM)
        assert command.wait() == -signal.SIGTERM
        assert not command.kill()


def test_a_time_limit_kills_the_group(session):
    result = session.commands.run("echo begun; sleep 1000", timeout=0.5)
    assert (result.exit_code, result.timed_out) == (-signal.SIGKILL, True)
    assert session.commands.run("echo done", timeout=600) == (0, "done\n", "", False)


def test_closing_ends_a_command(session):
    """And its children in the group."""
    with session.commands.start("echo $$; exec sleep 1000") as command:
        pid = int(command.read().stdout)
        assert session.commands.run("kill -0 %d" % pid).ok
    session.commands.run("while kill -0 %d; do sleep 0.01; done" % pid)


def test_what_a_command_leaves_behind_is_not_waited_for(session):
    """A server in the background: run() returns, and later output is dropped, not in its way."""
    result = session.commands.run(
        "rm -f late; (while [ ! -e go ]; do sleep 0.01; done; head -c 1000000 /dev/zero; "
        "echo over > late) & echo up")
    assert result == (0, "up\n", "", False)
    session.commands.run("touch go; while [ ! -s late ]; do sleep 0.01; done; rm go late")


def test_a_command_that_is_not_read_waits(session):
    """Its output is behind a pipe: the host keeps none of it. What is read is what was written."""
    with session.commands.start("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"
                                ) as command:
        text = b"".join(output.stdout for output in command)
        assert text.split() == [b"%d" % i for i in range(20000)]


def test_commands_do_not_wait_for_a_running_cell(session):
    """The cell runs until a command has written a file."""
    results = []
    cell = threading.Thread(target=lambda: results.append(session.execute(
        "import os\nopen('begun', 'w').close()\nwhile not os.path.exists('stop'): pass\n"
        "os.remove('begun'); os.remove('stop'); print('over')")))
    cell.start()
    session.commands.run("while [ ! -e begun ]; do sleep 0.01; done")
    assert not results
    session.commands.run("touch stop")
    cell.join()
    assert results[0].stdout == "over\n"


def test_cells_do_not_wait_for_a_command_that_is_read(session):
    """One thread reads a command, which ends after a cell that another one executes."""
    command = session.commands.start("while [ ! -e stop ]; do sleep 0.01; done; rm stop")
    reader = threading.Thread(target=command.wait)
    reader.start()
    assert session.execute("open('stop', 'w').close()").ok
    reader.join()
    assert command.exit_code == 0
    command.close()


def test_many_commands_at_once(session):
    """Each has its own output, and files are served meanwhile."""
    commands = [session.commands.start("read word; echo %d $word" % i, stdin=True)
                for i in range(8)]
    session.files.write("beside", b"x")
    for command in commands:
        command.write("go\n")
    for i, command in reversed(list(enumerate(commands))):
        assert command.read().stdout == b"%d go\n" % i
        assert command.wait() == 0
        command.close()
    assert session.files.read("beside") == b"x"


def test_callbacks_and_checks(session):
    said = []
    session.commands.run("echo a; echo b >&2", on_stdout=said.append, on_stderr=said.append)
    assert sorted(said) == ["a\n", "b\n"]
    with pytest.raises(droste.CommandFailed, match="exit status 2: no such thing") as e:
        session.commands.run("echo no such thing >&2; exit 2", check=True)
    assert e.value.result.exit_code == 2
    assert session.commands.run("true", check=True).ok


def test_mistakes_are_named(session):
    """A program or directory that is not there, and words that no command can have."""
    run = session.commands.run
    with pytest.raises(FileNotFoundError, match='starting "no-such" in the sandbox'):
        run(["no-such"])
    with pytest.raises(FileNotFoundError, match="the directory in which to start it"):
        run("true", cwd="no-such")
    with pytest.raises(PermissionError):
        run(["/dev/null"])
    for words, more in (([], {}), ([""], {}), ("true", {"timeout": 0}),
                        ("true", {"env": {"": "a"}}), (["x" * (1 << 20)], {})):
        with pytest.raises(droste.ArgumentError):
            run(words, **more)
    with pytest.raises(ValueError, match="NUL"):
        run(["a\0b"])
    with pytest.raises(droste.ArgumentError, match="limit"):
        run("yes", limit=1000)
    assert run("echo on", limit=3).stdout == "on\n"


def test_the_end_of_their_process_ends_commands_alone(opened):
    """A command can end others, and the process that runs them; the session goes on, and the next
    command starts as before."""
    session = opened()
    with session.commands.start("echo $$ $PPID; exec sleep 1000") as command:
        pid, runner = map(int, command.read().stdout.split())
        assert session.commands.run("kill -KILL %d" % pid).ok
        assert command.wait() == -signal.SIGKILL
    with session.commands.start("echo up; exec sleep 1000") as command:
        assert command.read().stdout == b"up\n"
        with pytest.raises(droste.LostError):
            session.commands.run("kill -KILL %d; sleep 1000" % runner)
        with pytest.raises(droste.LostError):
            command.wait()
    assert session.commands.run("echo on").stdout == "on\n"
    assert session.execute("print(1)").stdout == "1\n"


def test_commands_end_with_the_session(opened):
    """A read that waits raises; nothing of the command is left."""
    session = opened()
    command = session.commands.start("echo up; sleep 1000")
    assert command.read().stdout == b"up\n"
    errors = []

    def read():
        try:
            command.wait()
        except droste.Error as e:
            errors.append(e)
    reader = threading.Thread(target=read)
    reader.start()
    session.execute("import os; os._exit(3)")
    reader.join()
    assert len(errors) == 1
