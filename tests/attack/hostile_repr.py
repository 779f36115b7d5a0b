# attack: leaves values whose __repr__, __len__, __class__ and names hang, raise or lie
# rows: 89
# expect: CONTAIN(success|TimeoutError|RuntimeError|SystemExit|KeyboardInterrupt) or
#     KILL(timeout|exit)
# isolation: full light landlock
# variants: hang raise exit large die
# settings: --execute-timeout 1 --grace 0.3 --memory 1G
# unconfined: unsafe


def make(kind):
    def act(self, *_):
        if kind == "hang":
            while True:
                pass
        if kind == "raise":
            raise RuntimeError("no")
        if kind == "exit":
            raise SystemExit(3)
        if kind == "large":
            return "x" * (1 << 28)
        os._exit(7)
    names = dict.fromkeys(("__repr__", "__str__", "__len__", "__json__", "__iter__", "__hash__",
                           "__format__", "__bool__"), act)
    return type("Hostile", (), names)()


def attack(kind):
    globals()["value"] = make(kind)
    globals()["listed"] = [make(kind)]
    return "success"


def twin():
    globals()["honest"] = type("Honest", (), {"__repr__": lambda self: "honest"})()
    return "success"
