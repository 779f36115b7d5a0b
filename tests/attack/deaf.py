# attack: ignores and blocks all signals, and catches whatever is raised
# rows: 57
# expect: KILL(timeout)
# isolation: full light landlock
# variants: catch ignore block daemon
# settings: --execute-timeout 1 --grace 0.3
# unconfined: unsafe


def attack(kind):
    if kind in ("ignore", "block"):
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            if kind == "ignore":
                signal.signal(number, signal.SIG_IGN)
        if kind == "block":
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    if kind == "daemon":
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def twin():
    """A handler of its own for a signal of its own."""
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    return "success" if got else "no signal"
