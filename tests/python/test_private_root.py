"""A writable root of a sandbox's own, `root="private"`: what it has, and where it ends."""
import subprocess
import sys

import pytest

import droste

LEVELS = ("full", "light")


@pytest.fixture(scope="module", params=LEVELS)
def session(request):
    try:
        interp = droste.Interpreter(root="private", isolation=request.param, tmp_size="8M")
        interp.start()
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (request.param, e))
    yield interp
    interp.shutdown()


def test_cells_and_commands_start_in_a_home_directory(session):
    code = "import os; print(os.getcwd(), os.environ['HOME'], os.path.expanduser('~'))"
    assert session.execute(code).stdout.split() == ["/home/user"] * 3
    assert session.commands.run("pwd; echo $HOME $USER; umask").stdout.split() == \
        ["/home/user", "/home/user", "user", "0022"]
    session.files.write("made", b"1")
    assert session.files.read("/home/user/made") == b"1"
    assert session.commands.run("stat -c '%U:%G %a' made").stdout == "user:user 644\n"


def test_everything_but_system_directories_can_be_written(session):
    result = session.commands.run(
        "mkdir -p /workspace/a /opt/b && echo 1 > /etc/gitconfig && touch /root/x /tmp/x /x && "
        "rm /x && mv /workspace /code && ls -d /code/a")
    assert result[:2] == (0, "/code/a\n"), result.stderr
    for path in ("/usr/x", "/dev/x", "/proc/self/comm"):
        assert "Read-only file system" in session.commands.run("echo > " + path).stderr


def test_both_users_are_the_one_that_there_is(session):
    """Each has its environment and home; the files of both are `user`'s."""
    for user, home in (("user", "/home/user"), ("root", "/root")):
        lines = session.commands.run(["bash", "-lc", "echo $USER $HOME $PWD; touch by; "
                                      "stat -c %U:%G by; rm by; id -u"],
                                     user=user).stdout.splitlines()
        assert lines == ["%s %s %s" % (user, home, home), "user:user", "1000"]
    result = session.commands.run("sudo -n -u root env", env={"SECRET": "1"})
    assert "USER=root\n" in result.stdout and "SECRET" not in result.stdout


def test_python_is_the_interpreter_of_the_session(session):
    own = session.execute("import sys; print(sys.version)").stdout
    for name in ("python", "python3"):
        assert session.commands.run([name, "-c", "import sys; print(sys.version)"]).stdout == own
    assert session.commands.run("python -c 'import multiprocessing as m; "
                                "print(m.Pool(1).map(abs, [-3]))'").stdout == "[3]\n"


def test_its_size_is_bounded(session):
    result = session.commands.run("head -c 9000000 /dev/zero > /large; rm -f /large")
    assert "No space left" in result.stderr
    assert session.commands.run("head -c 1000000 /dev/zero > /small && rm /small").ok


def test_it_is_the_sandboxs_own(session):
    """Another sandbox of the same kind does not see it, and has terminals."""
    session.files.write("/mine", b"1")
    with droste.Interpreter(root="private", isolation=session.isolation) as other:
        assert not other.files.exists("/mine")
        with other.commands.start("tty", terminal=(80, 24)) as command:
            assert b"/dev/pts/0" in command.read().stdout


def test_a_virtual_environment_is_kept(tmp_path):
    """Also one below /tmp, where the sandbox has files of its own."""
    place = str(tmp_path / "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    try:
        interp = droste.Interpreter(root="private", python=place + "/bin/python")
        with interp:
            shown = interp.commands.run("python -c 'import sys; print(sys.prefix)'").stdout
    except droste.UnsupportedError as e:
        pytest.skip("there is no private root here: %s" % e)
    assert shown == place + "\n"


def test_volumes_are_in_it(tmp_path):
    volume = dict(volume_name="v", volume_root=str(tmp_path / "volumes"))
    try:
        with droste.Interpreter(root="private", **volume) as interp:
            assert interp.commands.run("echo kept > /data/a && mkdir /data2").ok
    except droste.UnsupportedError as e:
        pytest.skip("there is no private root here: %s" % e)
    with droste.Interpreter(**volume) as interp:
        assert interp.files.read_text("/data/a") == "kept\n"


@pytest.mark.parametrize("level", ("landlock", "process"))
def test_levels_without_a_root_of_their_own_refuse_it(level):
    with pytest.raises(droste.UnsupportedError, match="--root private"):
        droste.Interpreter(root="private", isolation=level).start()
    with pytest.raises(droste.ArgumentError, match="root 'public' is not one of read-only"):
        droste.Interpreter(root="public").start()
