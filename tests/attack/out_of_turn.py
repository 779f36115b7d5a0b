# attack: writes frames that do not fit: of a type of the host's, unknown types, without a head,
#     twice
# rows: 79
# expect: KILL(protocol)
# isolation: full light landlock
# variants: hello exec reply ready unknown zero version flags garbage headless list null status part
#     texts minus place nowhere latin
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def submission(texts, *pieces):
    """An outline and texts beside it, of which it says that there are so many."""
    return frame(RESULT, running(), b'{"status": "ok", "submitted": 0, "texts": %d}' % texts,
                 parts(*pieces))


def attack(kind):
    say({"hello": frame(1, 1, b"{}"), "exec": frame(3, running(), b"{}"),
         "reply": frame(4, 1, b"{}", parts(b"x")), "ready": frame(17, 0, b"{}"),
         "unknown": frame(99, 1, b"{}"), "zero": frame(0, 0), "version": frame(CALL, 1, version=2),
         "flags": frame(CALL, 1, b"{}", flags=1), "garbage": os.urandom(4096).replace(b"\1", b"\2"),
         "headless": frame(RESULT, running()), "list": frame(RESULT, running(), b"[]"),
         "null": frame(RESULT, running(), b"null"),
         "status": frame(RESULT, running(), b'{"status": "root"}'),
         "part": frame(RESULT, running(), b'{"status": "ok", "submitted": 7}', parts(b"1")),
         "texts": submission(9, b'{"a": NaN}', b"x"), "minus": submission(-1, b'{"a": NaN}', b"x"),
         "place": submission(1, b'{"a": "NaN"}', b"x"),
         "nowhere": submission(1, b'{"a": NaN, "b": NaN}', b"x"),
         "latin": submission(1, b'{"a": NaN}', b"\xff")}[kind])
    wait_to_be_killed()


def twin():
    """The same channel, used as it is meant."""
    try:
        llm_query("x")
    except RuntimeError:
        return "success"
    return "it answered"
