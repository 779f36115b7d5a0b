# attack: has timers ring so often, with so much memory, that a fork is begun again and again
# rows: 67
# expect: CONTAIN(forked|EAGAIN|ENOMEM)
# isolation: full light landlock
# settings: --memory 400M
# unconfined: unsafe


def attack():
    """The kernel begins a fork anew when a signal comes meanwhile; that is the guest's own time."""
    kept = bytearray(b"x" * (100 << 20))
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(len(kept) == 0)
            os.waitpid(pid, 0)
        return "forked"
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0, 0)


def twin():
    return in_child(lambda: "success")
