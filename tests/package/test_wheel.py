"""The wheels in dist/ (`make wheel`), for every machine: what they contain, what they need of a
system, and that they work with every CPython on this machine. Skipped without such a wheel of this
tree."""
import glob
import hashlib
import os
import re
import struct
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import package      # noqa: E402

MOST = 6_000_000
GLIBC = (2, 28)
MACHINES = {"x86_64": 62, "aarch64": 183}
HERE = os.uname().machine
#: libraries of glibc, the only ones that a manylinux wheel may expect
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def wheel_of(arch):
    path = os.path.join(ROOT, "dist", "droste-%s-py3-none-manylinux_2_28_%s.whl"
                        % (package.version(), arch))
    if not os.path.exists(path):
        pytest.skip("there is no wheel for %s in dist/: make wheel" % arch)
    with zipfile.ZipFile(path) as archive:
        for member in [*package.modules("droste"), *package.launcher()]:
            if (member.name not in archive.namelist()
                    or archive.read(member.name) != member.data):
                pytest.skip("dist/ has a wheel of another tree (%s differs): make wheel"
                            % member.name)
    return path


@pytest.fixture(params=sorted(MACHINES))
def wheel(request):
    return request.param, wheel_of(request.param)


def binaries(path, place):
    with zipfile.ZipFile(path) as archive:
        for name in ("droste/lib/libdroste.so.0", "droste/bin/droste"):
            yield archive.extract(name, place)


def inspect(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True,
                          text=True).stdout


def test_it_is_small(wheel):
    assert os.path.getsize(wheel[1]) <= MOST


def test_it_needs_only_glibc_2_28(wheel, tmp_path):
    """Of the right machine; no other library, and no newer version of a symbol."""
    for path in binaries(wheel[1], tmp_path):
        with open(path, "rb") as file:
            assert struct.unpack_from("<H", file.read(20), 18)[0] == MACHINES[wheel[0]]
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", inspect(path, "-d")))
        assert needed <= SYSTEM | {"libdroste.so.0"} and "libc.so.6" in needed
        versions = {tuple(map(int, v.split(".")))
                    for v in re.findall(r"Name: GLIBC_([0-9.]+)", inspect(path, "-V"))}
        assert versions and max(versions) <= GLIBC


def test_it_exports_only_droste_h(wheel, tmp_path):
    library = next(binaries(wheel[1], tmp_path))
    names = [line.split()[7].split("@")[0] for line in inspect(library, "--dyn-syms").splitlines()
             if re.match(r"\s*\d+:", line) and line.split()[6] != "UND"]
    assert names and all(name.startswith("droste_") for name in names)


def test_all_bundled_licences_are_in_it(wheel):
    sys.path.insert(0, os.path.join(ROOT, "packaging", "wheel"))
    import libraries
    with zipfile.ZipFile(wheel[1]) as archive:
        info = "droste-%s.dist-info/" % package.version()
        for name, row in libraries.LIBRARIES.items():
            text = archive.read(info + "licenses/bundled/%s.txt" % name)
            assert b"opyright" in text
            assert ("LGPL" in row.licence) == (b"13. The Free Software Foundation may" in text)
            assert name.encode() in archive.read(info + "sboms/libraries.cdx.json")
        assert b"END OF TERMS" in archive.read(info + "licenses/LICENSE")
        for line in archive.read(info + "RECORD").decode().splitlines()[:-1]:
            name, digest, size = line.rsplit(",", 2)
            data = archive.read(name)
            encoded = package.record_line(package.Member(name, data))
            assert encoded == line and hashlib.sha256(data) and len(data) == int(size)


def interpreters():
    """One of each version: those of the system, of pyenv and uv, and those that DROSTE_PYTHONS
    names, a list of paths with colons between them."""
    found = {}
    for pattern in (*filter(None, os.environ.get("DROSTE_PYTHONS", "").split(":")),
                    "/usr/bin/python3.[0-9]*",
                    os.path.expanduser("~/.pyenv/versions/*/bin/python3"),
                    os.path.expanduser("~/.local/share/uv/python/*/bin/python3")):
        for path in sorted(glob.glob(pattern)):
            output = subprocess.run([path, "-c", "import sys, sysconfig, venv, ensurepip\n"
                                     "print('%d.%d' % sys.version_info[:2]"
                                     " + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"],
                                    capture_output=True, text=True)
            version = output.stdout.strip()
            if output.returncode == 0 and int(version.rstrip("t").split(".")[1]) >= 9:
                found.setdefault(version, path)
    return found


