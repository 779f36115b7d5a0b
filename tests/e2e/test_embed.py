"""examples/embed.c and inspect.c: build as a user would, and do what they say; the former
is what docs/embedding.md shows."""
import glob
import json
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
SOURCE = os.path.join(ROOT, "examples", "embed.c")


def compile_example(source, program):
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
                    source,
                    "-o", program, "-I", os.path.join(ROOT, "include"), "-L", BUILD, "-ldroste",
                    "-Wl,-rpath," + BUILD], check=True, timeout=60)
    return program


@pytest.fixture(scope="module")
def embed(tmp_path_factory):
    return compile_example(SOURCE, str(tmp_path_factory.mktemp("embed") / "embed"))


def run(embed, *args):
    return subprocess.run([embed, *args], capture_output=True, text=True, timeout=60)


def test_the_example_runs_a_session_and_answers(embed, tmp_path):
    (tmp_path / "three").write_text("one\ntwo\nthree\n")
    result = run(embed, str(tmp_path / "three"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == ('{"x": 42}, in a sandbox of isolation full\n'
                             'answered: "I was told: Put into words: 3 lines"\n')


def test_the_example_explains_a_context_that_is_missing(embed):
    result = run(embed, "/nowhere")
    assert result.returncode == 1
    assert result.stderr.startswith("embed: the context /nowhere does not exist")


def test_inspecting_shows_environments_volumes_and_runs(embed, tmp_path):
    """The second example lists a volume and a recorded run with its call, and nothing where nothing
    was made."""
    program = compile_example(os.path.join(ROOT, "examples", "inspect.c"),
                              str(tmp_path / "inspect"))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    droste = os.path.join(BUILD, "droste")

    def inspect():
        result = subprocess.run([program], capture_output=True, text=True, timeout=120, env=env)
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    empty = inspect()
    assert "local has no GPU" in empty and any(line.startswith("full: ") for line in empty)
    assert not [line for line in empty if line.startswith(("volume ", "run "))]

    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"content": "```repl\nSUBMIT(answer=1)\n```"}) + "\n")
    subprocess.run([droste, "volume", "create", "notes"], check=True, timeout=60, env=env)
    subprocess.run([droste, "run", "Is it one?", "--model", f"replay:{replies}"], check=True,
                   timeout=60, env=env, capture_output=True)
    lines = inspect()
    assert "volume notes: " in "\n".join(lines)
    (run,) = [line for line in lines if line.startswith("run ") and line.endswith("1 calls")][:1]
    assert run.split(": ")[1].startswith("answered")
    assert f"  root asks replay:{replies}: ok" in lines


def test_the_page_shows_the_example():
    with open(SOURCE) as source, open(os.path.join(ROOT, "docs", "embedding.md")) as page:
        assert "```c\n%s```" % source.read() in page.read()


def test_an_installed_library_is_where_the_machine_looks():
    """The recipe of the page needs no path: pkg-config and the loader search the directories of
    `make install`."""
    flags = json.loads(subprocess.run(["meson", "introspect", "--buildoptions", BUILD], check=True,
                                      capture_output=True,
                                      text=True, timeout=60).stdout)
    where = {option["name"]: option["value"] for option in flags}
    library = os.path.join(where["prefix"], where["libdir"])
    searched = subprocess.run(["pkg-config", "--variable", "pc_path", "pkg-config"], check=True,
                              capture_output=True, text=True)
    assert library + "/pkgconfig" in searched.stdout.strip().split(":")
    loader = "".join(open(path).read() for path in glob.glob("/etc/ld.so.conf.d/*.conf"))
    assert library in loader.splitlines()


def test_an_installed_library_is_found_by_pkg_config(tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
                    str(tmp_path)], check=True, timeout=60, stdout=subprocess.DEVNULL)
    (found,) = tmp_path.rglob("droste.pc")
    env = {**os.environ, "PKG_CONFIG_PATH": str(found.parent),
           "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "droste"], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", SOURCE, "-o", str(tmp_path / "embed"), *flags], check=True, timeout=60)
    result = subprocess.run([str(tmp_path / "embed")], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "LD_LIBRARY_PATH": str(found.parent.parent)})
    assert result.returncode == 0, result.stderr
