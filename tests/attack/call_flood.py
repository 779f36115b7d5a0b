# attack: asks the model without end, in large batches, with a prompt of gigantic size
# rows: 90
# expect: DENY(BudgetExceeded|LLMError|MemoryError|refused) or KILL(protocol)
# expect batch: DENY(ValueError)
# isolation: full light landlock
# variants: many batch prompt
# alike: what a guest writes to its channel is judged by the host, which looks at no level there
# unconfined: never


def attack(kind):
    if kind == "many":
        last = "success"
        for _ in range(2000):
            last = seen(llm_query, "x")
        return last
    if kind == "batch":
        replies = []
        def ask():
            replies.extend(llm_query_batched(["x"] * 10 ** 5))
        word = seen(ask)
        return (word if word != "success" else "refused" if all(r.error for r in replies)
                else "success")
    return seen(llm_query, "x" * (300 << 20))


def twin():
    return "success" if callable(llm_query) else "none"
