# attack: computes in C without end, which no interrupt of Python's stops
# rows: 55
# expect: KILL(timeout) or DENY(TimeoutError)
# isolation: full light landlock
# variants: power regex sum
# settings: --execute-timeout 0.5 --grace 0.3
# unconfined: unsafe


def attack(kind):
    if kind == "regex":
        import re
        re.match("(a+)+$", "a" * 60 + "b")
    elif kind == "sum":
        sum(range(10 ** 14))
    else:
        return len(str(3 ** 10 ** 8))
    return "success"


def twin():
    return "success" if sum(range(1000)) == 499500 else "wrong"
