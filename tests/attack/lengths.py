# attack: announces frames of sizes that lie: huge, negative, over the cap, parts that do not add up
# rows: 82
# expect: KILL(protocol)
# isolation: full light landlock
# variants: head blob negative over result count sum short long
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: unsafe


def attack(kind):
    say({"head": frame(CALL, 1, head_len=0xffffffff), "head over": frame(CALL, 1, head_len=1 << 30),
         "blob": frame(CALL, 1, b"{}", blob_len=2 ** 64 - 1),
         "negative": frame(CALL, 1, b"{}", blob_len=2 ** 63),
         "over": frame(CALL, 1, b"{}", blob_len=(256 << 20) + 1),
         "result": frame(RESULT, running(), b"{}", blob_len=1 << 40),
         "count": frame(RESULT, running(), b'{"status": "ok", "submitted": 0}',
                        struct.pack("<I", 0xffffffff)),
         "sum": frame(RESULT, running(), b'{"status": "ok", "submitted": 0}',
                      struct.pack("<IQQ", 2, 2 ** 63, 2 ** 63)),
         "short": frame(RESULT, running(), b'{"status": "ok", "submitted": 0}',
                        struct.pack("<IQ", 1, 100) + b"x"),
         "long": frame(RESULT, running(), b'{"status": "ok", "submitted": 0}', parts(b"1") + b"x"),
         }[kind])
    wait_to_be_killed()


def twin():
    return "success"
