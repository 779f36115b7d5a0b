"""Staging: a repository's files and copies of paths are in the sandbox, nothing of a stranger's
runs on the host, and what the guest does to them stays in it. docs/staging.md says so."""
import json
import os
import shutil
import subprocess

import pytest

from harness import NOBODY, finish, refused, repl
from repositories import (  # noqa: F401: with fixtures
    any_user, GIT, git, left, own, packs, place, repo, Repo, staged, text_of)

LEVELS = ("full", "light", "landlock", "process")

# ---- what is there ----

LOOK = """import os
SUBMIT(cwd=os.getcwd(), repo=REPO_PATH, root=WORKSPACE_ROOT, env=os.environ["REPO_PATH"],
       names=sorted(os.listdir(".")), text=read_file("README.md"), link=os.readlink("link"), through=read_file("link"),
       ran=run("./run.sh")["stdout"], size=os.path.getsize("empty"), deep=find_files(".", "**/*.py"),
       mode=oct(os.stat("README.md").st_mode & 0o777), written=workspace_write("notes/a.txt", "mine"),
       read=workspace_read("notes/a.txt"), all=workspace_list(), out=workspace_write("/etc/passwd", "x"))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_the_files_of_a_commit_are_in_the_workspace(any_user, repo, level):
    """At every isolation, for root as for others and whatever the umask is; and the guest may write
    there."""
    if any_user.prefix:     # git looks at who owns a repository
        subprocess.run(["chown", "-R", "%d:%d" % (NOBODY, NOBODY), repo.path], check=True)
    result = staged(any_user, LOOK, "--repo-url", repo.url, "--isolation", level, umask=0o077)
    got = result["submit"]
    assert got["cwd"] == got["repo"] == got["env"] == got["root"] + "/project"
    if level in ("full", "light"):
        assert got["root"] == "/workspace"
    assert got["names"] == ["README.md", "empty", "link", "run.sh", "src"]
    assert (got["text"], got["through"], got["link"]) == ("# second\n", "# second\n", "README.md")
    assert got["ran"] == "ran\n" and got["size"] == 0 and got["mode"] == "0o644"
    assert got["deep"] == [got["repo"] + "/src/deep/code.py"]
    assert got["written"] == got["repo"] + "/notes/a.txt" and got[
        "read"] == "mine" and "notes/a.txt" in got["all"]
    assert got["out"].startswith("[error: invalid workspace path")
    assert len(result["repo"]["commit"]) == 40 and result["repo"]["url"] == repo.url


def test_the_workspace_is_private_and_ends_with_its_session(own, repo, place):
    """Two at once have their own; what one writes is neither in the other nor in a later one, nor
    in the cache."""
    code = ("open('README.md', 'w').write('mine'); open('new', 'w')\n"
            "import os, time; open('/data/%s', 'w')\n"
            "while len([n for n in os.listdir('/data') if n in 'ab']) < 2: time.sleep(0.01)\n"
            "SUBMIT(names=os.listdir('.'), text=read_file('README.md'))")
    own("volume", "create", "v")
    flags = ("--repo-url", repo.url, "--volume-name", "v", "--json")
    both = [own.start("exec", "-c", code % name, *flags) for name in "ab"]
    for process in both:
        got = finish(process).json["submit"]
        assert got["text"] == "mine" and "new" in got["names"]
    assert not left(place)
    assert text_of(own, repo.url)["submit"]["text"] == "# second\n"


def test_with_daytonas_layout_they_have_its_names(own, repo):
    """On request, and the workspace is at /workspace too."""
    code = ("import os; SUBMIT(cwd=os.getcwd(), w=workspace_write('b', 'y'), "
            "too=open('/workspace/project/b').read(), m=MEMORY_ROOT)")
    got = staged(own, code, "--repo-url", repo.url, "--volume-name", "v", "--layout",
                 "daytona")["submit"]
    assert got == {"cwd": "/home/daytona/workspace/project",
                   "w": "/home/daytona/workspace/project/b", "too": "y",
                   "m": "/home/daytona/memory"}


def test_the_workspace_and_the_volume_have_their_own_names(own, repo):
    """Droste's."""
    got = staged(own,
                 "import os; SUBMIT(memory=MEMORY_ROOT, env=os.environ['MEMORY_ROOT'], "
                 "saved=save_to_volume('a', 'x'), w=workspace_write('b', 'y'))",
                 "--repo-url", repo.url, "--volume-name", "v")["submit"]
    assert got == {"memory": "/data", "env": "/data", "saved": "/data/a",
                   "w": "/workspace/project/b"}
    kept = staged(own, "import os; SUBMIT(a=load_from_volume('a'), b=workspace_read('b'))",
                  "--volume-name", "v")["submit"]
    assert kept["a"] == "x" and kept["b"].startswith("[error: file not found")


