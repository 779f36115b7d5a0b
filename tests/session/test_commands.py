"""Commands of a session: programs that the host starts in its sandbox, whatever its code does
meanwhile. docs/commands.md has the rules. Each runs with the code's files, user and limits; what a
hostile one does costs the host nothing, and ends with the session.
"""
import errno
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
    """More than all buffers hold, both ways; a command that reads only a part of it is not an
    error."""
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
    chunks = []
    session.commands.run("echo a; echo b >&2", on_stdout=chunks.append, on_stderr=chunks.append)
    assert sorted(chunks) == ["a\n", "b\n"]
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


# -- readers, ends and signals

def test_each_reader_of_a_command_reads_all_of_it(session):
    """A second one, found by tag or pid, reads what is written from then on; both hear the end. A
    reader that is attached to does not kill it when it is closed."""
    with session.commands.start("while read x; do echo $x; done; exit 5", stdin=True,
                                tag="echoes") as first:
        first.write("a\n")
        assert first.read().stdout == b"a\n"
        second, third = session.commands.attach("echoes"), session.commands.attach(first.pid)
        assert second.pid == third.pid == first.pid
        first.write("b\n")
        for reader in (first, second, third):
            assert reader.read().stdout == b"b\n"
        third.close()
        second.write("c\n")
        second.close_stdin()
        assert [second.read().stdout, first.read().stdout] == [b"c\n", b"c\n"]
        assert [second.wait(), first.wait()] == [5, 5]


def test_a_command_waits_for_its_slowest_reader(session):
    """What it has not read is bounded, and none that reads loses anything."""
    first = session.commands.start("yes | head -c 4000000", tag="fast")
    second, sizes = session.commands.attach("fast"), []
    reader = threading.Thread(target=lambda: sizes.extend(len(out.stdout) for out in first))
    reader.start()
    size = sum(len(output.stdout) for output in second)
    reader.join()
    assert (sum(sizes), size) == (4000000, 4000000)
    first.close()
    second.close()


def test_a_reader_that_does_not_read_delays_no_other(session):
    """The others do not wait for it. It may be 1 MiB behind and loses nothing then. Farther behind,
    it is told that it did."""
    for size, is_late in ((1000000, False), (3000000, True)):
        first = session.commands.start("head -c %d /dev/zero; exit 5" % size, tag="fast")
        silent = session.commands.attach("fast")
        assert sum(len(output.stdout) for output in first) == size
        assert first.exit_code == 5
        if is_late:
            with pytest.raises(OSError) as failure:
                silent.read()
            assert failure.value.errno == errno.ENOBUFS and "behind" in str(failure.value)
        else:
            assert sum(len(output.stdout) for output in silent) == size
            assert silent.exit_code == 5
        first.close()
        silent.close()


def test_a_command_that_was_detached_goes_on(session):
    """Its output is dropped meanwhile; its end is known for a while, by its tag."""
    command = session.commands.start(
        "yes | head -c 1000000; while [ ! -e go ]; do sleep 0.01; done; rm go; exit 7",
        tag="left alone")
    command.detach()
    with session.commands.attach("left alone") as again:
        assert again.exit_code is None
    session.files.write("go", b"")
    session.commands.run("while [ -e go ]; do sleep 0.01; done")
    with session.commands.attach("left alone") as again:
        assert again.wait() == 7
    for name in ("no such tag", 4000000):
        with pytest.raises(ProcessLookupError):
            session.commands.attach(name)


def test_commands_are_listed(session):
    """With what their start gave, and how they ended."""
    with session.commands.start(["sleep", "1000"], tag="sleeper", env={"A": "b=c"},
                                cwd="/") as command:
        assert session.commands.run("exit 3", tag="exited").exit_code == 3
        listed = {info.tag: info for info in session.commands.list()}
        assert listed["exited"].exit_code == 3
        info = listed["sleeper"]
        assert info[:6] == (command.pid, "sleeper", None, "/", ["sleep", "1000"], {"A": "b=c"})
        assert (info.exit_code, info.terminal, info.cut) == (None, False, False)
        assert session.commands.run("kill -0 %d" % info.pid).ok
        long = session.commands.start(["true", "x" * 100000], tag="long")
        assert {info.tag: info for info in session.commands.list()}["long"].cut
        long.close()


def test_an_end_can_wait_for_what_is_left_running(session):
    """With `drain` the output's end is awaited; a signal or time limit tells the end at once."""
    code = "(while [ ! -e go ]; do sleep 0.01; done; rm go; echo late) & echo early"
    with session.commands.start(code, drain=True) as command:
        assert command.read().stdout == b"early\n"
        session.files.write("go", b"")
        assert (command.read().stdout, command.wait()) == (b"late\n", 0)
    left = "(while [ ! -e go ]; do sleep 0.01; done; rm go) & echo up; exec sleep 1000"
    with session.commands.start(left, drain=True) as command:
        assert command.read().stdout == b"up\n"
        assert command.send_signal(signal.SIGKILL, group=False)
        assert command.wait() == -signal.SIGKILL
        session.commands.run("touch go; while [ -e go ]; do sleep 0.01; done")


