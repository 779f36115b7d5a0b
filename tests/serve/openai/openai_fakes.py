"""Servers of OpenAI's protocol whose models are fakes, for the tests of this directory."""
import http.client
import json
import signal

import pytest

from server_process import WAIT, Server
from harness import repl

# What a run does unless a test says otherwise: it asks another model, prints, and answers.
TURNS = [repl("a = llm_query('x')\nprint('length', len(context))"),
         repl("SUBMIT('answer %d' % len(context))")]
# The code's call gets no answer when its idempotency key comes for the first time.
HANGING = [repl("a = llm_query('hang')"), repl("SUBMIT('late')")]
KEY = "sk-secret-of-the-provider"
NAMES = "turns,rl=turns,ok,echo,tool-calls,leak,auth,hang,stall,stream-cut,stream-end,openai/*"
CHAT = "/v1/chat/completions"


def ask(content, model="droste/turns", **more):
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


def content(answer):
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["message"]["content"]


def error(answer, status):
    """The error of an answer, in OpenAI's form."""
    assert answer.status == status, answer.body
    assert set(answer.json) == {"error"}
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    return answer.json["error"]


class Stream:
    """A streamed answer, event by event."""

    def __init__(self, server, body, headers=None, path=CHAT):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        self.connection.request("POST", path, json.dumps({**body, "stream": True}), headers or {})
        self.response = self.connection.getresponse()
        self.status, self.headers = self.response.status, self.response.headers

    def __iter__(self):
        for line in self.response:
            if line.startswith(b"data: "):
                data = line[6:].strip()
                yield data.decode() if data == b"[DONE]" else json.loads(data)

    def close(self):
        self.response.close()
        self.connection.close()


class Models:
    """Servers whose models are fakes: models(flags…, turns=…)."""

    def __init__(self, home, serve):
        self.home, self.serve, self.running = home, serve, []

    def __call__(self, *flags, turns=None, model=None, key=KEY, names=NAMES, **more):
        model = model or self.serve(turns=TURNS if turns is None else turns, key=KEY)
        self.running.append(Server(
            self.home, "--model", "turns", "--sub-model", "digest", "--base-url", model.url,
            "--models", names, "--drain", "1", *flags, env={"OPENAI_API_KEY": key}, **more))
        self.running[-1].model = model
        return self.running[-1]


@pytest.fixture
def models(tmp_path, serve):
    made = Models(tmp_path, serve)
    yield made
    assert {server.stop() for server in made.running} <= {0, -signal.SIGKILL}


@pytest.fixture
def server(models):
    return models()
