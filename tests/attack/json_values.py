# attack: submits values that JSON cannot carry or that are too deep or too large
# rows: 86
# expect: DENY(ValueError|TypeError|RecursionError|OverflowError|MemoryError) or KILL(protocol)
# isolation: full light landlock
# variants: deep nan infinity surrogate generator object cycle digits keys
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: unsafe


def deep(n):
    value = []
    for _ in range(n):
        value = [value]
    return value


def attack(kind):
    value = {"deep": lambda: deep(10 ** 5), "nan": lambda: float("nan"), "infinity": lambda: 1e999,
             "surrogate": lambda: "\ud800", "generator": lambda: iter(()),
             "object": lambda: object(),
             "cycle": lambda: (lambda a: a.append(a) or a)([]), "digits": lambda: 10 ** 5000,
             "keys": lambda: {(1, 2): 3}}[kind]()
    SUBMIT(attack=value)


def twin():
    import json
    return "success" if json.loads(json.dumps({"a": [1.5, None, "\u00e9"]})) else "?"
