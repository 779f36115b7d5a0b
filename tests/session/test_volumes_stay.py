"""docs/volumes.md: "A volume is a named directory that outlives sandboxes: what code writes there
is there in the next session." And DESIGN.md: "A spec that asks for what an environment cannot give
is refused by name".
"""
import uuid

import pytest

import droste


@pytest.fixture
def volume(opened, volume_root):
    """volume(setting=value…): a session with the volume of this test."""
    name = "v-%s" % uuid.uuid4().hex
    return lambda **settings: opened(**{"volume_name": name, "volume_root": volume_root,
                                        **settings})


pytestmark = pytest.mark.needs("volume")


def test_what_is_written_is_there_in_the_next_session(volume):
    """Volumes persist over sessions: by Python's own files and by the helpers."""
    first = volume()
    first.execute(
        "import os\nhere = os.environ['DROSTE_VOLUME']\nwith open(here + '/by open', 'wb') as f: "
        "f.write(b'\\0\\xff')\n"
        "save_to_volume('deep/down/by helper.txt', 'é\\r\\n')\nworkspace_write('w.txt', "
        "'one')\nworkspace_append('w.txt', ' two')")
    first.shutdown()
    result = volume().execute(
        "import os\nwith open(os.environ['DROSTE_VOLUME'] + '/by open', 'rb') as f: data = "
        "f.read()\n"
        "SUBMIT(data=list(data), text=load_from_volume('deep/down/by helper.txt'), "
        "w=workspace_read('w.txt'), l=workspace_list())")
    assert result.fields == {"data": [0, 255], "text": "é\r\n", "w": "one two", "l": ["w.txt"]}


def test_what_was_written_before_the_end_of_a_guest_is_there(volume):
    """A sandbox that dies loses its variables, not what it has saved."""
    dying = volume()
    assert dying.execute(
        "save_to_volume('kept.txt', 'kept')\nimport os\nos._exit(3)").killed == "exit 3"
    dying.shutdown()
    assert volume().execute("load_from_volume('kept.txt')").echo == "'kept'"


@pytest.mark.needs("volume at once")
def test_sessions_share_a_volume_at_once(volume):
    """What one has written the other sees at once."""
    one, two = volume(), volume()
    one.execute("save_to_volume('a.txt', 'by one')")
    assert two.execute("load_from_volume('a.txt')").echo == "'by one'"
    two.execute("save_to_volume('a.txt', 'by two')")
    assert one.execute("load_from_volume('a.txt')").echo == "'by two'"


def test_volumes_stay_apart(volume):
    """Another name is another directory."""
    volume().execute("save_to_volume('a.txt', 'mine')")
    assert "not found" in volume(volume_name="other").execute("load_from_volume('a.txt')").echo


WRONG = [
    ("save_to_volume('../out', 'x')", "invalid volume path"),
    ("save_to_volume('/etc/out', 'x')", "invalid volume path"),
    ("save_to_volume('', 'x')", "cannot be empty"),
    ("load_from_volume('nothing')", "file not found"), ("workspace_read('../../x')", "[error: ")]


def test_wrong_paths_come_back_as_text(volume):
    """What is wrong with a path is said in its place, as docs/guest.md has it."""
    interp = volume()
    for code, message in WRONG:
        assert message in interp.execute(code).echo, code


def test_a_volume_has_the_directories_that_skills_expect(volume):
    """With the layout of Daytona's sandboxes: artifacts, buffers, memories and the others; and
    MEMORY_ROOT is the volume."""
    result = volume(layout="daytona").execute(
        "import os\nSUBMIT(found=sorted(os.listdir(MEMORY_ROOT)), "
        "same=os.path.samefile(MEMORY_ROOT, os.environ['DROSTE_VOLUME']))")
    assert {"artifacts", "buffers", "knowledge", "logs", "memories", "sessions", "skills",
            "uploads", "workspace"} <= set(result.found)
    assert result.same is True


def test_a_name_that_is_none_is_refused(volume):
    """In the host."""
    with pytest.raises(droste.ArgumentError):
        volume(volume_name="../x")


