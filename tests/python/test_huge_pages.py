"""Large Python objects in huge pages, with the setting huge-pages (guest/zygote/huge.c)."""
import pytest

from droste import Interpreter, Template, UnsupportedError

# What is advised to the kernel, `hg` in VmFlags: how much of it the kernel gives depends on the
# memory that this machine has in one piece at the moment.
KIB = """
def huge_kib():
    total = size = 0
    with open("/proc/self/smaps") as f:
        for line in f:
            if line.startswith("Size:"):
                size = int(line.split()[1])
            elif line.startswith("VmFlags:") and " hg" in line:
                total += size
    return total
"""


LARGE = "data = 'x' * (16 << 20)"


def gives_huge_pages():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
            return "[never]" not in f.read()
    except FileNotFoundError:
        return False


@pytest.fixture(params=["full", "process"])
def interp(request):
    if not gives_huge_pages():
        pytest.skip("this kernel gives no huge pages")
    with Interpreter(isolation=request.param, huge_pages=True) as interp:
        interp.execute(KIB)
        yield interp


@pytest.mark.parametrize("make", [
    "data = 'x' * (16 << 20)", "data = b'x' * (16 << 20)", "data = [None] * (2 << 20)",
    "data = bytearray(16 << 20); data[:] = b'x' * len(data)",
    "data = bytearray(b'x' * (1 << 20))\nwhile len(data) < 16 << 20: data += bytes(data)"])
def test_a_large_object_has_huge_pages(interp, make):
    """Small ones have none: they would take 2 MiB each."""
    small = interp.execute("small = [bytes(1000) for _ in range(9000)]\nSUBMIT(k=huge_kib())").k
    assert small == 0
    assert interp.execute(make + "\nSUBMIT(k=huge_kib())").k >= 4096


def test_an_ordinary_session_has_none():
    """The twin is above."""
    with Interpreter(setup_code=KIB) as interp:
        interp.execute(LARGE)
        assert interp.execute("SUBMIT(k=huge_kib())").k == 0


def test_forks_and_templates_inherit_it(interp):
    """What they have, and what they make later."""
    interp.execute(LARGE)
    more = LARGE.replace("data", "more")
    with interp.fork() as fork:
        assert fork.execute("SUBMIT(k=huge_kib())").k >= 12288
        assert fork.execute(more + "\nSUBMIT(k=huge_kib())").k >= 24576
        with fork.fork() as again:
            assert again.execute("SUBMIT(k=huge_kib())").k >= 24576
    with interp.template() as template, Interpreter(template=template) as other:
        assert other.execute(more + "\nSUBMIT(k=huge_kib())").k >= 12288


def test_a_template_of_its_own_has_the_setting():
    if not gives_huge_pages():
        pytest.skip("this kernel gives no huge pages")
    with Template(setup_code=KIB, huge_pages=True) as template, \
            Interpreter(template=template) as interp:
        assert interp.execute(LARGE + "\nSUBMIT(k=huge_kib())").k >= 12288


def test_other_environments_refuse_it():
    """By its name, as they have no forks."""
    with pytest.raises(UnsupportedError, match="--huge-pages"), \
            Interpreter(env="modal", huge_pages=True) as interp:
        interp.start()


def test_what_a_fork_writes_stays_its_own(interp):
    """The copy of a huge page has what the others had, and only its writer sees the change."""
    interp.execute("data = bytearray(b'x' * (16 << 20)); data[5 << 20] = 1")
    count = "data[9 << 20] = %d\nSUBMIT(n=(data.count(b'x'), data[5 << 20], data[9 << 20]))"
    with interp.fork() as fork:
        rest = (16 << 20) - 2
        assert list(fork.execute(count % 7).n) == [rest, 1, 7]
        assert list(interp.execute(count % 8).n) == [rest, 1, 8]
        assert list(fork.execute("SUBMIT(n=(data.count(b'x'), data[9 << 20]))").n) == [rest, 7]
