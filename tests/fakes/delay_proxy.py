"""A proxy that makes a way longer: whatever comes goes on after half of a round trip, in order, in
either direction.

    python3 tests/fakes/delay_proxy.py --to HOST:PORT --ms 40 [--port N]

says its own address on a line, and runs until its standard input ends. A connection through it
takes the same time to be made as one that is as far: nothing goes on before half of a round trip is
over. Bandwidth has no limit.
"""
import argparse
import asyncio
import collections
import socket
import sys

PIECE = 1 << 18


class Line:
    """One direction of a connection."""

    def __init__(self, loop, delay, writer):
        self.loop, self.delay, self.writer = loop, delay, writer
        self.waiting = collections.deque()

    def take(self, data):
        """Empty: the end."""
        self.waiting.append((self.loop.time() + self.delay, data))
        if len(self.waiting) == 1:
            self.loop.call_at(self.waiting[0][0], self.deliver)

    def deliver(self):
        now = self.loop.time()
        while self.waiting and self.waiting[0][0] <= now:
            _, data = self.waiting.popleft()
            if self.writer.is_closing():
                self.waiting.clear()
            elif data:
                self.writer.write(data)
            else:
                self.writer.close()
        if self.waiting:
            self.loop.call_at(self.waiting[0][0], self.deliver)


async def move(reader, line):
    try:
        while data := await reader.read(PIECE):
            line.take(data)
            while len(line.waiting) > 1000:
                await asyncio.sleep(line.delay)
    except ConnectionError:
        pass
    line.take(b"")


async def serve(to, delay, reader, writer):
    loop = asyncio.get_running_loop()
    try:
        far_reader, far_writer = await asyncio.open_connection(*to)
    except OSError:
        writer.close()
        return
    for w in (writer, far_writer):
        w.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    await asyncio.gather(move(reader, Line(loop, delay, far_writer)),
                         move(far_reader, Line(loop, delay, writer)))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True)
    parser.add_argument("--ms", type=float, required=True, help="of a whole round trip")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    host, _, port = options.to.rpartition(":")
    to, delay = (host, int(port)), options.ms / 2000
    server = await asyncio.start_server(lambda r, w: serve(to, delay, r, w), "127.0.0.1",
                                        options.port, limit=PIECE)
    print("127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
