"""E2B's requests over plain HTTP, for the tests that do what its SDKs do not."""
import json
import struct

import pytest

KEY = {"X-API-Key": "e2b_" + "1" * 40}


class Client:
    """E2B's requests to a server."""

    def __init__(self, server, key=None):
        self.server = server
        self.key = {"X-API-Key": key} if key else KEY

    def create(self, version="/v2", **body):
        answer = self.server.ask("POST", version + "/sandboxes",
                                 {"templateID": "base", "timeout": 300, **body}, self.key)
        assert answer.status == 201, answer.body
        return answer.json

    def control(self, method, path, body=None):
        return self.server.ask(method, path, body, self.key)

    def data(self, sandbox, port, method, path, body=None, **headers):
        """A request for a port of a sandbox, with its token unless another is given."""
        all_headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": str(port),
                       "X-Access-Token": sandbox["envdAccessToken"], **headers}
        return self.server.ask(method, path, body,
                               {k: v for k, v in all_headers.items() if v is not None})


@pytest.fixture(scope="module")
def client(server):
    return Client(server)


@pytest.fixture(scope="module")
def sandbox(client):
    return client.create()


def error(answer):
    """The status twice, and the message."""
    assert answer.json["code"] == answer.status
    return answer.status, answer.json["message"]


CONNECT = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def envelopes(body):
    """[(flags, message)] of a whole stream."""
    found = []
    while body:
        flags, size = struct.unpack(">BI", body[:5])
        found.append((flags, json.loads(body[5:5 + size])))
        body = body[5 + size:]
    return found
