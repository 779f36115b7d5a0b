"""The messages of a stream's subject, read and replaced in NATS' own protocol."""
import base64
import json
import socket


class NoLeader(Exception):
    """The server knows nobody who can answer for the stream now."""


class JetStream:
    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), 20)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.send(b'CONNECT {"verbose": false, "pedantic": false}\r\nSUB answer 1\r\n')

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, subject, data):
        self.send(b"PUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        return self.read()

    def read(self):
        while True:
            words = self.file.readline().split()
            if not words:
                raise ConnectionError("the server has closed the connection")
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"MSG":
                answer = json.loads(self.file.read(int(words[-1])))
                self.file.readline()
                return answer

    def messages(self, stream, subject):
        found, sequence = [], 1
        while True:
            answer = self.ask("$JS.API.STREAM.MSG.GET." + stream, json.dumps(
                {"seq": sequence, "next_by_subj": subject}).encode())
            if "message" not in answer:
                assert answer["error"]["code"] == 404, answer
                return found
            sequence = answer["message"]["seq"] + 1
            found.append(base64.b64decode(answer["message"]["data"]))

    def all_messages(self, stream, ahead=500):
        """Subject and data of each, as the stream's leader has them: a replica may be behind.
        NoLeader, or an OSError after 20 seconds: none could be asked."""
        info = self.ask("$JS.API.STREAM.INFO." + stream, b"")
        if "state" not in info:
            raise NoLeader(info)
        subject = b"$JS.API.STREAM.MSG.GET." + stream.encode()
        last, found = info["state"]["last_seq"], []
        for first in range(info["state"]["first_seq"], last + 1, ahead):
            wanted = range(first, min(first + ahead, last + 1))
            for sequence in wanted:
                data = b'{"seq": %d}' % sequence
                self.send(b"PUB %s answer %d\r\n%s\r\n" % (subject, len(data), data))
            for answer in [self.read() for _ in wanted]:
                if "message" in answer:
                    found.append(answer["message"])
                elif answer["error"]["code"] != 404:
                    raise NoLeader(answer)
        found.sort(key=lambda message: message["seq"])
        return [(m["subject"], base64.b64decode(m.get("data", ""))) for m in found]

    def subject(self, stream, pattern):
        """That of the first message whose subject is like this."""
        return self.ask("$JS.API.STREAM.MSG.GET." + stream, json.dumps(
            {"seq": 1, "next_by_subj": pattern}).encode())["message"]["subject"]

    def replace(self, stream, subject, messages):
        answer = self.ask("$JS.API.STREAM.PURGE." + stream,
                          json.dumps({"filter": subject}).encode())
        assert answer.get("success"), answer
        for message in messages:
            assert "seq" in self.ask(subject, message)

    def close(self):
        self.file.close()
        self.socket.close()
