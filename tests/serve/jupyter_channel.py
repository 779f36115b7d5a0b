"""A client of a kernel's WebSocket, in both formats of its messages."""
import json
import struct

import websocket

BINARY = "v1.kernel.websocket.jupyter.org"
PARTS = ("header", "parent_header", "metadata", "content")


class Channel(websocket.Client):
    def __init__(self, server, kernel, binary=False, query="", fields=None):
        fields = dict(fields or {}, **({"Sec-WebSocket-Protocol": BINARY} if binary else {}))
        super().__init__(server.connect(), "/api/kernels/%s/channels%s" % (kernel, query),
                         "127.0.0.1", fields)
        self.binary, self.count = binary, 0

    def tell(self, kind, content, channel="shell", number=None, version="5.3"):
        """Sends a message; returns its number."""
        self.count += 1
        number = number or "n%d" % self.count
        message = {"header": {"msg_id": number, "msg_type": kind, "version": version,
                              "username": "", "session": "s", "date": ""},
                   "parent_header": {}, "metadata": {}, "content": content}
        if self.binary:
            self.send(websocket.BINARY, packed(channel, message))
        else:
            self.say(channel=channel, buffers=[], **message)
        return number

    def heard_one(self):
        """The next message: a dict, as the text format has it."""
        if not self.binary:
            return self.message()
        opcode, data = self.receive()
        assert opcode == websocket.BINARY, (opcode, data)
        return unpacked(data)

    def answers(self, number, typed=None):
        """All messages for a request, to its end; input() gets the text `typed`."""
        heard, replied, idle = [], False, False
        while not (replied and idle):
            message = self.heard_one()
            if message["parent_header"].get("msg_id") != number:
                continue
            heard.append(message)
            kind = message["header"]["msg_type"]
            replied = replied or kind.endswith("_reply")
            idle = idle or message["content"].get("execution_state") == "idle"
            if kind == "input_request":
                self.tell("input_reply", {"value": typed}, "stdin")
        return heard

    def ask(self, kind, channel="shell", **content):
        """The content of the reply."""
        return reply(self.answers(self.tell(kind, content, channel)))

    def run(self, code, typed=None, **more):
        """What a cell shows, as pairs of type and content, and its reply."""
        heard = self.answers(self.tell("execute_request", {"code": code, **more}), typed)
        return shown(heard), reply(heard)


def shown(heard):
    return [(m["header"]["msg_type"], m["content"]) for m in heard if m["channel"] == "iopub"
            and m["header"]["msg_type"] not in ("status", "execute_input")]


def reply(heard):
    found, = [m["content"] for m in heard if m["header"]["msg_type"].endswith("_reply")]
    return found


def packed(channel, message):
    parts = [channel.encode(), *(json.dumps(message[name]).encode() for name in PARTS)]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack("<%dQ" % (len(offsets) + 1), len(offsets), *offsets) + b"".join(parts)


def unpacked(data):
    count, = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from("<%dQ" % count, data, 8)
    assert offsets[0] == 8 * (count + 1) and offsets[-1] == len(data)
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    return {"channel": parts[0].decode(),
            **{name: json.loads(part) for name, part in zip(PARTS, parts[1:])}}
