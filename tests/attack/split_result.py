# attack: writes the result of its cell a byte at a time, or in pieces split at each of its bytes
# rows: 79
# expect: INERT(forged)
# isolation: full light landlock
# variants: bytes header head blob
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def attack(kind):
    """It is a result all the same, such as an honest SUBMIT could have said."""
    value = b'{"attack": "forged", "twin": "success"}'
    head, blob = b'{"status": "ok", "submitted": 0}', parts(value)
    whole = frame(RESULT, running(), head, blob)
    if kind == "bytes":
        pieces = [whole[n:n + 1] for n in range(len(whole))]
    else:
        at = {"header": 13, "head": 24 + len(head) // 2, "blob": len(whole) - 7}[kind]
        pieces = [whole[:at], whole[at:]]
    greet()
    for piece in pieces:
        os.write(3, piece)
        time.sleep(0.002)
    time.sleep(30)
    return "the host went on"


def twin():
    return "success"
