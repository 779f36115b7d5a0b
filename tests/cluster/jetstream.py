"""The messages of a stream's subject, read and replaced in NATS' own protocol."""
import base64
import json
import socket


class JetStream:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.send(b'CONNECT {"verbose": false, "pedantic": false}\r\nSUB answer 1\r\n')

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, subject, data):
        self.send(b"PUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        while True:
            words = self.file.readline().split()
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
