# attack: floods standard output and standard error in turn, in pieces of all sizes
# rows: 62
# expect: CONTAIN(success)
# isolation: full light landlock
# alike: the host reads the pipes, and looks at no level there
# unconfined: unsafe


def attack():
    for n in range(400):
        os.write(1, b"o" * (n * 997 % 65536 + 1))
        os.write(2, b"e" * (n * 1499 % 131072 + 1))
    import _thread
    done = []

    def flood(fd):
        for _ in range(200):
            os.write(fd, b"t" * 70000)
        done.append(fd)
    for fd in (1, 2):
        _thread.start_new_thread(flood, (fd,))
    while len(done) < 2:
        time.sleep(0.01)
    return "success"


def twin():
    print("to standard error", file=sys.stderr)
    return "success"
