# attack: prints and raises text with escape sequences, to act on the terminal of whoever reads it
# rows: 96
# expect: INERT(escaped)
# isolation: full light landlock
# alike: the guest deceives itself alone, or the host reads text as text
# unconfined: unsafe


def attack():
    """As JSON everything is escaped; that it parses is what the driver sees."""
    sys.stdout.write("\x1b]0;owned\x07\x1b[2J\r\x00\x9b31m\u202etxt\u2066")
    sys.stderr.write("\x1b[31m\n{\"status\": \"ok\"}\n")
    os.write(1, bytes(range(256)))
    return "escaped"


def twin():
    print("\u00e4 \u4e2d")
    return "success"
