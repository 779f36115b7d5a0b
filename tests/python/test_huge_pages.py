"""Large Python objects in huge pages (guest/zygote/huge.c)."""
import pytest

from droste import Interpreter

KIB = """
def huge_kib():
    with open("/proc/self/smaps") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("AnonHugePages:"))
"""


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
    with Interpreter(isolation=request.param) as interp:
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


def test_what_a_fork_writes_stays_its_own(interp):
    """The copy of a huge page has what the others had, and only its writer sees the change."""
    interp.execute("data = bytearray(b'x' * (16 << 20)); data[5 << 20] = 1")
    count = "data[9 << 20] = %d\nSUBMIT(n=(data.count(b'x'), data[5 << 20], data[9 << 20]))"
    with interp.fork() as fork:
        rest = (16 << 20) - 2
        assert list(fork.execute(count % 7).n) == [rest, 1, 7]
        assert list(interp.execute(count % 8).n) == [rest, 1, 8]
        assert list(fork.execute("SUBMIT(n=(data.count(b'x'), data[9 << 20]))").n) == [rest, 7]
