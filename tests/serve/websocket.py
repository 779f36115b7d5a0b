"""A WebSocket client that can also do what RFC 6455 forbids."""
import json
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
FIELDS = {"Upgrade": "websocket", "Connection": "keep-alive, Upgrade",
          "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}


def frame(opcode, data=b"", end=True, mask=True, first=None):
    """The bytes of one frame; `first` replaces its first byte."""
    head = bytes([first if first is not None else opcode | (0x80 if end else 0)])
    bit = 0x80 if mask else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 1 << 16:
        head += struct.pack("!BH", bit | 126, len(data))
    else:
        head += struct.pack("!BQ", bit | 127, len(data))
    if not mask:
        return head + data
    key = b"\x05\xf0\x80\x33"    # fixed: names of tests have the bytes
    return head + key + bytes(b ^ key[i & 3] for i, b in enumerate(data))


class Client:
    def __init__(self, connection, path, host, fields=None):
        """Sends the handshake; `status` and `head` are the answer."""
        self.socket, self.rest, self.output, self.heard = connection, b"", b"", []
        lines = ["GET %s HTTP/1.1" % path, "Host: " + host]
        lines += ["%s: %s" % pair for pair in {**FIELDS, **(fields or {})}.items()
                  if pair[1] is not None]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self.rest:
            self.take()
        self.head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        self.head = self.head.decode()
        self.status = int(self.head.split()[1])

    def take(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        self.rest += data

    def bytes(self, n):
        while len(self.rest) < n:
            self.take()
        data, self.rest = self.rest[:n], self.rest[n:]
        return data

    def send(self, opcode, data=b"", **how):
        self.socket.sendall(frame(opcode, data, **how))

    def say(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def receive(self):
        """The next frame: (opcode, data). A server's frames are whole and not masked; it pings a
        client that has been silent for long."""
        first, second = self.bytes(2)
        assert first & 0x70 == 0 and second & 0x80 == 0, (first, second)
        size = second
        if size == 126:
            (size,) = struct.unpack("!H", self.bytes(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.bytes(8))
        opcode, data = first & 15, self.bytes(size)
        if opcode != PING:
            return opcode, data
        self.send(PONG, data)
        return self.receive()

    def closing(self):
        """The status of the server's close frame; what came before is read and noted."""
        while True:
            opcode, data = self.receive()
            self.heard.append((opcode, data))
            if opcode == CLOSE:
                return struct.unpack("!H", data[:2])[0] if data else None

    def message(self):
        """The next text message; output is collected meanwhile."""
        while True:
            opcode, data = self.receive()
            if opcode == TEXT:
                return json.loads(data)
            assert opcode == BINARY, (opcode, data)
            self.output += data

    def until(self, words):
        """Reads output until it has these words."""
        while words not in self.output:
            opcode, data = self.receive()
            assert opcode == BINARY, (opcode, data)
            self.output += data
        return self.output

    def close(self):
        self.socket.close()
