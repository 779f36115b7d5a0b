# attack: leaves hundreds of ended children behind, whose parent has ended too
# expect: CONTAIN(reaped)
# isolation: full
# unconfined: unsafe


def attack():
    for _ in range(60):
        pid = os.fork()
        if pid == 0:
            for _ in range(3):
                if os.fork() == 0:
                    os._exit(0)
            os._exit(0)
        os.waitpid(pid, 0)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        left = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]
        if not left:
            return "reaped"
        time.sleep(0.01)
    return "%d left" % len(left)


def twin():
    return "success" if in_child(lambda: "x") == "x" else "no child"
