"""Package sets (`--packages`): built once in a sandbox, from a directory of wheels, and shared."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from harness import NOBODY, finish, wait_until
from wheels import make_sdist, make_wheel

BUILDING = "building packages"
HELLO = {"hello/__init__.py": "word = 'hello'\n"}


@pytest.fixture
def wheels(tmp_path):
    directory = tmp_path / "wheels"
    directory.mkdir()
    return str(directory)


@pytest.fixture
def use(droste, wheels):
    """use(code, packages, flags…): a cell with packages of the directory of wheels."""
    def run(code, packages, *flags, **options):
        wanted = ["--packages", packages] if packages else []
        return droste("exec", "--find-links", wheels, "--package-index", "none", *wanted, *flags,
                      "-c", code, **options)
    return run


def refused(result, *words):
    """It failed, printed no answer, and said these words."""
    assert result.status != 0 and result.out == "", result
    assert all(word in result.err for word in words), result.err
    return True


def cache(droste, *names):
    return os.path.join(droste.home, ".cache", "droste", "packages", *names)


def sets(droste):
    return os.listdir(cache(droste, "sets"))


def leftovers(droste):
    return [name for name in os.listdir(cache(droste, "building")) if name != ".lock"]


def test_a_wheel_of_a_directory_is_importable_and_built_once(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    first, second = (use("import hello; print(hello.word)", "hello") for _ in range(2))
    assert (first.out, second.out) == ("hello\n", "hello\n")
    assert BUILDING in first.err and BUILDING not in second.err
    assert len(sets(droste)) == 1 and leftovers(droste) == []


@pytest.mark.parametrize("level", ["full", "light", "landlock", "process"])
def test_a_set_is_read_only_at_each_level(use, wheels, level):
    make_wheel(wheels, "hello", HELLO)
    change = "import hello\ntry:\n  open(hello.__file__, 'w')\nexcept OSError: print('refused')"
    result = use("import hello; print(hello.word)", "hello", "--isolation", level)
    if result.status != 0:
        pytest.skip(result.err)
    assert result.out == "hello\n"
    if level != "process":      # which has the user's files
        assert use(change, "hello", "--isolation", level).out == "refused\n"


def test_a_package_hides_one_of_the_interpreter_but_none_of_the_library(use, wheels):
    make_wheel(wheels, "pip", {"pip/__init__.py": "own = True\n", "json.py": "own = True\n"})
    assert use("import pip, json; print(hasattr(pip, 'own'), hasattr(json, 'own'))",
               "pip").out == "True False\n"


def test_programs_of_a_session_find_the_packages_and_their_scripts(use, wheels):
    make_wheel(wheels, "hello", {
        **HELLO, "hello-1.0.dist-info/entry_points.txt":
        "[console_scripts]\nsay-hello = hello:say\n",
        "hello/__init__.py": "def say(): print('said')\n"})
    code = ("import subprocess, sys\n"
            "subprocess.run([sys.executable, '-c', 'import hello; hello.say()'])\n"
            "subprocess.run(['say-hello'])")
    assert use(code, "hello").out == "said\nsaid\n"


def test_a_package_that_is_not_there_is_named(use, wheels):
    make_wheel(wheels, "hello", HELLO)
    result = use("pass", "hello,no-such-package>=2,<3")
    assert refused(result, "no-such-package") and result.status != 0


def test_versions_are_those_that_were_asked_for(use, wheels):
    for version in ("1.0", "2.0", "3.0"):
        make_wheel(wheels, "hello", {"hello.py": "version = '%s'\n" % version}, version)
    assert use("import hello; print(hello.version)", "hello>=1,<3").out == "2.0\n"
    assert use("import hello; print(hello.version)", "hello").out == "3.0\n"


def test_a_new_wheel_in_the_directory_is_seen(use, wheels):
    make_wheel(wheels, "hello", {"hello.py": "version = '1.0'\n"})
    assert use("import hello; print(hello.version)", "hello").out == "1.0\n"
    make_wheel(wheels, "hello", {"hello.py": "version = '2.0'\n"}, "2.0")
    assert use("import hello; print(hello.version)", "hello").out == "2.0\n"


def test_equal_packages_of_two_requests_are_one_set(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"
    assert use("import hello; print(hello.word)", "hello==1.0").out == "hello\n"
    assert len(sets(droste)) == 1


# ---- files ----

def test_hashes_are_enforced_and_the_right_one_is_accepted(use, wheels, droste):
    right = make_wheel(wheels, "hello", HELLO)
    file = os.path.join(droste.home, "requirements.txt")
    for digest in (right, "0" * 64):
        with open(file, "w") as f:
            f.write("# locked\nhello==1.0 \\\n    --hash=sha256:%s\n" % digest)
        result = use("import hello; print(hello.word)", None, "--requirements", file)
        if digest == right:
            assert result.out == "hello\n"
        else:
            assert refused(result, "hash") and result.out == ""


def test_files_include_others_and_constrain_versions(use, wheels, droste):
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "hello", {"hello.py": "version = '%s'\n" % version}, version)
    os.mkdir(os.path.join(droste.home, "more"))
    for file, text in (("requirements.txt", "-r more/all.txt\n"),
                       ("more/all.txt", "-c limits.txt\nhello  # a comment\n"),
                       ("more/limits.txt", "hello<2\n")):
        with open(os.path.join(droste.home, file), "w") as f:
            f.write(text)
    assert use("import hello; print(hello.version)", None, "--requirements",
               "requirements.txt").out == "1.0\n"


@pytest.mark.parametrize("line", [
    "--index-url http://example.com", "-e .", "./hello-1.0-py3-none-any.whl", "/tmp/hello",
    "hello @ http://example.com/hello.whl", "git+https://example.com/hello", "-r missing.txt"])
def test_what_is_no_name_with_a_version_is_refused_by_name(use, wheels, droste, line):
    file = os.path.join(droste.home, "requirements.txt")
    with open(file, "w") as f:
        f.write(line + "\n")
    result = use("pass", None, "--requirements", file)
    assert result.status == 2 and line.split()[-1].split("/")[-1] in result.err


def test_pyproject_and_pylock_files_are_read(use, wheels, droste):
    digest = make_wheel(wheels, "hello", HELLO)
    pylock = ("lock-version = '1.0'\ncreated-by = 'test'\n[[packages]]\nname = 'hello'\n"
              "version = '1.0'\n[[packages.wheels]]\nname = 'hello-1.0-py3-none-any.whl'\n"
              "hashes = {sha256 = '%s'}\n")
    for file, text, works in (
            ("pyproject.toml", "[project]\nname = 'x'\ndependencies = ['hello']\n", True),
            ("pylock.toml", pylock % digest, True),
            ("pylock.wrong.toml", pylock % ("1" * 64), False),
            ("uv.lock", "version = 1\n", False)):
        path = os.path.join(droste.home, file)
        with open(path, "w") as f:
            f.write(text)
        result = use("import hello; print(hello.word)", None, "--requirements", path)
        assert result.out == ("hello\n" if works else ""), (file, result.err)


# ---- what a set may not do ----

def test_an_sdist_is_refused_unless_it_is_allowed(use, wheels, droste):
    make_sdist(wheels, "source")
    assert refused(use("pass", "source"), "source")
    assert use("import source; print(source.built)", "source", "--sdists", "yes").out == "True\n"


def test_the_build_of_an_sdist_sees_no_file_of_the_user(use, wheels, droste):
    secret = os.path.join(droste.home, "secret")
    with open(secret, "w") as f:
        f.write("canary")
    make_sdist(wheels, "source", "open(%r).read()" % secret)
    result = use("pass", "source", "--sdists", "yes")
    assert refused(result, "No such file") and "canary" not in result.err


def test_a_wheel_that_leaves_its_directory_writes_nothing_outside(use, wheels, droste, tmp_path):
    place = tmp_path / "escaped"
    for name in ("../../../../../../../../../../..%s" % place, str(place), "../escaped.py"):
        make_wheel(wheels, "hello", {**HELLO, name: "escaped\n"})
        use("import hello", "hello")
        assert not place.exists()
        found = [os.path.join(at, f) for at, _, files in os.walk(cache(droste))
                 for f in files if f.startswith("escaped")]
        assert all("/site/" in path for path in found), found
    make_wheel(wheels, "hello", HELLO)
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"


def test_code_of_packages_runs_in_the_guest_only(use, wheels):
    """.pth files, sitecustomize and preloaded modules are foreign code: none runs on the host."""
    marker = pathlib.Path("/var/tmp/droste-on-the-host-%d" % os.getpid())
    write = ("import os, builtins\n"
             "try: open(%r, 'w').close()\n"
             "except OSError: builtins.%%s = 'in the guest'\n" % str(marker))
    line = "import os, builtins; exec(%r)\n"
    make_wheel(wheels, "hello", {
        "hello.pth": line % (write % "pth"), "hello/__init__.py": write % "module",
        "sitecustomize.py": write % "customized", "usercustomize.py": write % "customized"})
    code = "import builtins; print(builtins.pth, builtins.module)"
    for flags in ([], ["--preload", "hello"], ["--preload", "hello", "--warm-up", "yes"]):
        result = use("import hello; " + code, "hello", *flags)
        assert result.out == "in the guest in the guest\n", result.err
        assert not marker.exists()


def test_a_set_larger_than_its_limit_is_refused(use, wheels, droste):
    make_wheel(wheels, "large", {"large.py": "size = 1\n", "large.bin": bytes(200 << 20)})
    result = use("import large", "large", "--packages-size", "100M")
    assert refused(result, "packages-size") and sets(droste) == []
    assert use("import large; print(large.size)", "large").out == "1\n"


def test_another_environment_refuses_packages_by_name(use, wheels):
    result = use("pass", "hello", "--env", "docker")
    assert result.status != 0 and "docker" in result.err and "packages" in result.err


# ---- the cache ----

def test_two_concurrent_builds_make_one(droste, wheels):
    make_sdist(wheels, "slow", "import time; time.sleep(1)")
    both = [droste.start("exec", "--find-links", wheels, "--package-index", "none", "--packages",
                         "slow", "--sdists", "yes", "-c", "import slow; print(slow.built)")
            for _ in range(2)]
    ends = [finish(process) for process in both]
    assert [e.out for e in ends] == ["True\n"] * 2, [e.err for e in ends]
    assert sum(BUILDING in e.err for e in ends) == 1
    assert len(sets(droste)) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_build_leaves_nothing(droste, use, wheels, how):
    make_sdist(wheels, "slow", "import time; time.sleep(600)")
    make_wheel(wheels, "hello", HELLO)
    process = droste.start("exec", "--find-links", wheels, "--package-index", "none", "--packages",
                           "slow", "--sdists", "yes", "-c", "1")
    wait_until(lambda: os.path.isdir(cache(droste, "building")) and leftovers(droste))
    process.send_signal(how)
    finish(process)
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"
    assert leftovers(droste) == [] and len(sets(droste)) == 1


def test_a_damaged_set_is_built_again(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    use("import hello", "hello")
    damaged = cache(droste, "sets", sets(droste)[0], "site", "hello", "__init__.py")
    os.unlink(damaged)
    result = use("import hello; print(hello.word)", "hello")
    assert result.out == "hello\n" and BUILDING in result.err
    with open(cache(droste, "sets", sets(droste)[0], "set.json"), "w") as f:
        f.write("{")
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"


def test_a_cache_that_others_may_write_to_is_refused(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    use("import hello", "hello")
    os.chmod(cache(droste), 0o777)
    assert refused(use("import hello", "hello"), "XDG_CACHE_HOME")
    os.chmod(cache(droste), 0o755)
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_users_do_not_use_each_others_packages(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    use("import hello", "hello")
    os.chown(cache(droste), NOBODY, NOBODY)
    assert refused(use("import hello", "hello"), "belong to user %d" % NOBODY)
    os.chown(cache(droste), 0, 0)
    assert use("import hello; print(hello.word)", "hello").out == "hello\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system of its own")
def test_a_full_disk_is_reported_with_what_to_do(use, droste, wheels):
    make_wheel(wheels, "large", {"large.py": "size = 1\n", "large.bin": os.urandom(8 << 20)})
    os.makedirs(cache(droste))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "tmpfs",
                              cache(droste)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here: %s" % mounted.stderr.strip())
    try:
        result = use("import large", "large")
        assert refused(result, "is full") and "droste packages gc" in result.err
        assert sets(droste) == []
        subprocess.run(["mount", "-o", "remount,size=100m", cache(droste)], check=True)
        assert use("import large; print(large.size)", "large").out == "1\n"
    finally:
        subprocess.run(["umount", "--lazy", cache(droste)], check=True)


def test_a_record_names_what_is_in_a_set(use, droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    use("import hello", "hello")
    with open(cache(droste, "sets", sets(droste)[0], "set.json")) as f:
        assert json.load(f)["packages"] == ["hello==1.0"]


def test_sets_are_built_listed_and_removed(droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    flags = ["--find-links", wheels, "--package-index", "none", "--packages", "hello"]
    path = droste("packages", "build", *flags).out.strip()
    assert os.path.isfile(os.path.join(path, "hello", "__init__.py"))
    assert droste("exec", *flags, "-c", "import hello; print(hello.word)").err == ""
    (row,) = json.loads(droste("packages", "ls", "--json").out)
    assert row["path"] == path and row["packages"] == ["hello==1.0"] and not row["in_use"]
    assert droste("packages", "gc").out.startswith("removed 0,")
    assert refused(droste("packages", "rm", "0" * 12), "no packages")
    assert droste("packages", "rm", row["id"][:8]).status == 0
    assert droste("packages", "ls").out == "" and not os.path.exists(path)
    droste("packages", "build", *flags)
    assert droste("packages", "gc", "--older-than", "0s").out.startswith("removed 1,")
    assert sets(droste) == [] and leftovers(droste) == []


def test_a_set_in_use_is_not_removed(droste, wheels):
    make_wheel(wheels, "hello", HELLO)
    flags = ["--find-links", wheels, "--package-index", "none", "--packages", "hello"]
    droste("packages", "build", *flags)
    (name,) = sets(droste)
    user = droste.start("exec", *flags, "-c", "import time; print(1, flush=True); time.sleep(600)")
    try:
        assert user.stdout.readline() == b"1\n"
        assert refused(droste("packages", "rm", name), "in use")
        assert droste("packages", "gc", "--older-than", "0s").out.startswith("removed 0,")
    finally:
        user.kill()
        user.wait()
    wait_until(lambda: droste("packages", "rm", name).status == 0, what="the end of its sandbox")