@pytest.mark.needs("volume size", "volume watch")
def test_a_volume_over_its_limit_ends_its_session_and_says_so(volume):
    """killed: volume size; sessions are refused until there is room."""
    interp = volume(volume_size="1M")
    result = interp.execute(
        "import os, time\nwith open(os.environ['DROSTE_VOLUME'] + '/big', 'wb') as f: "
        "f.write(bytes(2 << 20))\ntime.sleep(60)")
    assert (result.status, result.killed) == ("killed", "volume size")
    interp.shutdown()
    with pytest.raises(droste.Error, match="volume"):
        volume(volume_size="1M")


def test_a_volume_within_its_limit_is_not_disturbed(volume):
    """The twin."""
    interp = volume(volume_size="4M")
    assert interp.execute(
        "import os, time\nwith open(os.environ['DROSTE_VOLUME'] + '/small', 'wb') as f: "
        "f.write(bytes(1 << 20))\ntime.sleep(0.3)").ok
    assert interp.execute("1").ok


@pytest.mark.needs("volume size")
def test_a_cell_that_leaves_more_than_the_limit_says_so(volume):
    """killed: volume size, at the end of the cell at the latest."""
    interp = volume(volume_size="1M")
    result = interp.execute(
        "import os, time\nwith open(os.environ['DROSTE_VOLUME'] + '/big', 'wb') as f: "
        "f.write(os.urandom(2 << 20))\ntime.sleep(5)")
    assert (result.status, result.killed) == ("killed", "volume size")


def test_files_that_are_written_anew_and_removed_are_so_in_the_next_session(volume):
    """By what every volume has, a bucket too: whole files, written from their beginning, and
    removed; names of any bytes."""
    first = volume()
    assert first.execute(
        "import os\nos.chdir(MEMORY_ROOT)\nos.makedirs('d/e')\nfor name in ('d/e/f', 'd/stays', "
        "'gone', b'\\xff\\n'):\n"
        "    open(name, 'w').write('old')").ok
    assert first.execute(
        "os.unlink('gone')\nos.unlink('d/e/f')\nopen(b'\\xff\\n', 'w').write('new')\nopen('added', "
        "'w').write('1')").ok
    first.shutdown()
    result = volume().execute(
        "import os\nos.chdir(MEMORY_ROOT)\nSUBMIT(gone=os.path.lexists('gone') or "
        "os.path.lexists('d/e/f'), d=open('d/stays').read(),\n"
        "       odd=open(b'\\xff\\n').read(), added=open('added').read())")
    assert result.fields == {"gone": False, "d": "old", "odd": "new", "added": "1"}


def test_workspace_files_are_written_and_added_to(volume):
    """Also where the volume has no appends and no renames; nothing is left beside them."""
    interp = volume()
    assert interp.execute(
        "workspace_append('log', 'a')\nworkspace_append('log', 'b')\nworkspace_write('d/one', "
        "'1')\nworkspace_write('d/one', '2')").ok
    interp.shutdown()
    result = volume().execute(
        "import os\nSUBMIT(log=workspace_read('log'), one=workspace_read('d/one'), "
        "d=os.listdir(os.path.join(MEMORY_ROOT, 'workspace', 'd')))")
    assert result.fields == {"log": "ab", "one": "2", "d": ["one"]}


@pytest.mark.needs("volume links")
def test_what_is_changed_and_removed_is_so_in_the_next_session(volume):
    """Files that take another's place, links, names of any bytes, directories that become files and
    the other way round."""
    first = volume()
    assert first.execute(
        "import os\nos.chdir(MEMORY_ROOT)\nos.makedirs('d/e')\nfor name in ('d/e/f', 'x', 'gone', "
        "b'\\xff\\n'):\n    open(name, 'w').write('old')").ok
    assert first.execute(
        "import shutil\nos.unlink('gone')\nos.unlink('x')\nos.mkdir('x')\nshutil.rmtree('d')\n"
        "open('d', 'w').write('new')\n"
        "open(b'\\xff\\n', 'w').write('new')\nos.symlink('d', 'l')").ok
    first.shutdown()
    result = volume().execute(
        "import os\nos.chdir(MEMORY_ROOT)\nSUBMIT(gone=os.path.lexists('gone'), x=os.listdir('x'), "
        "d=open('d').read(), link=os.readlink('l'),\n"
        "       odd=open(b'\\xff\\n').read())")
    assert result.fields == {"gone": False, "x": [], "d": "new", "link": "d", "odd": "new"}
