# attack: submits and prints pickles and marshalled code, hoping that the host loads them
# rows: 88
# expect: INERT(text)
# isolation: full light landlock
# alike: the guest deceives itself alone, or the host reads text as text
# unconfined: unsafe


class Bomb:
    def __reduce__(self):
        return (os.system, ("echo x > %s/pwned" % HOST["place"],))


def attack():
    import base64
    import marshal
    import pickle
    data = pickle.dumps(Bomb(), 0)
    os.write(1, data)
    os.write(1, marshal.dumps(compile("x", "x", "exec")))
    globals()["bomb"] = data
    globals()["Bomb_in_a_variable"] = Bomb()
    return {"text " + base64.b64encode(data).decode(): "text"}


def twin():
    import pickle
    return "success" if pickle.loads(pickle.dumps([1])) == [1] else "?"
