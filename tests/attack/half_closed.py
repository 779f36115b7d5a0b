# attack: closes the channel, or one direction of it, in the middle of a cell, and goes on
# rows: 79
# expect: KILL(SandboxLost|protocol|exit)
# expect write: KILL(SandboxLost|protocol|exit|timeout|signal 2)
# expect closed: KILL(SandboxLost|protocol|exit|timeout|signal 2)
# isolation: full light landlock
# variants: read write both closed
# settings: --execute-timeout 2 --grace 0.3
# unconfined: never


def attack(kind):
    greet()
    if kind == "closed":
        os.close(3)
        os.closerange(4, 200)
    else:
        with socket.socket(fileno=os.dup(3)) as channel:
            channel.shutdown({"read": socket.SHUT_RD, "write": socket.SHUT_WR,
                              "both": socket.SHUT_RDWR}[kind])
    seen(llm_query, "x")
    return "went on"


def twin():
    """A copy of the descriptor may be closed; the channel is there as before."""
    os.close(os.dup(3))
    try:
        llm_query("x")
    except RuntimeError:
        return "success"
    return "no model answers here"
