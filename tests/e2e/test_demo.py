"""The demo: its answer, computed again here in another way, and what it says about itself."""
import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = "/usr/bin/python3"
CLIENTS = ["imaplib.py", "poplib.py", "smtplib.py"]     # by what each is; the model was asked


def demo(tmp_path, *flags):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_HOME": str(tmp_path / "data"),
           "DROSTE_PYTHON": PYTHON, "BUILD": os.environ.get("BUILD", os.path.join(ROOT, "build"))}
    return subprocess.run([os.path.join(ROOT, "examples/demo"), *flags], env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=120)


def methods_by_indentation(text):
    """(methods, class) of each top-level class, counted by lines and indentation, without ast."""
    counts, name = {}, None
    for line in text.splitlines():
        head = re.match(r"class (\w+)", line)
        if head:
            name = head.group(1)
            counts[name] = 0
        elif line and not line[0].isspace() and not line.startswith("#"):
            name = None
        elif name and re.match(r"    (async )?def ", line):
            counts[name] += 1
    return [(n, c) for c, n in counts.items()]


def expected():
    library = subprocess.run([PYTHON, "-I", "-c",
                              "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                             capture_output=True, text=True, check=True).stdout.strip()
    found = []
    for path in CLIENTS:
        with open(os.path.join(library, path), encoding="utf-8") as f:
            found += [(n, c, path) for n, c in methods_by_indentation(f.read())]
    methods, name, path = max(found)
    return {"modules": CLIENTS, "class": name, "module": path, "methods": methods}


def test_the_demo_answers_what_can_be_computed_otherwise(tmp_path):
    """The recorded code really ran over this machine's library: the answer agrees with a count that
    shares nothing with it."""
    done = demo(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][0])
    assert result["answer"] == expected()
    assert result["status"] == "answered"
    assert result["usage"]["calls"] > result["iterations"]      # it asked the model from inside


def test_the_demo_says_that_its_model_is_a_recording(tmp_path):
    """A stranger is told what is real, and how to use a live model."""
    done = demo(tmp_path)
    assert "recording" in done.stdout
    assert "OPENAI_API_KEY" in done.stdout
    assert "turn 1 of" in done.stderr and "| " in done.stderr    # the run as it goes


def test_another_context_gives_another_answer(tmp_path):
    """The twin: over a library without those modules the same recording cannot give that answer."""
    small = tmp_path / "small"
    small.mkdir()
    (small / "imaplib.py").write_text(
        '"""IMAP4 client."""\nclass Tiny:\n    def only(self): pass\n')
    done = demo(tmp_path, str(small), "--json")
    result = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][0])
    assert result["answer"] == {"modules": ["imaplib.py"], "class": "Tiny", "module": "imaplib.py",
                                "methods": 1}
