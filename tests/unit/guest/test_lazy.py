"""What a sandbox for one cell does without: modules of the standard library."""
import subprocess
import sys

import pytest

from conftest import SOURCE


def test_the_guest_imports_no_expensive_module_before_it_is_used():
    code = ("import sys\n"
            "g = {'__name__': 'g', '__file__': 'g'}\n"
            "exec(compile(open(%r).read(), 'g', 'exec'), g)\n"
            "g['state'].session = g['Session'](); g['state'].session.start()\n"
            "print(sorted({'ast', 'traceback', 'datetime', 'json', 're', 'signal'}"
            " & set(sys.modules)))" % str(SOURCE))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, text=True,
                          stdout=subprocess.PIPE)
    assert done.stdout == "[]\n"


def test_an_error_is_located_when_traceback_cannot_be_imported(guest, monkeypatch):
    """As when the code has used up its descriptors."""
    def fail():
        raise OSError(24, "Too many open files")
    monkeypatch.setitem(sys.modules, "traceback", None)
    monkeypatch.setattr(guest, "traceback", guest.LazyModule("traceback"))
    with pytest.raises(OSError) as raised:
        fail()
    text = guest.error_of(raised.value)["traceback"]
    assert "test_lazy.py\", line" in text and "in fail" in text
    assert text.endswith("OSError: [Errno 24] Too many open files\n")