def test_without_staging_nothing_of_it_is_there(own):
    code = ("import os; SUBMIT(names=[n for n in ('REPO_PATH', 'WORKSPACE_ROOT', 'CONTEXT_PATHS', "
            "'MEMORY_ROOT') if n in dir(__builtins__)], there=os.path.exists('/workspace'))")
    result = staged(own, code)
    assert result["submit"] == {"names": [], "there": False} and result["repo"] is None


def test_rules_let_cells_write_to_the_workspace_and_to_the_temporary_directory(own, repo):
    code = (
        "open('mine', 'w').write('x'); open(%s, 'w').write('y'); "
        "SUBMIT(text=open('README.md').read())")
    assert staged(own, code % "'/tmp/a'", "--repo-url", repo.url, "--rules",
                  "yes")["submit"]["text"] == "# second\n"
    assert own.cell(code % "'/dev/shm/a'", "--repo-url", repo.url, "--rules",
                    "yes")["error"]["type"] == "PermissionError"


# ---- which commit ----

@pytest.mark.parametrize("ref", ["v1", "v1-signed", "topic/one", "refs/tags/v1"])
def test_branches_and_tags_are_found(own, repo, ref):
    """A branch before a tag of its name."""
    git(repo.path, "tag", "topic/one", "main")
    result = text_of(own, repo.url, ref)
    assert result["submit"]["text"] == "# first\n"
    assert result["repo"] == {"url": repo.url, "ref": ref,
                              "commit": git(repo.path, "rev-parse", "v1^{commit}")}


@pytest.mark.parametrize("digits", [40, 12, 7])
def test_a_commit_id_is_found_whole_and_shortened(own, repo, digits):
    """Also one that no branch points at any more."""
    first = git(repo.path, "rev-parse", "HEAD~1")
    assert text_of(own, repo.url, first[:digits].upper())["repo"]["commit"] == first


def test_a_branch_is_looked_for_each_time_and_a_cached_commit_never(own, repo, place):
    """What moved is fetched, without its history; what is there needs no host any more."""
    second = text_of(own, repo.url, "main")["repo"]["commit"]
    third = repo.commit(README_md="# third\n")
    assert text_of(own, repo.url, "main")["submit"]["text"] == "# third\n"
    cache = os.path.dirname(os.path.dirname(packs(place)[0]))
    assert git(os.path.dirname(cache), "rev-list",
               "--all").split() in ([second, third], [third, second])
    shutil.rmtree(repo.path)
    for commit in (second, third):
        assert text_of(own, repo.url, commit)["repo"]["commit"] == commit
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", "main"), 2,
            "there is no git repository")


def test_a_run_records_its_commit_and_the_prompt_names_it(own, repo, replay):
    """A run that is resumed gets the same commit, wherever the branch is by then."""
    result = own("run", "--question", "q", "--json", "--model",
                 replay(repl("SUBMIT(read_file('README.md'))")), "--repo-url", repo.url)
    assert result.json["answer"] == "# second\n" and result.json["repo"]["commit"] == repo.head
    (run,) = own.lines("run")
    assert run["limits"]["repo"] == {"url": repo.url, "ref": None, "commit": repo.head}
    prompt = own.lines("call")[0]["request"][0]["content"]
    assert "`REPO_PATH`" in prompt and repo.url in prompt and repo.head[:12] in prompt
    assert "repo      %s at %s\n" % (repo.url, repo.head) in own("runs", "show", run["run"]).out


def test_the_next_question_of_a_conversation_finds_its_files(own, repo, replay):
    """The session is gone over again on the commit of then, and nothing is fetched from the branch
    of now."""
    turn = repl("open('kept', 'w').write('1')\nSUBMIT('a')")
    first = own("run", "--question", "q", "--json", "--model", replay(turn), "--repo-url", repo.url)
    repo.commit(README_md="# third\n")
    again = own("run", "--question", "r", "--json", "--continue", first.json["run"],
                "--model", replay(turn, repl("SUBMIT(read_file('README.md') + read_file('kept'))")))
    assert again.json["answer"] == "# second\n1", again.json