PROGRAM = """
import json, sys, droste
with droste.Interpreter() as interp:
    assert interp.execute("import sys, only_here; SUBMIT(at=sys.prefix)").at == sys.prefix
done = droste.RLM("replay:" + sys.argv[1], database="none").run("How many lines?", "one\\ntwo\\n")
print(done.answer)
"""


@pytest.fixture
def installed_with(tmp_path):
    """installed_with(python, wheel…): an environment of that interpreter; returns its directory of
    programs, and a function that runs one."""
    def install(python, *wheels):
        subprocess.run([python, "-m", "venv", tmp_path / "v"], check=True)
        here = str(tmp_path / "v" / "bin") + "/"
        environment = {"HOME": str(tmp_path), "PATH": here + ":/usr/bin:/bin",
                       "DROSTE_DATABASE": "none", "LANG": "C.UTF-8"}

        def call(*words, status=0):
            done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True,
                                  text=True)
            assert done.returncode == status, done.stdout + done.stderr
            return done.stdout if status == 0 else done.stdout + done.stderr

        call(here + "pip", "install", "-q", "--no-index", "--disable-pip-version-check", *wheels)
        return here, call
    return install


def site_packages(here, call):
    return call(here + "python", "-c",
                "import sysconfig; print(sysconfig.get_path('purelib'))").strip()


@pytest.mark.parametrize("version,python", sorted(interpreters().items()))
def test_it_works_with(version, python, installed_with, tmp_path):
    """pip install; the command; the package, whose sandboxes have the environment's other packages;
    a run with a recorded model."""
    here, call = installed_with(python, wheel_of(HERE))
    with open(os.path.join(site_packages(here, call), "only_here.py"), "w"):
        pass
    assert call(here + "droste", "exec", "-c", "print(42)") == "42\n"
    assert call(here + "python", "-m", "droste", "exec", "-c",
                "import sys; print(sys.prefix)") == "%s\n" % (tmp_path / "v")
    recording = tmp_path / "recorded.jsonl"
    recording.write_text(
        '{"content": "```repl\\nSUBMIT(answer=len(context.splitlines()))\\n```"}\n')
    assert call(here + "python", "-c", PROGRAM, str(recording)) == "2\n"


@pytest.fixture
def guest_of_wheel(installed_with):
    """The installed source of the guest, its bytecode, which pip has compiled, and a function that
    prints 42 in a sandbox."""
    here, call = installed_with("/usr/bin/python3", wheel_of(HERE))
    source = os.path.join(site_packages(here, call), "droste", "lib", "droste_guest.py")
    (bytecode,) = glob.glob(os.path.join(os.path.dirname(source), "__pycache__", "*.pyc"))

    def cell(*words, **options):
        return call(*words, here + "droste", "exec", "-c", "print(42)", **options)
    return source, bytecode, cell


MARKED = """
import marshal, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(16)
    file.write(marshal.dumps(compile("raise SystemExit('this was loaded')", "marked", "exec")))
    file.truncate()
"""


def test_a_start_loads_the_bytecode_of_this_source_alone(guest_of_wheel):
    """Bytecode beside the very source that the library contains is used; beside another source, or
    where it is no bytecode, it is not."""
    source, bytecode, cell = guest_of_wheel
    subprocess.run(["/usr/bin/python3", "-c", MARKED, bytecode], check=True)
    assert "this was loaded" in cell(status=4)
    with open(bytecode, "r+b") as file:
        file.seek(16)
        file.write(b"?" * 40)
    assert cell() == "42\n"
    subprocess.run(["/usr/bin/python3", "-c", MARKED, bytecode], check=True)
    when = os.stat(source)
    with open(source, "r+b") as file:
        file.write(b";")        # of the same size and age, as far as bytecode knows
    os.utime(source, ns=(when.st_atime_ns, when.st_mtime_ns))
    assert cell() == "42\n"


