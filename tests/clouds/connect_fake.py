"""The fakes of Prime and E2B (tests/fakes) as programs of a test's own, and the environments of
Python's in which the vendors' SDKs are (scripts/setup clouds)."""
import json
import os
import subprocess
import sys
import urllib.request

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", "build")
KEYS = {"prime": "prime-canary-4f1d", "e2b": "e2b_" + "c0ffee42" * 5}


class Fake:
    """A fake that runs, and what it is told to do wrong."""

    def __init__(self, name, port=0, **environment):
        self.name, self.key = name, KEYS[name]
        variables = {name.upper() + "_FAKE_KEY": self.key, "FAKE_PORT": str(port), **environment}
        self.process = subprocess.Popen(
            ["/usr/bin/python3", os.path.join(ROOT, "tests", "fakes", name + ".py")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables})
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the fake of %s does not start" % name

    @property
    def environment(self):
        """What tells a program where it is, as whose it is known."""
        if self.name == "prime":
            return {"PRIME_API_KEY": self.key, "PRIME_API_BASE_URL": self.url, "PRIME_TEAM_ID": ""}
        return {"E2B_API_KEY": self.key, "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url}

    def order(self, **asked):
        request = urllib.request.Request(self.url + "/_fake", json.dumps(asked).encode(),
                                         method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def state(self):
        with urllib.request.urlopen(self.url + "/_fake") as answer:
            return json.load(answer)

    def running(self):
        """The sandboxes that there are, by id."""
        return {i: s for i, s in self.state()["sandboxes"].items() if s["alive"]}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def missing():
    """Why the fakes cannot run here; None where they can."""
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('aiohttp') is None)"
    found = subprocess.run(["/usr/bin/python3", "-c", look])
    return "aiohttp is not installed (scripts/setup tests)" if found.returncode else None


def run_sdk(name, fake):
    """Runs sdk_NAME.py with the vendor's SDK against a fake; what it says. Skips by name where
    there is no SDK."""
    place = os.path.join(ROOT, BUILD, "clouds-e2b" if name == "e2b" else "clouds")
    if not os.path.exists(place + "/bin/python"):
        pytest.skip("the SDK of %s could not be had (scripts/setup clouds)" % name)
    home = os.path.join(ROOT, BUILD)
    script = os.path.join(ROOT, "tests", "clouds", "sdk_%s.py" % name)
    done = subprocess.run(["timeout", "-s", "ABRT", "480", place + "/bin/python", "-X",
                           "faulthandler", script], text=True,
                          capture_output=True,
                          env={"PATH": "/usr/bin:/bin", "HOME": home, **fake.environment})
    assert done.returncode == 0, "%s%s\nand the fake heard: %s" % (done.stdout, done.stderr[-4000:],
                                                                   fake.state()["requests"][-40:])
    return done.stdout


if __name__ == "__main__":      # a fake by hand: connect_fake.py prime
    fake = Fake(sys.argv[1])
    print(" ".join("%s=%s" % pair for pair in fake.environment.items()), flush=True)
    try:
        fake.process.wait()
    except KeyboardInterrupt:
        fake.close()
