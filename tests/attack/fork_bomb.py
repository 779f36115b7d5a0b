# attack: forks without end, and goes on when told to stop
# rows: 52
# expect: CONTAIN(EAGAIN)
# expect endless: KILL(timeout) or CONTAIN(TimeoutError)
# isolation: full light landlock
# alone: landlock
# variants: counted endless
# settings: --processes 40 --execute-timeout 3 --grace 0.3
# unconfined: unsafe


def attack(kind):
    if kind == "counted":
        children = []
        try:
            while True:
                pid = os.fork()
                if pid == 0:
                    time.sleep(1000)
                children.append(pid)
        except OSError as e:
            return errno.errorcode[e.errno]
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    while True:
        try:
            while True:
                os.fork()
        except BaseException:
            pass


def twin():
    return "success" if in_child(lambda: "x") == "x" else "no child"
