# attack: waits in a system call for what never comes
# rows: 56
# expect: DENY(TimeoutError) or KILL(timeout)
# isolation: full light landlock
# variants: sleep fifo lock
# settings: --execute-timeout 0.3 --grace 0.3
# unconfined: unsafe


def attack(kind):
    if kind == "sleep":
        time.sleep(10 ** 9)
    elif kind == "fifo":
        os.mkfifo(TMP + "/fifo")
        open(TMP + "/fifo")
    elif kind == "lock":
        import fcntl
        write(TMP + "/lock")
        one, two = open(TMP + "/lock"), open(TMP + "/lock")
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(two, fcntl.LOCK_EX)
    return "success"


def twin():
    return seen(time.sleep, 0.01)
