# attack: writes half a frame, or a frame byte by byte, and falls silent
# rows: 83
# expect: KILL(timeout)
# expect slow: KILL(timeout|protocol) or CONTAIN(TimeoutError)
# isolation: full light landlock
# variants: header body slow
# settings: --execute-timeout 1 --grace 0.3
# unconfined: unsafe


def attack(kind):
    greet()
    if kind == "header":
        os.write(3, frame(CALL, 1, b"{}")[:11])
    elif kind == "body":
        say(frame(CALL, 1, b"{", head_len=1000))
    else:
        whole = frame(CALL, 1, b"{}", b"x" * 100000)
        while True:
            try:
                for byte in whole:
                    os.write(3, bytes([byte]))
                    time.sleep(0.02)
            except BaseException:
                continue
    while True:
        try:
            wait_to_be_killed()
        except BaseException:
            pass


def twin():
    return "success"