def test_children_of_a_run_have_their_parents_files(own, repo, replay):
    """What a child writes its parent sees; and the current directory of both is the
    repository's."""
    child = {"content":
             repl(
        "open('of-child', 'w').write('c')\nSUBMIT(read_file('of-root') + read_file('README.md'))"),
             "depth": 1}
    result = own("run", "--question", "q", "--json", "--repo-url", repo.url, "--model",
                 replay(
        repl("open('of-root', 'w').write('r ')\nSUBMIT([rlm_query('q'), read_file('of-child')])"),
        child))
    assert result.json["answer"] == ["r # second\n", "c"], result


def test_a_replacement_sandbox_has_the_staged_files(own, repo, replay):
    """Variables are gone, and what was written is not."""
    result = own("run", "--question", "q", "--json", "--repo-url", repo.url, "--model",
                 replay(repl("open('kept', 'w').write('k')\nimport os; os._exit(3)"),
                        repl("SUBMIT(read_file('kept'))")))
    assert result.json["answer"] == "k", result


def test_tasks_of_a_batch_have_repositories_of_their_own(own, repo, replay, place):
    """And each a workspace of its own."""
    other = Repo(os.path.join(place, "other"))
    other.commit(README_md="# other\n")
    with open(os.path.join(own.home, "tasks.jsonl"), "w") as f:
        for url, ref in ((repo.url, "v1"), (other.url, "main"), (repo.url, "main")):
            f.write(json.dumps({"question": url + ref,
                                "settings": {"repo-url": url, "repo-ref": ref}}) + "\n")
    line = {"content": repl("open('mine', 'x')\nSUBMIT(read_file('README.md'))"), "repeat": True}
    result = own("batch", "tasks.jsonl", "--out", "results.jsonl", "--model", replay(line),
                 "--concurrency", "3")
    assert result.status == 0, result
    with open(os.path.join(own.home, "results.jsonl")) as f:
        answers = sorted(json.loads(text)["answer"] for text in f if "answer" in text)
    assert answers == ["# first\n", "# other\n", "# second\n"] and not left(place)


# ---- paths of this machine ----

def test_context_paths_are_copies(own, place):
    """Files and directories, under their last names; links in them are not followed, and the
    originals stay."""
    source = os.path.join(place, "notes")
    os.makedirs(source + "/deep")
    for name in ("a.txt", "deep/b.txt"):
        with open(os.path.join(source, name), "w") as f:
            f.write(name)
    os.symlink("/etc/passwd", source + "/link")
    code = """import os
one, two = CONTEXT_PATHS
open(one + "/a.txt", "a").write("!")
SUBMIT(paths=CONTEXT_PATHS, cwd=os.getcwd(), a=read_file(one + "/a.txt"), b=read_file(one + "/deep/b.txt"), two=read_file(two),
       link=os.path.lexists(one + "/link"))"""
    got = staged(own, code, "--context-path", source, "--context-path", source + "/a.txt")["submit"]
    base = "/workspace"
    assert got == {"paths": [base + "/context/notes", base + "/context/a.txt"], "cwd": base,
                   "a": "a.txt!",
                   "b": "deep/b.txt", "two": "a.txt", "link": False}
    assert open(source + "/a.txt").read() == "a.txt"


def test_context_paths_that_cannot_be_staged_are_refused(own, place):
    os.mkfifo(place + "/pipe")
    for name in ("x", "y"):
        os.makedirs(os.path.join(place, name, "same"))
    for path, why in ((place + "/none", "No such file"),
                      (place + "/pipe", "is a pipe: give a regular file or a directory"),
                      ("/", "all of this machine")):
        refused(own("exec", "-c", "1", "--context-path", path), 2, why)
    refused(own("exec", "-c", "1", "--context-path", place + "/x/same", "--context-path",
                place + "/y/same"), 2, "same last name")
    assert not left(place)


# ---- strangers ----

def test_nothing_of_the_repository_runs_on_the_host(own, repo, place):
    """Hooks, filters and a fsmonitor are there and would leave a mark; with git's own checkout they
    do."""
    mark = os.path.join(place, "mark")
    script = "#!/bin/sh\ntouch %s\ncat\n" % mark
    for hook in ("post-checkout", "post-merge", "reference-transaction", "fsmonitor-watchman"):
        repo.write(".git/hooks/" + hook, script, 0o755)
    repo.write(".gitattributes", "* filter=evil diff=evil\n")
    repo.write("evil.sh", script, 0o755)
    repo.commit()
    config = os.path.join(place, "gitconfig")
    with open(config, "w") as f:
        f.write(
            "[filter \"evil\"]\nsmudge = %s/evil.sh\nrequired = true\n[core]\nfsmonitor = "
            "%s/evil.sh\nhooksPath = %s/.git/hooks\n"
            % (repo.path, repo.path, repo.path))
    os.makedirs(own.home, exist_ok=True)
    shutil.copy(config, os.path.join(own.home, ".gitconfig"))
    if os.path.exists(mark):
        os.unlink(mark)
    hostile = {"GIT_CONFIG_GLOBAL": config, "GIT_TEMPLATE_DIR": repo.path + "/.git",
               "GIT_SSH_COMMAND": repo.path + "/evil.sh",
               "GIT_DIR": repo.path + "/.git", "GIT_EXTERNAL_DIFF": repo.path + "/evil.sh"}
    assert text_of(own, repo.url, env=hostile)["submit"]["text"] == "# second\n"
    assert not os.path.exists(mark)
    clone = {**GIT, "GIT_CONFIG_GLOBAL": config}
    subprocess.run(["git", "clone", "-q", repo.url, os.path.join(place, "clone")], env=clone,
                   check=True, capture_output=True)
    assert os.path.exists(mark), "the trap does not work"


