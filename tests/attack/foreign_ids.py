# attack: forges results for cells that do not run, and calls under the ids of others
# rows: 81
# expect: KILL(protocol)
# isolation: full light landlock
# variants: next past zero huge
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def attack(kind):
    ident = {"next": running() + 1, "past": max(running() - 1, 0), "zero": 0,
             "huge": 2 ** 64 - 1}[kind]
    say(frame(RESULT, ident, b'{"status": "ok"}'))
    wait_to_be_killed()


def twin():
    return "success" if isinstance(running(), int) else "no id"
