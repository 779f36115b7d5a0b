# attack: makes calls without end, each of which has a reply at once, and reads none of them
# rows: 116
# expect: CONTAIN(held)
# isolation: full light landlock
# alike: the host reads the channel, and looks at no level there
# unconfined: never
import select

CALLS = 3 * 10 ** 6     # in the host 1 GB of replies and more
SILENCE_MS = 3000       # in which the host takes nothing


def attack():
    greet()
    channel = socket.socket(fileno=os.dup(3))
    waits = select.poll()
    waits.register(channel, select.POLLOUT)
    for ident in range(1 << 40, (1 << 40) + CALLS, 100):
        rest = b"".join(frame(CALL, ident + i, b'{"name": "none"}', parts(b"{}"))
                        for i in range(100))
        while rest:
            if not waits.poll(SILENCE_MS):
                return "held"
            try:
                rest = rest[channel.send(rest, socket.MSG_DONTWAIT):]
            except BlockingIOError:
                pass
    return "success"


def twin():
    """Ten thousand calls at once, whose replies are read after the last of them was made."""
    link = guest()["state"].link
    waiters = {next(link.ids): guest()["Waiter"]() for _ in range(10000)}
    for ident, waiter in waiters.items():
        link.begin(ident, waiter, {"name": "none"}, [b"x"])
    for waiter in waiters.values():
        link.wait(waiter, lambda: waiter.frame is not None)
    return ("success" if all(b"no function" in waiter.frame[0] for waiter in waiters.values())
            else "none")
