"""Parameters of paths that lead elsewhere, over every operation of the server's document."""
import re

from test_keys import operations

# What a proxy, or a file system behind the server, could read as another path.
ELSEWHERE = ["..", ".", "%2e%2e", "%2E%2e%2F", "..%2f..%2fhealth", "%252e%252e", "%00", "a%00b", "",
             "/", "a/../b", "%c0%ae%c0%ae", "%ff", "..;", "..%5c", "~", "a" * 65, "a" * 8000,
             "%e2%80%ae", "x%0d%0aX:y", "*", "{id}"]


def test_no_parameter_of_a_path_leads_elsewhere(server, sandbox):
    """Each is refused as the name of a sandbox that does not exist; the sandbox's own is found."""
    own, asked = sandbox.rpartition("/")[2], 0
    for method, path, body in operations(server):
        for bad in ELSEWHERE:
            target = re.sub(r"\{(?!id)\w+\}", "x", path).replace("{id}", bad)
            answer = server.ask(method, target, body, {"Content-Type": "application/json"})
            assert 400 <= answer.status < 500, (method, target[:80], answer.status)
            asked += 1
        if "{name}" in path:
            for bad in ELSEWHERE:
                target = path.replace("{id}", own).replace("{name}", bad)
                answer = server.ask(method, target, body, {"Content-Type": "application/json"})
                assert 400 <= answer.status < 500, (method, target[:80], answer.status)
                asked += 1
    assert asked > 20 * len(ELSEWHERE)
    assert server.ask("GET", sandbox).status == 200
    assert server.ask("PUT", sandbox + "/variables/x", b"1", {
        "Content-Type": "application/json"}).status == 204
    assert server.ask("GET", sandbox + "/variables/x").body == b"1"
