# attack: sends storms of signals to itself, stops itself, stops and kills the process that watches
#     over it
# rows: 65
# expect: KILL(timeout|signal)
# expect init: DENY(EPERM) or KILL(SandboxLost)
# expect init@forked: DENY(EPERM) or KILL(SandboxLost|signal)
# expect init@rolled-back: DENY(EPERM) or KILL(SandboxLost|signal)
# expect storm: KILL(timeout|signal) or CONTAIN(TimeoutError)
# isolation: full light landlock
# variants: stop all init storm
# settings: --execute-timeout 1 --grace 0.3
# unconfined: unsafe


def attack(kind):
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "all":
        seen(os.kill, -1, signal.SIGSTOP)
        seen(os.kill, os.getppid(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "init":
        saw = {number.name: seen(os.kill, os.getppid(), number) for number in set(signal.Signals)}
        time.sleep(0 if set(saw.values()) == {"EPERM"} else 2)
        return saw
    elif kind == "storm":
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.00001, 0.00001)
        while True:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass
    return "success"


def twin():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(0.01)
    return "success"
