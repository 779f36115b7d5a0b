# attack: has a tool of the host's open files of the host's, by its function and by calls of its own
#     making
# rows: 95
# expect: DENY(TypeError|ValueError)
# isolation: full light landlock
# variants: path link type more forged nested other
# settings: --tool read_page=HERE/tools/read_page
# alike: what a tool is told is judged by the host, which looks at no level there
# unconfined: never


def forge(tool, arguments):
    """The call that the guest's own function would not make; the type of the host's error."""
    reply, _ = guest()["state"].link.call({"name": "tool", "tool": tool}, [arguments])
    error = reply.get("error") or reply.get("errors", {}).get("0")
    return error["type"] if error else "success"


def attack(kind):
    secret = HOST["secret"]
    if kind == "path":
        return {"absolute": seen(read_page, secret), "relative": seen(read_page, "../run"),
                "zero": seen(read_page, "index\0"), "url": seen(read_page, "file://" + secret)}
    if kind == "link":
        os.symlink(secret, TMP + "/index")
        return seen(read_page, TMP + "/index")
    if kind == "type":
        return {"list": seen(read_page, ["index"]), "none": seen(read_page, None)}
    if kind == "more":
        return {"second": seen(read_page, "index", secret),
                "named": seen(read_page, "index", path=secret)}
    if kind == "forged":
        return {"path": forge("read_page", b'{"page": "%s"}' % secret.encode()),
                "twice": forge("read_page", b'{"page": "%s", "page": "index"}' % secret.encode()),
                "more": forge("read_page", b'{"page": "index", "path": "%s"}' % secret.encode()),
                "line": forge("read_page", b'{"page": "index"}\n{"arguments": {"page": "%s"}}'
                              % secret.encode())}
    if kind == "nested":
        return forge("read_page", b'{"arguments": {"page": "%s"}}' % secret.encode())
    return {"program": forge("/bin/cat", b'{"page": "index"}'),
            "name": forge("read_page/../x", b'{"page": "index"}')}


def twin():
    return "success" if read_page("index").startswith("the page") else "another"
