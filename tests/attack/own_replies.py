# attack: deceives itself: replaces the client that asks the host
# rows: 80
# expect: INERT(deceived)
# isolation: full light landlock
# alike: the guest deceives itself alone, or the host reads text as text
# unconfined: never


def attack():
    kind = type(guest()["state"].link)
    honest = kind.call
    kind.call = lambda self, head, values: ({"status": "ok"}, [b"deceived"])
    try:
        return str(llm_query("x"))
    finally:
        kind.call = honest


def twin():
    return "success"
