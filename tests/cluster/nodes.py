"""A NATS server, nodes and a provider of this machine, for tests of a cluster and for soak.py.

The provider answers as OpenAI does and keeps each request with its idempotency key. It is not
kinder than a real one: a client that goes away before its answer has still been charged.
"""
import contextlib
import collections
import http.client
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
NATS_SERVER = os.environ.get("NATS_SERVER", "/usr/sbin/nats-server")
CALLS = 2   # that the code of each run makes
CODE = """```repl
import re
name = re.search('run-[0-9]+', context).group()
parts = [llm_query('%%s part %%d' %% (name, i)) for i in range(%d)]
SUBMIT(answer=parts)
```""" % CALLS


def free_port():
    """A port that the kernel gives to no client, so that it is still free when a server takes it
    later, or again."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        first = int(f.read().split()[0])
    while True:
        port = random.randrange(10000, max(first, 20000))
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


class Nats:
    """A server with JetStream, which can be killed and started again."""

    words = ()    # further options

    def __init__(self, place, host="127.0.0.1"):
        self.place, self.port, self.process = str(place), free_port(), None
        self.host, self.url = host, "nats://%s:%d" % (host, self.port)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [NATS_SERVER, "-js", "-a", self.host, "-p", str(self.port),
             "-sd", self.place, *self.words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_until_open()

    def wait_until_open(self):
        wait_until(lambda: is_open(self.port, self.host) or self.process.poll() is not None)
        assert self.process.poll() is None, "nats-server did not start"

    def kill(self):
        self.process.kill()
        self.process.wait()


class Provider:
    """Counts requests by their prompt, and by their key."""

    def __init__(self, pause=0.02, host="127.0.0.1"):
        self.pause, self.lock = pause, threading.Lock()
        self.keys = collections.defaultdict(set)      # of each prompt
        self.requests = collections.Counter()         # by key
        self.traces = set()                           # the field traceparent
        self.held_from, self.released = None, threading.Event()
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.traces.add(self.headers.get("traceparent"))
                text = provider.answer(body, self.headers.get("Idempotency-Key"))
                reply = json.dumps({
                    "id": "x", "object": "chat.completion", "model": body["model"],
                    "choices": [{"index": 0, "finish_reason": "stop",
                                 "message": {"role": "assistant", "content": text}}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5,
                              "total_tokens": 15}}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *args):
                pass   # clients are killed

        self.server = Server((host, 0), Handler)
        self.url = "http://%s:%d/v1" % (host, self.server.server_port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, body, key):
        messages = body["messages"]
        is_loop = messages[0]["role"] == "system"
        prompt = messages[1]["content"] if is_loop else messages[-1]["content"]
        with self.lock:
            name = (("loop " if is_loop else "") + prompt, len(messages))
            self.keys[name].add(key)
            self.requests[key] += 1
            is_held = self.held_from and sum(self.requests.values()) >= self.held_from
        if is_held:
            self.released.wait()
        time.sleep(self.pause)
        return CODE if is_loop else prompt.upper()

    def hold(self, after=0):
        """Requests have no answer until release(), except the next `after`: what they wait for
        stays as it is, on however slow a machine."""
        with self.lock:
            self.released.clear()
            self.held_from = sum(self.requests.values()) + after + 1

    def release(self):
        self.held_from = None
        self.released.set()

    def order(self):
        """The names of runs, as their code was first asked for."""
        with self.lock:
            return [re.search("run-[0-9]+", prompt).group() for prompt, _ in self.keys
                    if prompt.startswith("loop ")]

    def close(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()

    def paid_twice(self):
        """Prompts that were asked under more than one key."""
        with self.lock:
            return {prompt: len(keys) for prompt, keys in self.keys.items() if len(keys) > 1}

    def repeated(self):
        """Requests beyond the first with their key."""
        with self.lock:
            return sum(self.requests.values()) - len(self.requests)


class Turns(Provider):
    """A run's code is that of the word in its question, which stands behind earlier ones: `turns`
    has a list for each word, which is asked for as Q:WORD."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns

    def answer(self, body, key):
        with self.lock:
            self.requests[key] += 1
        messages = body["messages"]
        done = sum(m["role"] == "assistant" for m in messages)
        text = json.dumps(messages)
        word = max(self.turns, key=lambda word: text.rfind("Q:" + word))
        return "```repl\n%s\n```" % self.turns[word][done]


