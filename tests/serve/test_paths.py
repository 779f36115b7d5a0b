"""Parameters of paths that lead elsewhere, over every operation of the server's document."""
import re

from test_owners import operations

# What a proxy, or a file system behind the server, could read as another path.
ELSEWHERE = ["..", ".", "%2e%2e", "%2E%2e%2F", "..%2f..%2fhealth", "%252e%252e", "%00", "a%00b", "",
             "/", "a/../b", "%c0%ae%c0%ae", "%ff", "..;", "..%5c", "~", "a" * 65, "a" * 8000,
             "%e2%80%ae", "x%0d%0aX:y", "*", "{id}"]


# Of E2B's clients, whose operations are in no document.
E2B = [("GET", "/sandboxes/{id}", None), ("DELETE", "/sandboxes/{id}", None),
       ("POST", "/sandboxes/{id}/pause", "{}"), ("POST", "/sandboxes/{id}/snapshots", "{}"),
       ("GET", "/templates/aliases/{name}", None), ("DELETE", "/templates/{name}", None)]


def test_no_parameter_of_a_path_leads_elsewhere(server, sandbox):
    """Each is refused as the name of something that does not exist, also the second of a path
    behind a sandbox that does; the sandbox's own is found."""
    own, asked = sandbox.rpartition("/")[2], 0
    headers = {"Content-Type": "application/json", "X-API-Key": "e2b_" + "0" * 40}
    for method, path, body in [*operations(server), *E2B]:
        for bad in ELSEWHERE:
            for last in range(path.count("{")):
                names = iter([own] * last + [bad, "x"])
                target = re.sub(r"\{\w+\}", lambda _: next(names), path)  # noqa: B023
                answer = server.ask(method, target, body, headers)
                fine = 400 <= answer.status < 500 or (
                    answer.status == 501 and target.startswith("/v1/queue"))   # in no cluster
                assert fine, (method, target[:80], answer.status)
                asked += 1
    assert asked > 80 * len(ELSEWHERE)
    assert server.ask("GET", sandbox).status == 200
    assert server.ask("PUT", sandbox + "/variables/x", b"1", {
        "Content-Type": "application/json"}).status == 204
    assert server.ask("GET", sandbox + "/variables/x").body == b"1"
