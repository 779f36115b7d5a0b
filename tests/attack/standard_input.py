# attack: waits for input of the host: input(), descriptor 0, an event loop left running
# rows: 102
# expect: DENY(EOFError|end)
# isolation: full light landlock
# alike: its standard input is the same at all levels
# unconfined: unsafe


def attack():
    import asyncio
    saw = {"input": seen(input), "read": "end" if os.read(0, 100) == b"" else "success",
           "stdin": "end" if sys.stdin.read() == "" else "success",
           "tty": "end" if seen(open, "/dev/tty") != "success" else "success"}
    loop = asyncio.new_event_loop()
    loop.call_later(1000, print, "x")
    return saw


def twin():
    import asyncio
    return seen(asyncio.new_event_loop().run_until_complete, asyncio.sleep(0))