def test_a_signal_can_reach_the_process_alone(session):
    with session.commands.start("trap 'echo heard; exit 4' INT; echo up; "
                                "while :; do sleep 0.01; done") as command:
        assert command.read().stdout == b"up\n"
        assert command.send_signal(signal.SIGINT, group=False)
        assert command.read().stdout == b"heard\n"
        assert command.wait() == 4


# -- terminals

@pytest.fixture
def terminals(session, environment):
    """The commands of an environment with terminals; elsewhere the refusal names them."""
    try:
        session.commands.start("true", terminal=(80, 24)).close()
    except OSError as e:
        assert environment.id.endswith("landlock") and "a terminal" in str(e)
        pytest.skip("%s: %s" % (environment.id, e))
    return session.commands


def read_until(command, word):
    text = b""
    while word not in text:
        output = command.read()
        assert command.exit_code is None, text
        text += output.stdout
    return text


def test_a_terminal_has_a_size_that_can_change(terminals):
    """Its processes see it, and hear of a change; what is typed is echoed and edited."""
    with terminals.start("trap 'stty size' WINCH; stty size; read word; echo got $word $TERM; "
                         "while :; do sleep 0.01; done", terminal=(91, 17)) as command:
        read_until(command, b"17 91\r\n")
        command.write("wrx\x7fong\n")
        read_until(command, b"got wrong xterm-256color\r\n")
        command.resize(120, 40)
        read_until(command, b"40 120\r\n")
        with pytest.raises(droste.ArgumentError, match="columns"):
            command.resize(0, 40)
    with terminals.start("cat", stdin=True) as command:
        with pytest.raises(OSError, match="terminal"):
            command.resize(80, 24)


def test_a_terminal_controls_its_session(terminals):
    """^C interrupts the process in front, ^D ends the input, and ^Z stops a job of a shell."""
    with terminals.start("trap 'echo interrupted' INT; cat; cat; exit 3", terminal=(80, 24)
                         ) as command:
        command.write("up\n")
        read_until(command, b"up\r\nup\r\n")      # the echo, and what `cat` has read
        command.write("\x03")
        read_until(command, b"interrupted\r\n")
        command.close_stdin()
        assert command.wait() == 3
    with terminals.start(["bash", "--norc", "-i"], terminal=(80, 24),
                         env={"PS1": "ready> ", "TERM": "dumb"}) as command:
        read_until(command, b"ready> ")
        command.write("sh -c 'echo o\"\"n; exec sleep 1000'\n")
        read_until(command, b"on\r\n")      # it is in front: its own process has seen to that
        command.write("\x1a")
        read_until(command, b"Stopped")
        command.write("exit\n")
        read_until(command, b"There are stopped jobs")
        command.write("exit 6\n")
        assert command.wait() == 6


def test_terminals_stay_within_their_sandbox(terminals, environment):
    """Nothing is typed into one from inside, and their number is bounded."""
    probe = ("import errno, fcntl, os, termios\n"
             "ours, theirs = os.openpty()\n"
             "def tell(name, number, value):\n"
             "    try: fcntl.ioctl(theirs, number, value); print(name, 'allowed')\n"
             "    except OSError as e: print(name, errno.errorcode[e.errno])\n"
             "tell('size', termios.TIOCSWINSZ, b'\\1\\0' * 4)\n"
             "tell('type', termios.TIOCSTI, b'x')\n"
             "tell('discipline', termios.TIOCSETD, b'\\2\\0\\0\\0')\n"
             "opened = [ours, theirs]\n"
             "try:\n"
             "    for _ in range(100): opened += os.openpty()\n"
             "except OSError as e: print('more', errno.errorcode[e.errno])\n")
    words = terminals.run(["python3", "-c", probe]).stdout.splitlines()
    assert words[0] == "size allowed"
    if environment.id in ("local:full", "local:light", "forked:full"):
        assert words[1:] == ["type EPERM", "discipline EPERM", "more ENOSPC"]


def test_users_and_their_names(session, environment):
    """A command gets the environment and the home directory of a user that the sandbox knows. At
    `landlock` it knows none: the host's list is out of its reach."""
    with pytest.raises(FileNotFoundError, match="the user to run it as"):
        session.commands.run("true", user="no-such-user")
    if environment.id.endswith("landlock"):
        return
    found = session.execute("import os, pwd; e = pwd.getpwuid(os.getuid()); "
                            "print(e.pw_name, e.pw_dir)")
    if not found.ok:
        assert "uid not found" in str(found.error)    # no user of the machine's has this id
        return
    name, home = found.stdout.split()
    result = session.commands.run('echo "$USER $LOGNAME $HOME"; cd "$HOME" && pwd -P', user=name,
                                  cwd="/")
    assert result.stdout.splitlines()[0] == "%s %s %s" % (name, name, home)
    assert session.commands.run("echo $A", user=name, env={"A": "b"}).stdout == "b\n"
    if session.files.exists(home):
        assert session.commands.run("pwd", user=name, cwd="~").stdout == home + "\n"
    else:
        with pytest.raises(FileNotFoundError, match="the directory in which to start it"):
            session.commands.run("pwd", user=name, cwd="~")
