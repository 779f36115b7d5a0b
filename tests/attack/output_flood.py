# attack: prints without end: many lines, and one line of a gigabyte
# rows: 61
# expect: CONTAIN(success)
# isolation: full light landlock
# variants: line lines
# alike: the host reads the pipes, and looks at no level there
# unconfined: unsafe


def attack(kind):
    if kind == "line":
        piece = b"x" * (1 << 20)
        for _ in range(1024):
            os.write(1, piece)
    else:
        for _ in range(300):
            os.write(1, b"line\n" * 100000)
    return "success"


def twin():
    print("hello")
    return "success"