def test_a_submodule_is_an_empty_directory(own, repo, place):
    other = Repo(os.path.join(place, "other"))
    other.commit(secret_txt="x")
    git(repo.path, "-c", "protocol.file.allow=always", "submodule", "add", "-q", other.url, "sub")
    repo.commit()
    assert staged(own, "SUBMIT(sub=list_files('sub'), text=read_file('.gitmodules'))", "--repo-url",
                  repo.url)["submit"]["sub"] == []


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT"])
def test_names_that_no_file_may_have_are_refused(own, repo, place, name):
    """As a directory, and as a file of another one; the twin, of a name like it, is written."""
    blob = repo.blob("evil\n")
    repo.tree(("100644", name, blob))
    inner = git(repo.path, "rev-parse", "evil^{tree}")
    for outer in (name, "fine"):
        repo.tree(("40000", outer, inner if outer == "fine"
                   else git(repo.path, "rev-parse", "v1:src")))
        refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", "evil"), 1,
                "this name is not allowed")
    repo.tree(("100644", name + "x", blob))
    got = staged(own, "SUBMIT(text=read_file(%r))" % (name + "x"), "--repo-url", repo.url,
                 "--repo-ref", "evil")
    assert got["submit"]["text"] == "evil\n"
    assert not left(place)


def test_a_link_and_a_directory_of_one_name_write_nowhere_else(own, repo, place):
    """The link comes first; what is below the directory would be written through it. Nor are there
    two files of one name."""
    outside = os.path.join(place, "outside")
    os.mkdir(outside)
    repo.tree(("100644", "owned", repo.blob("evil\n")))
    inner = git(repo.path, "rev-parse", "evil^{tree}")
    repo.tree(("120000", "d", repo.blob(outside)), ("40000", "d", inner))
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", "evil"), 1,
            "another file has the same name")
    assert os.listdir(outside) == []
    repo.tree(("100644", "d", repo.blob("one")), ("100644", "d", repo.blob("two")))
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", "evil"), 1,
            "another file has the same name")
    repo.tree(("40000", "d", inner), ("120000", "e", repo.blob(outside)))
    assert staged(own, "SUBMIT(text=read_file('d/owned'))", "--repo-url", repo.url, "--repo-ref",
                  "evil")["submit"]["text"] == "evil\n"


def test_a_link_that_leads_outside_leads_to_the_sandboxs_own(own, repo, place):
    """And one that no system call would take is refused."""
    secret = os.path.join(place, "secret")
    with open(secret, "w") as f:
        f.write("canary")
    repo.tree(("120000", "out", repo.blob(secret)), ("120000", "passwd", repo.blob("/etc/passwd")))
    got = staged(own,
                 "import os; SUBMIT(out=os.path.exists('out'), link=os.readlink('out'), "
                 "passwd=open('passwd').read())",
                 "--repo-url", repo.url, "--repo-ref", "evil")["submit"]
    for target, why in (("x" * 4096, "the target of the link is too long"),
                        ("a\0b", "the link has no target")):
        repo.tree(("120000", "out", repo.blob(target)))
        refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref", "evil"), 1, why)
    assert got["out"] is False and got["link"] == secret and "guest:x:1000" in got["passwd"]


def test_odd_names_are_written_as_they_are(own, repo):
    blob = repo.blob("x")
    names = ["-rf", "a b", "new\nline", "'\"`$(touch x)", "\u00e4", "C:\\x"]
    repo.tree(*sorted(("100644", name, blob) for name in names))
    got = staged(own, "import os; SUBMIT(names=sorted(os.listdir('.')))", "--repo-url", repo.url,
                 "--repo-ref", "evil")
    assert got["submit"]["names"] == sorted(names)


