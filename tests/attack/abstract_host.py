# attack: connects to an abstract UNIX socket of the host
# rows: 70
# expect: DENY(ECONNREFUSED|EPERM)
# isolation: full light landlock
# unconfined: safe


def attack():
    return seen(lambda: socket.socket(socket.AF_UNIX).connect("\0" + HOST["abstract"]))


def twin():
    return connect_own("\0own%d" % os.getpid())