def test_bytecode_is_written_as_an_import_would(guest_of_wheel):
    """Where it is missing; not where Python was asked to write none, nor, as root, among the files
    of somebody else."""
    source, bytecode, cell = guest_of_wheel
    os.remove(bytecode)
    assert cell("env", "PYTHONDONTWRITEBYTECODE=1") == "42\n" and not os.path.exists(bytecode)
    if os.geteuid() == 0:
        os.chown(source, 1, -1)
        assert cell() == "42\n" and not os.path.exists(bytecode)
        os.chown(source, 0, -1)
    assert cell() == "42\n" and os.path.exists(bytecode)


TYPED = """
import droste
droste.Interpreter(isolation="full", memory="1G").execute("1").stdout.upper()
droste.RLM("openai/gpt-5-mini", max_depth=2).run("?").answer
droste.Interpreter(isolaton="full")
droste.RLM("openai/gpt-5-mini").run("?").anwser
"""


def test_a_type_checker_knows_the_installed_package(installed_with, tmp_path):
    """Its keywords and results, from the wheel alone, in which py.typed is: lines 3 and 4 are
    right, the other two are not."""
    if subprocess.run(["/usr/bin/python3", "-c", "import mypy"],
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the Debian package mypy is not installed")
    here, call = installed_with("/usr/bin/python3", wheel_of(HERE))
    (tmp_path / "typed.py").write_text(TYPED)
    output = call("/usr/bin/python3", "-m", "mypy", "--no-color-output",
                  "--enable-incomplete-feature=Unpack", "--python-executable", here + "python",
                  "typed.py", status=1)
    found = re.findall(r"^typed.py:(\d+): error: (.*)$", output, re.M)
    assert [line for line, _ in found] == ["5", "6"], output
    assert "isolaton" in found[0][1] and "anwser" in found[1][1], output


COMPAT = """
import sys, fleet_rlm, rlm
from rlm import RLM
assert RLM("replay:" + sys.argv[1], database="none").completion("one").response == "1"
print(rlm.__name__, fleet_rlm.__name__)
"""


def pretend(site, distribution, module=None):
    """Installs a distribution, as far as import systems see, with a module of one line."""
    info = os.path.join(site, distribution.replace("-", "_") + "-9.1.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: %s\nVersion: 9.1\n" % distribution)
    with open(os.path.join(info, "entry_points.txt"), "w") as file:
        file.write("[console_scripts]\nfleet-rlm = %s:main\n" % (module or "nowhere"))
    if module:
        with open(os.path.join(site, module + ".py"), "w") as file:
            file.write("def main():\n    print('the real one')\n")


def test_compat_lends_the_names_and_yields_to_real_ones(installed_with, tmp_path):
    """droste-compat gives the modules and the command; a real package wins over it, and one that is
    installed without its module is not replaced."""
    path = wheel_of(HERE)
    (compat,) = glob.glob(os.path.join(ROOT, "dist", "droste_compat-*.whl"))
    here, call = installed_with("/usr/bin/python3", path, compat)
    recording = tmp_path / "recorded.jsonl"
    recording.write_text('{"content": "```repl\\nSUBMIT(answer=len([context]))\\n```"}\n')
    assert call(here + "python", "-c", COMPAT, str(recording)) == "rlm fleet_rlm\n"
    assert "run-basic" in call(here + "fleet-rlm", "run-basic", "--help")
    assert "has the commands run-basic and daytona-smoke" in call(
        here + "fleet-rlm", "other", status=1)
    site = site_packages(here, call)
    pretend(site, "rlms")
    assert "does not replace rlms 9.1" in call(here + "python", "-c", "import rlm", status=1)
    pretend(site, "fleet-rlm", "fleet_rlm")
    assert call(here + "python", "-c", "import fleet_rlm; fleet_rlm.main()") == "the real one\n"
    assert call(here + "fleet-rlm", "run-basic") == "the real one\n"
