# attack: ends itself while calls to the host are in flight
# rows: 92
# expect: KILL(exit 5)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    import _thread

    def ask():
        while True:
            seen(llm_query, "x")
    for _ in range(8):
        _thread.start_new_thread(ask, ())
    time.sleep(0.1)
    os._exit(5)


def twin():
    return seen(print, "x")
