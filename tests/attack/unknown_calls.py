# attack: calls numbers that no kernel of today has
# rows: 37
# expect: DENY(ENOSYS)
# isolation: full light landlock
# needs: seccomp
# unconfined: unsafe


def attack():
    return {str(number): raw(number, 0, 0, 0, 0, 0, 0)
            for number in [*range(475, 601), 1000, 100000]}


def twin():
    return raw("getpid")
