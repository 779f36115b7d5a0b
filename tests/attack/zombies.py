# attack: leaves hundreds of ended children behind, whose parent has ended too
# rows: 63
# expect: CONTAIN(reaped)
# isolation: full light landlock
# unconfined: unsafe


def fork(end):
    """Forks once there is room. The limit counts children until they are reaped, and on a busy
    machine none of them may run for a while."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def attack():
    reader, writer = os.pipe()
    end = time.monotonic() + 30
    for _ in range(60):
        pid = fork(end)
        if pid == 0:
            for _ in range(3):
                orphan = fork(end)
                if orphan == 0:
                    os._exit(0)
                os.write(writer, struct.pack("i", orphan))
            os._exit(0)
        os.waitpid(pid, 0)
    orphans = struct.unpack("180i", os.read(reader, 4 * 180))
    while time.monotonic() < end:
        left = [pid for pid in orphans if seen(os.kill, pid, 0) == "success"]
        if not left:
            return "reaped"
        time.sleep(0.01)
    return "%d left" % len(left)


def twin():
    return "success" if in_child(lambda: "x") == "x" else "no child"