class Node:
    """A `droste serve --join`, which can be killed, stopped, and started again."""

    host, key = "127.0.0.1", ""

    def __init__(self, home, nats, provider=None, *flags):
        self.home, self.flags = str(home), flags
        self.nats, self.provider = nats, provider
        self.start()

    def start(self):
        env = {"PATH": "/usr/bin:/bin", "HOME": self.home, "LANG": "C.UTF-8",
               "DROSTE_HOME": os.path.join(self.home, "data"), "OPENAI_API_KEY": "test"}
        os.makedirs(env["DROSTE_HOME"], exist_ok=True)
        self.log = open(os.path.join(self.home, "log"), "ab")
        model = ["--model", "openai/gpt-5-mini", "--base-url", self.provider.url,
                 "--isolation", "process"] if self.provider else []
        self.process = self.launch(
            [DROSTE, "serve", "--join", self.nats.url, *model, *self.flags],
            stdout=subprocess.PIPE, stderr=self.log, env=env, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the node did not start: see " + self.log.name
        self.port = int(self.address.rpartition(":")[2])

    def launch(self, command, **more):
        return subprocess.Popen([*command, "--listen", "127.0.0.1:0"], **more)

    def ask(self, method, path, body=None, timeout=30, key="", headers=None):
        """The status and the JSON of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        key = key or self.key
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {**(headers or {}), **({"X-API-Key": key} if key else {})})
            reply = connection.getresponse()
            text = reply.read()
            return reply.status, json.loads(text) if text else None
        finally:
            connection.close()

    def sandboxes(self):
        return {s["id"] for s in self.ask("GET", "/v1/sandboxes")[1]["sandboxes"]}

    def text(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def kill(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def stop(self):
        """As by an operator: what it runs goes to the others."""
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
        self.log.close()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


def is_open(port, host="127.0.0.1"):
    with socket.socket() as s:
        return s.connect_ex((host, port)) == 0


@contextlib.contextmanager
def queue_nodes(home, count, *flags):
    """`count` nodes with a NATS server and a provider of models, for the tests of a module."""
    nats, provider, nodes = Nats(home / "nats"), Provider(), []
    try:
        for i in range(count):
            (home / str(i)).mkdir()
            nodes.append(Node(home / str(i), nats, provider, "--node", "node%d" % i, *flags))
        yield nodes, nats, provider
    finally:
        for node in nodes:
            node.kill()
        provider.close()
        nats.kill()


def wait_until(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


def wait_until_joined(nodes):
    """Each has heard of each."""
    for node in nodes:
        wait_until(lambda node=node: len(node.ask("GET", "/v1/cluster")[1]["nodes"]) == len(nodes))


def put(nodes, name, tries=200, **more):
    """Queues a run by whichever node answers: the same id queues it once."""
    for i in range(tries):
        try:
            status, answer = nodes[i % len(nodes)].ask("POST", "/v1/queue", {
                "id": name, "question": "What is it?", "context": "This is %s." % name, **more}, 8)
            if status == 202:
                return answer
            assert status in (503, 429), answer
        except OSError:
            pass
        except http.client.HTTPException:
            pass
        time.sleep(0.1)
    raise AssertionError("no node takes " + name)


def get(nodes, name, seconds=120):
    """The end of a run, from whichever node answers."""
    deadline, i, answer = time.monotonic() + seconds, 0, None
    while time.monotonic() < deadline:
        i += 1
        try:
            status, answer = nodes[i % len(nodes)].ask("GET", "/v1/queue/%s?wait=5" % name, None, 8)
            if status == 200 and answer["state"] in ("ended", "dead"):
                return answer
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
    raise AssertionError("%s has not ended: %r" % (name, answer))


def has_nats():
    return shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin") is not None
