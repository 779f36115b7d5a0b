# attack: makes requests that are cheap for a guest and dear for the host: very many tiny prompts,
#     lists of very many values, a long name
# rows: 117
# expect: DENY(argument|budget_calls)
# expect head: KILL(protocol)
# isolation: full light landlock
# variants: prompts affordable messages many head name
# settings: --max-llm-calls 30000
# alike: what a guest asks for is judged by the host, which looks at no level there
# unconfined: never
MILLION = 10 ** 6


def ask(head, blob):
    """A call by hand; the code of its error."""
    link = guest()["state"].link
    reply, _ = link.call(head, blob)
    error = reply.get("error") or reply.get("errors", {}).get("0")
    return error["code"] if error else "success"


def attack(kind):
    head = {"name": "llm_query"}
    junk = b'[{"role":"user","content":"x","junk":[' + b"0," * 3900000 + b"0]}]"
    if kind == "prompts":           # the host took 462 MB for them, and half a second
        return ask(head, [b"x"] * (MILLION - 1))
    if kind == "affordable":        # as many as one call may have, twice: over the budget
        ask(head, [b"x"] * 20000)
        return ask(head, [b"x"] * 20000)
    if kind == "messages":          # 680 MB, and a second
        return ask(dict(head, messages=[0]), [junk])
    if kind == "many":              # each of them small enough
        some = b'[{"role":"user","content":"x","junk":[' + b"0," * 60000 + b"0]}]"
        reply, _ = guest()["state"].link.call(dict(head, messages=list(range(50))), [some] * 50)
        return reply["errors"]["49"]["code"]
    if kind == "name":
        return ask(dict(head, model="m" * ((2 << 20) - 1000)), [b"x"])
    return ask(dict(head, messages=[0] * 200000), [b"x"])


def twin():
    """Ten thousand prompts at once, each of which gets its answer: that there is none to be had."""
    reply, answers = guest()["state"].link.call({"name": "llm_query"}, [b"x"] * 10000)
    return "success" if len(reply["errors"]) == len(answers) == 10000 else "none"
