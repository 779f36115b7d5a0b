# attack: has child runs start child runs, deep, wide and without end, with depths and budgets of
#     their own making
# rows: 91
# expect: DENY(BudgetExceeded)
# expect deep: CONTAIN(3 levels)
# expect forged: CONTAIN(3 levels)
# isolation: full light landlock
# variants: deep wide endless forged
# alike: runs are counted by the host, which looks at no level there
# through: run
# settings: --max-recursion-depth 2 --max-llm-calls 12 --max-iterations 3 --max-children 3
#     --database none
# unconfined: never


FORGED = {"depth": 0, "max_recursion_depth": 99, "budget": {"calls": 10 ** 9}, "parent": None,
          "run": None}


def levels(below):
    """Every run runs this file: how many there are below each other. What is not a dict is a
    model's reply."""
    if not isinstance(below, dict):
        return "1 levels"
    return "%d levels" % (int(below["attack"].split()[0]) + 1)


def forged_query():
    """The call that the guest's own function makes, with all that it must not say."""
    head = {"name": "rlm_query", "kinds": [], "of": [-1], **FORGED}
    reply, values = guest()["state"].link.call(head, [b"Go on."])
    error = reply.get("error") or reply.get("errors", {}).get("0")
    if error:
        raise RuntimeError(error["type"])
    import json
    return json.loads(bytes(values[0]))


def wide():
    """What became of a thousand at once; those that there was room for may have answered."""
    try:
        became = rlm_query_batched(["Go on."] * 1000, errors="return")
    except Exception as e:
        return type(e).__name__
    return {"%s" % type(value).__name__: type(value).__name__ for value in became
            if not isinstance(value, (dict, str))}


def attack(kind):
    if kind == "deep":
        return levels(rlm_query("Go on."))
    if kind == "forged":
        return levels(forged_query())
    if kind == "wide":
        return wide()
    while True:
        word = seen(rlm_query, "Go on.")
        if word == "BudgetExceeded":
            return word


def twin():
    """Two levels below each other answer."""
    below = rlm_query("Go on.")
    return "success" if isinstance(below, str) else below["twin"]
