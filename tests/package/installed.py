"""What the tests of packages share: where things are, and commands that must succeed."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
DROSTE = os.path.join(BUILD, "droste")


def run(*command, timeout=300, status=0, **options):
    """The standard output of a command with this exit status."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=timeout, **options)
    assert done.returncode == status, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def commands():
    """The names of the commands, as the overview lists them."""
    return re.findall(r"^  ([a-z-]+) +\S", run(DROSTE, "--help"), re.M)


def recipe():
    """The commands of docs/embedding.md that build and run the example, and what it says that they
    print."""
    with open(os.path.join(ROOT, "docs", "embedding.md")) as page:
        ((commands, printed),) = re.findall(r"^```sh\n(cc .*?)^```$.*?^```text\n(.*?)^```$",
                                            page.read(), re.M | re.S)
    return commands, printed


def tree(top):
    """Every file and link below a directory, by its path from there."""
    return sorted(os.path.relpath(os.path.join(place, name), top)
                  for place, _, names in os.walk(top) for name in names)
