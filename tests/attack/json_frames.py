# attack: writes results whose JSON is broken, deep, of doubtful numbers or not UTF-8
# rows: 86
# expect: DENY(ValueError)
# expect keys: INERT(submitted)
# expect head_deep: KILL(protocol)
# expect head_nan: KILL(protocol)
# expect head_utf8: KILL(protocol)
# expect head_trailing: KILL(protocol)
# expect head_nul: KILL(protocol)
# isolation: full light landlock
# variants: deep open nan infinity utf8 bom trailing empty nul comment surrogate exponent number
#     keys head_deep head_nan head_utf8 head_trailing head_nul
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: unsafe


def attack(kind):
    value = {"deep": b"[" * 10 ** 5 + b"]" * 10 ** 5, "open": b"[" * 10 ** 6, "nan": b"NaN",
             "infinity": b"-Infinity", "utf8": b'"\xff\xfe"', "surrogate": b'"\\ud800"',
             "bom": b"\xef\xbb\xbf{}", "number": b"1" * (10 << 20), "exponent": b"1e999",
             "trailing": b"{} {}", "empty": b"", "nul": b'"\0"', "comment": b"{}//",
             "keys": b"{" + b",".join(b'"%d":0' % n for n in range(10 ** 6)) + b"}"}
    if kind.startswith("head_"):
        head = b'{"status": "ok", "x": ' + value[kind[5:]] + b"}"
        say(frame(RESULT, running(), head))
    else:
        say(frame(RESULT, running(), b'{"status": "ok", "submitted": 0}', parts(value[kind])))
    wait_to_be_killed()


def twin():
    return "success"