# ---- what is refused ----

@pytest.mark.parametrize("url", [
    "ext::sh -c touch% /tmp/x", "http://127.0.0.1/x", "git://127.0.0.1/x", "fd::1",
    "file://relative/x", "/abs/path", "-u", "--upload-pack=x",
    "ssh://-oProxyCommand=x/y", "https://user:secret@127.0.0.1/x", "https:///x", "https://h/a b",
    "https://h/\x01", "user@host:path"])
def test_urls_that_are_refused(own, url, place):
    """Before git is started, and before anything is made. The twins are all the other tests."""
    result = own("exec", "-c", "1", "--repo-url", url)
    refused(result, 2, "repo-url")
    assert "secret@" not in result.err and not os.listdir(os.path.join(place, "cache"))


@pytest.mark.parametrize("ref", ["-x", "--upload-pack=touch", "a..b", "a b", "HEAD~1", "main^",
                                 "a:b", "@{1}", "x.lock", "/x", "x/", "*", "a\\b", "@"])
def test_refs_that_are_refused(own, repo, ref):
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--repo-ref=" + ref), 2, "repo-ref")


def test_each_failure_says_what_to_do(own, repo, place):
    empty = Repo(os.path.join(place, "empty"))
    plain = os.path.join(place, "plain")
    os.mkdir(plain)

    def run(*flags, **more):
        return own("exec", "-c", "1", *flags, **more)
    refused(run("--repo-url", repo.url, "--repo-ref", "none"), 2, "no branch, tag or commit 'none'")
    refused(run("--repo-url", repo.url, "--repo-ref", "0" * 40), 2, "no such commit")
    refused(run("--repo-url", repo.url, "--repo-ref", "1234567"), 2, "no branch, tag or commit")
    refused(run("--repo-url", empty.url), 2, "is empty: it has no commit")
    refused(run("--repo-url", "file://" + plain), 2, "there is no git repository")
    refused(run("--repo-url", "https://127.0.0.1:1/x"), 1, "no connection to the host")
    refused(run("--repo-ref", "main"), 2, "repo-url, which is not set")
    refused(run("--repo-url", repo.url, env={"PATH": place}), 4, "needs the program git")
    assert not left(place)


def test_what_is_too_large_is_refused(own, repo, place):
    """By what git would keep, by size and by number; a size that holds it is the twin. The cache is
    whole afterwards."""
    repo.write("random", os.urandom(600000).hex())
    repo.write("big", "".join(map(str, range(300000))))
    for i in range(60):
        repo.write("many/%d" % i)
    repo.commit()
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--workspace-size", "1M"), 2,
            "--workspace-size, or name a whole commit id")
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--workspace-size", "2M"), 2,
            "larger than the workspace may be")
    refused(own("exec", "-c", "1", "--repo-url", repo.url, "--workspace-files", "40"), 2,
            "--workspace-files")
    assert text_of(own, repo.url, None, "--workspace-size", "4M", "--workspace-files",
                   "100")["status"] == "submitted"
    with open(place + "/paths", "w") as f:
        f.write("x" * 100000)
    refused(own("exec", "-c", "1", "--context-path", place + "/paths", "--workspace-size", "64K"),
            2, "--workspace-size")
    assert not left(place)


@pytest.mark.parametrize("limit, value, code",
                         [("size", "8M",
                           "f = open('fill', 'wb')\nwhile True: f.write(bytes(1 << 20))"),
                          (
    "files", "50", "import time\nfor i in range(99): open('f%d' % i, 'w')\ntime.sleep(600)")])
def test_a_guest_that_fills_its_workspace_is_ended(own, repo, place, limit, value, code):
    """By its own limits, also beside a volume, which has others."""
    result = own.cell(code, "--repo-url", repo.url, "--workspace-" + limit, value, "--volume-name",
                      "v")
    assert result["killed"] == "workspace " + limit and result["resources"]["limits"][
        "workspace-" + limit]["by"] == "host", result
    assert not left(place)


def test_a_full_disk_is_reported(own, repo, place):
    root = os.path.join(place, "small")
    os.mkdir(root)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", root],
                             capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        repo.write("big", os.urandom(2 << 20).hex())
        repo.commit()
        for name in ("XDG_CACHE_HOME", "DROSTE_VOLUME_ROOT"):
            result = own("exec", "-c", "1", "--repo-url", repo.url, env={name: root})
            refused(result, 1, "the disk is full; free some space")
    finally:
        subprocess.run(["umount", "-l", root])
    assert text_of(own, repo.url)["submit"]["text"] == "# second\n"
