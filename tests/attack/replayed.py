# attack: says a valid message once more: a call that is open, one that is answered, a result of
#     before
# rows: 79
# expect: KILL(protocol)
# expect result: INERT(ok)
# expect answered: INERT(answered)
# isolation: full light landlock
# variants: result answered early
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def attack(kind):
    if kind == "answered":
        """Each is a new call, counted and answered: the host has closed the one before."""
        link = guest()["state"].link
        for _ in range(20):
            waiter = guest()["Waiter"]()
            link.begin(7000, waiter, {"name": "llm_query"}, [b"x"])
            link.wait(waiter, lambda: waiter.frame is not None)
        return "answered"
    if kind == "early":
        say(frame(RESULT, running() + 1, b'{"status": "ok"}'))      # of the cell that comes next
    else:
        honest = frame(RESULT, running(), b'{"status": "ok"}')
        say(honest + honest)    # the first ends the cell, the second the sandbox, at the next call
    wait_to_be_killed()


def twin():
    return seen(print, "x")
