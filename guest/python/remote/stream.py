"""The guest's end of a link, which src/wire/link.h specifies.

The guest trusts the host and is the side that answers. Data to send waits in `queue` until the
window allows a record; records wait in `out` until the transport accepts them.
"""
from __future__ import annotations

import binascii
import struct
from typing import Callable

RECORD = struct.Struct("<4sBBHQQ")
RECORD_SUM = struct.Struct("<I")
RECORD_SIZE = RECORD.size + RECORD_SUM.size
RECORD_MAGIC = b"\x1eDL\x01"
RECORD_DATA, RECORD_ACK, RECORD_RESUME, RECORD_PING = 1, 2, 3, 4
RECORD_ANSWER, RECORD_RESEND = 1, 2     # flags
PAYLOAD_MAX = 32768
LINE_MAX = (RECORD_SIZE + PAYLOAD_MAX + 2) // 3 * 4 + 2
TO_HOST, TO_HOST_TEXT, TO_GUEST = 1 << 21, 1 << 18, 1 << 20     # window sizes in bytes
MARK = b"\x1e"


class Stream:
    """A reliable byte stream in both directions over a transport that may be cut."""

    def __init__(self, text: bool, deliver: Callable[[bytes], None]) -> None:
        self.text = text
        self.window = TO_HOST_TEXT if text else TO_HOST
        self.deliver = deliver          # receives the host's bytes in order
        self.live = True
        self.queue = bytearray()
        self.acked = self.next = 0      # offsets: start of `queue`, next byte to send
        self.received = self.acknowledged = 0
        self.asked: int | None = None
        self.inbox = bytearray()
        self.in_line = False
        self.out = bytearray()

    def is_full(self) -> bool:
        """Whether so much data waits for the host that reading from workers should pause."""
        return len(self.queue) + len(self.out) >= 2 * self.window

    # -- to the host

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.queue += piece
        self.pump()

    def pump(self) -> None:
        end = self.acked + min(len(self.queue), self.window)
        while self.live and self.next < end:
            at = self.next - self.acked
            payload = self.queue[at:at + min(PAYLOAD_MAX, end - self.next)]
            self.put(RECORD_DATA, 0, payload)
            self.next += len(payload)

    def put(self, kind: int, flags: int = 0, payload: bytes = b"") -> None:
        header = RECORD.pack(RECORD_MAGIC, kind, flags, len(payload), self.next, self.received)
        total = RECORD_SUM.pack(binascii.crc32(payload, binascii.crc32(header)))
        self.acknowledged = self.received
        if self.text:
            self.out += MARK + binascii.b2a_base64(b"".join((header, total, payload)))
        else:
            self.out += header
            self.out += total
            self.out += payload

    def resume(self, nonce: bytes) -> None:
        # Drops unsent records, which pump() makes again. The host may have received part of a
        # record, so the output starts with enough filler to complete it.
        self.out = bytearray(b"\n" if self.text else RECORD_SIZE + PAYLOAD_MAX)
        self.live = True
        self.put(RECORD_RESUME, RECORD_ANSWER, nonce)

    # -- from the host

    def feed(self, data: bytes) -> None:
        if self.text:
            self.feed_text(data)
        else:
            self.feed_bare(data)

    def feed_bare(self, data: bytes) -> None:
        self.inbox += data
        at, inbox = 0, self.inbox
        while len(inbox) - at >= RECORD_SIZE:
            magic, kind, _, length, _, _ = RECORD.unpack_from(inbox, at)
            if (magic != RECORD_MAGIC or not RECORD_DATA <= kind <= RECORD_PING
                    or length > PAYLOAD_MAX):
                found = inbox.find(RECORD_MAGIC, at + 1)
                at = found if found >= 0 else len(inbox) - len(RECORD_MAGIC) + 1
                continue
            end = at + RECORD_SIZE + length
            if end > len(inbox):
                break
            self.take(bytes(inbox[at:end]))
            at = end
        del inbox[:at]

    def feed_text(self, data: bytes) -> None:
        lines = data.split(b"\n")
        for i, part in enumerate(lines):
            before, mark, rest = part.rpartition(MARK)
            if mark:
                self.in_line = True
                self.inbox = bytearray()
            if self.in_line and len(self.inbox) + len(rest) <= LINE_MAX:
                self.inbox += rest
            else:
                self.in_line = False
            if i < len(lines) - 1 and self.in_line:
                self.in_line = False
                self.take_line(bytes(self.inbox))

    def take_line(self, line: bytes) -> None:
        try:
            record = binascii.a2b_base64(line)
        except binascii.Error:
            return
        if len(record) >= RECORD_SIZE and record[:4] == RECORD_MAGIC:
            self.take(record)

    def take(self, record: bytes) -> None:
        _, kind, flags, length, seq, ack = RECORD.unpack_from(record)
        (total,) = RECORD_SUM.unpack_from(record, RECORD.size)
        payload = record[RECORD_SIZE:]
        header_sum = binascii.crc32(record[:RECORD.size])
        if length != len(payload) or binascii.crc32(payload, header_sum) != total:
            return
        if ack > self.acked:
            del self.queue[:ack - self.acked]
            self.acked = ack
            self.next = max(self.next, ack)
        if kind == RECORD_RESUME:
            self.next, self.asked = ack, None
            self.resume(payload)
        elif kind == RECORD_DATA:
            self.take_data(seq, payload)
        elif seq > self.received:
            self.ask_again(kind != RECORD_PING)
        if flags & RECORD_RESEND and kind == RECORD_ACK and ack >= self.acked:
            self.next = ack
        if kind == RECORD_PING:
            self.put(RECORD_ACK, RECORD_ANSWER)
        self.pump()

    def take_data(self, seq: int, payload: bytes) -> None:
        if seq > self.received:
            self.ask_again(True)
            return
        if seq + len(payload) <= self.received:
            return
        payload = payload[self.received - seq:]
        self.received += len(payload)
        self.asked = None
        self.deliver(payload)
        if self.received - self.acknowledged >= TO_GUEST // 4:
            self.put(RECORD_ACK)

    def ask_again(self, once: bool) -> None:
        if once and self.asked == self.received:
            return
        self.asked = self.received
        self.put(RECORD_ACK, RECORD_RESEND)
