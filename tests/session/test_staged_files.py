"""docs/staging.md: "Staging puts files into a sandbox before its session begins: those of a git
repository, and files and directories of this machine."
"""
import os
import shutil
import subprocess

import pytest

import droste

pytestmark = pytest.mark.needs("workspace")


@pytest.fixture
def files(tmp_path):
    """A directory of the host's, and a file beside it."""
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "notes" / "deep" / "é.txt").write_text("in the directory\n")
    (tmp_path / "plan.md").write_text("the plan")
    return tmp_path


@pytest.fixture
def repository(tmp_path):
    """A repository with a branch `other`, by its URL."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    place = tmp_path / "project"
    place.mkdir()
    (place / "pkg").mkdir()
    (place / "README.md").write_text("first\n")
    (place / "pkg" / "mod.py").write_text("VALUE = 42\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"],
                  ["checkout", "-qb", "other"]):
        git(place, *words)
    (place / "README.md").write_text("other\n")
    git(place, "commit", "-qam", "two")
    git(place, "checkout", "-q", "main")
    return "file://%s" % place


def git(place, *words):
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@e", *words], cwd=place,
                   check=True, capture_output=True,
                   env={**os.environ, "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"})


@pytest.fixture
def staged(opened, volume_root):
    return lambda **settings: opened(**{"volume_root": volume_root, **settings})


def test_copies_of_the_hosts_files_are_there(staged, files):
    """context_path: CONTEXT_PATHS says where each is, below WORKSPACE_ROOT."""
    interp = staged(context_path=[str(files / "notes"), str(files / "plan.md")])
    result = interp.execute(
        "import os\nSUBMIT(names=[os.path.basename(p) for p in CONTEXT_PATHS], "
        "text=read_file(CONTEXT_PATHS[1]),\n"
        "       deep=read_file(CONTEXT_PATHS[0] + '/deep/é.txt'), "
        "below=all(p.startswith(WORKSPACE_ROOT) for p in CONTEXT_PATHS))")
    assert result.fields == {"names": ["notes", "plan.md"], "text": "the plan",
                             "deep": "in the directory\n", "below": True}


def test_the_originals_are_not_touched(staged, files):
    """All of it is a copy, which the guest may change, and which is gone with the session."""
    interp = staged(context_path=[str(files / "plan.md")])
    assert interp.execute(
        "with open(CONTEXT_PATHS[0], 'w') as f: f.write('changed')\n"
        "read_file(CONTEXT_PATHS[0])").echo == "'changed'"
    interp.shutdown()
    assert (files / "plan.md").read_text() == "the plan"
    assert staged(context_path=[str(files / "plan.md")]).execute(
        "read_file(CONTEXT_PATHS[0])").echo == "'the plan'"


def test_a_local_repository_is_there_and_is_the_current_directory(staged, repository):
    """repo_url: the files of its commit, without its history; REPO_PATH, and the modules in it can
    be imported."""
    interp = staged(repo_url=repository)
    result = interp.execute(
        "import os, sys\nsys.path.insert(0, REPO_PATH)\nfrom pkg.mod import VALUE\n"
        "SUBMIT(text=read_file('README.md'), here=os.path.samefile('.', REPO_PATH), value=VALUE, "
        "git=os.path.exists('.git'))")
    assert result.fields == {"text": "first\n", "here": True, "value": 42,
                             "git": False}, result.error
    report = result.json["repo"]
    assert report["url"] == repository and len(report["commit"]) == 40


def test_a_branch_is_staged_by_its_name(staged, repository):
    """repo_ref."""
    assert staged(repo_url=repository,
                  repo_ref="other").execute("read_file('README.md')").echo == "'other\\n'"


def test_the_workspaces_helpers_stay_in_it(staged, repository):
    """workspace_write and its kin are below REPO_PATH, and nothing leads out."""
    result = staged(repo_url=repository).execute(
        "workspace_write('out.txt', 'a')\nworkspace_append('out.txt', 'b')\n"
        "SUBMIT(text=read_file('out.txt'), listed=workspace_list('*.txt'), "
        "out=workspace_write('../../x', 'x'))")
    assert (result.text, result.listed) == ("ab", ["out.txt"]) and result.out.startswith("[error: ")


def test_what_is_not_there_is_refused_by_name(staged, files, repository):
    """No such file, ref or repository: no session."""
    for settings in ({"context_path": [str(files / "none")]},
                     {"repo_url": repository, "repo_ref": "none"}, {"repo_url": repository + "x"}):
        with pytest.raises(droste.NotFoundError):
            staged(**settings)


def test_what_was_staged_does_not_stay(staged, files, environment):
    """Two sessions one after the other: neither sees what the other wrote."""
    first = staged(context_path=[str(files / "plan.md")])
    first.execute("workspace_write('mine.txt', 'x')")
    first.shutdown()
    assert staged(context_path=[str(files / "plan.md")]).execute(
        "workspace_list('mine.txt')").echo == "[]"
