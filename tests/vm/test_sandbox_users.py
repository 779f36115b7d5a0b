"""As root, sandboxes in cgroups of version 2 are users of their own as well."""
import os

import pytest

from test_limits import DROSTE, homes, read, run, sleeping  # noqa: F401  (a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0,
                                reason="root alone can give a sandbox another user")
NOBODY = 65534
LEVELS = ("full", "light")
FIRST, LAST = 1900000000, 1900065535


def users_in(sandbox):
    """Whose the processes of a cgroup are."""
    return {os.stat("/proc/" + pid).st_uid for pid in read(sandbox, "cgroup.procs").split()}


@pytest.mark.parametrize("level", LEVELS)
def test_sandboxes_in_cgroups_are_users_of_their_own(level, sleeping):  # noqa: F811
    """Two at once: each is in its cgroup, with keeper and worker, and all of one are one user
    that the other is not."""
    (_, one), (_, two) = sleeping(level), sleeping(level)
    users = users_in(one), users_in(two)
    assert one != two and [len(u) for u in users] == [1, 1]
    assert users[0] != users[1] and all(FIRST <= u <= LAST for both in users for u in both)


@pytest.mark.parametrize("level", LEVELS)
def test_sandboxes_that_share_a_user_are_in_cgroups_too(level, sleeping):  # noqa: F811
    """The plain twin."""
    (_, one), (_, two) = sleeping(level, "--sandbox-users",
                                  "shared"), sleeping(level, "--sandbox-users", "shared")
    assert one != two and users_in(one) == users_in(two) == {NOBODY}


@pytest.mark.parametrize("level", LEVELS)
def test_a_users_files_of_the_cgroup_are_out_of_its_reach(level):
    """The guest's group is not the zygote's, by which the clone may be put into the cgroup."""
    code = ("import os; SUBMIT(groups=[os.getgid()] + os.getgroups(), "
            "seen=os.path.exists('/sys/fs/cgroup/cgroup.procs'))")
    submitted = run(code, level)["submit"]
    assert submitted == {"groups": [1000], "seen": False}


def test_where_no_mount_can_map_ids_a_volume_belongs_to_the_user_nobody(tmp_path):
    """The machine's files are in memory, which this kernel cannot mount so: sandboxes of a
    volume share a user, as `droste doctor` says, and write to it one after the other."""
    place = ("--volume-root", str(tmp_path), "--volume-name", "v")
    assert run("open('/data/x', 'w').write('1'); SUBMIT(done=True)", "full",
               *place)["status"] == "submitted"
    assert run("SUBMIT(x=open('/data/x').read())", "full", *place)["submit"] == {"x": "1"}
    output = os.popen("%s doctor --volume-root %s" % (DROSTE, tmp_path)).read()
    assert "share user 65534" in output
    assert os.stat(tmp_path / "v/data/x").st_uid == NOBODY
    assert homes() == []
