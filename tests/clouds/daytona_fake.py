"""The fake of Daytona (tests/fakes/daytona.py) as a program of a test's own, and the environment of
Python's in which the vendor's SDK is (scripts/setup clouds)."""
import atexit
import json
import os
import subprocess
import sys
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAKE = os.path.join(ROOT, "tests", "fakes", "daytona.py")
KEY = "dtn_canary-7c1e55"
TOKEN, ORGANIZATION = "jwt-canary-91f0aa", "7f0f0d3e-0000-4000-8000-00000000d70f"
SDK = os.path.join(ROOT, os.environ.get("BUILD", "build"), "clouds", "bin", "python")


def missing():
    """Why the fake cannot run here; None where it can."""
    tried = subprocess.run(["/usr/bin/python3", "-c",
                            "import aiohttp, sys; sys.path.insert(0, %r)\n"
                            "import daytona_sandbox; print(daytona_sandbox.missing() or '')"
                            % os.path.dirname(FAKE)],
                           capture_output=True, text=True)
    if tried.returncode != 0:
        return "aiohttp is not installed (scripts/setup tests)"
    return tried.stdout.strip() or None


def sdk_missing():
    """Why the vendor's SDK is not here; None where it is."""
    found = os.path.exists(SDK) and subprocess.run([SDK, "-c", "import daytona"],
                                                   capture_output=True).returncode == 0
    return None if found else "the package daytona could not be had (scripts/setup clouds)"


class Fake:
    """A fake that runs, and what it is told to do wrong."""

    def __init__(self, *options):
        self.process = subprocess.Popen(["/usr/bin/python3", FAKE, *options], text=True,
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the fake of Daytona does not start"
        atexit.register(self.close)

    @property
    def environment(self):
        """What tells a program where it is, and as whose it is known."""
        return {"DAYTONA_API_URL": self.url + "/api", "DAYTONA_API_KEY": KEY}

    def order(self, what, body):
        request = urllib.request.Request("%s/_fake/%s" % (self.url, what),
                                         json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def state(self):
        with urllib.request.urlopen(self.url + "/_fake/state") as answer:
            return json.load(answer)

    def sandboxes(self):
        return self.state()["sandboxes"]

    def close(self):
        if self.process.stdin.closed:
            return
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


if __name__ == "__main__":      # a fake by hand, until its standard input ends
    fake = Fake(*sys.argv[1:])
    print(" ".join("%s=%s" % pair for pair in fake.environment.items()), flush=True)
    sys.stdin.read()
