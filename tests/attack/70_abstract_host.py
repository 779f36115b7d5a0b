# attack: connects to an abstract UNIX socket of the host
# expect: DENY(ECONNREFUSED|EPERM)
# isolation: full
# unconfined: safe


def attack():
    return {kind: seen(socket.socket(socket.AF_UNIX, number).connect, "\0" + HOST["abstract"])
            for kind, number in (("stream", socket.SOCK_STREAM), )}


def twin():
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0own%d" % os.getpid())
    server.listen(1)
    return seen(socket.socket(socket.AF_UNIX).connect, "\0own%d" % os.getpid())
