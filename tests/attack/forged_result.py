# attack: finds the channel and writes a result of its own for the cell that runs
# rows: 79
# expect: INERT(forged)
# isolation: full light landlock
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def attack():
    """The cell then ends with what it says, which an honest SUBMIT could have said as well."""
    value = b'{"attack": "forged", "twin": "success"}'
    say(frame(RESULT, running(), b'{"status": "ok", "submitted": 0}', parts(value)))
    time.sleep(30)
    return "the host went on"


def twin():
    return "success"
