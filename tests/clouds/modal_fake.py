"""The fake Modal (tests/fakes/modal_server.py) as an object: started, given orders, ended. It and
the SDK need the environment of Python's that `scripts/setup clouds` makes; without it, what needs
one is skipped by name."""
import functools
import json
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, os.environ.get("BUILD", "build"), "clouds", "bin", "python")
TOKEN, SECRET = "ak-known", "as-canary-7b1f"


@functools.cache
def missing():
    """Why there can be no fake here; None where there can."""
    if not os.path.exists(PYTHON):
        return "scripts/setup clouds did not install the package modal"
    # Not imported, which takes a second of each worker.
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('modal') is None)"
    found = subprocess.run([PYTHON, "-c", look])
    return "scripts/setup clouds did not install the package modal" if found.returncode else None


class Fake:
    """One cloud. Orders are methods, those of the server's class Control."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="droste-modal-")
        self.process = subprocess.Popen(
            [PYTHON, os.path.join(ROOT, "tests", "fakes", "modal_server.py"), self.directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        data = json.loads(self.process.stdout.readline())
        self.server, self.router, self.isolated = data["server"], data["router"], data["isolated"]

    @property
    def environment(self):
        """The variables by which the SDK finds it, and nothing of the user's own configuration."""
        return {"MODAL_SERVER_URL": "http://127.0.0.1:%d" % self.server, "MODAL_TOKEN_ID": TOKEN,
                "MODAL_TOKEN_SECRET": SECRET,
                "MODAL_CONFIG_PATH": os.path.join(self.directory, "none.toml"),
                "DROSTE_MODAL_PYTHON": PYTHON}

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def order(*words, **more):
            if words:
                more = {**dict(zip({"fail": ["name"], "cut_after": ["numbers"],
                                    "finish": ["status", "exception"],
                                    "router_at": ["url"], "tokens": ["seconds"],
                                    "commits": ["seconds"]}.get(name, []), words)), **more}
            self.process.stdin.write(json.dumps({"do": name, **more}) + "\n")
            self.process.stdin.flush()
            reply = json.loads(self.process.stdout.readline())
            assert not (isinstance(reply, dict) and "error" in reply), reply
            return reply
        return order

    def live(self):
        return [s for s in self.sandboxes() if s["live"]]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)
