"""OpenAI's clients, for which any node answers: responses, functions, files and containers are
where they were made."""
import concurrent.futures
import http.client
import json
import os

import pytest

from nodes import has_nats, Turns, wait_until, wait_until_joined

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")
MODEL = "droste/openai/gpt-5-mini"
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}}, "required": ["city"]}}
TURNS = {"weather": ["said = functions.weather('Oslo')", "SUBMIT(said)"],
         "save": ["save_to_volume('made.txt', 'made')\nSUBMIT('saved')"],
         "read": ["SUBMIT(context if isinstance(context, str) else str(context))"],
         "and": ["SUBMIT('again')"]}


@pytest.fixture
def provider():
    provider = Turns(TURNS)
    yield provider
    provider.close()


@pytest.fixture
def nodes(start):
    nodes = [start("--node", "n%d" % i, "--drain", "600") for i in range(3)]
    wait_until_joined(nodes)
    return nodes


def respond(node, input, key=None, **more):
    status, answer = node.ask("POST", "/v1/responses", {"model": MODEL, "input": input, **more},
                              headers={"Idempotency-Key": key} if key else None)
    assert status == 200, answer
    return answer


def said(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def upload(node, name, data):
    """A file, as a form."""
    body = ("--limit\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n"
            "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n"
            "%s\r\n--limit--\r\n" % (name, data)).encode()
    connection = http.client.HTTPConnection(node.host, node.port, timeout=30)
    connection.request("POST", "/v1/files", body,
                       {"Content-Type": "multipart/form-data; boundary=limit"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return json.load(answer)["id"]


def test_a_response_goes_on_through_any_node(nodes):
    """Its functions' results, the next response and what is stored; a lost node is 503."""
    one = respond(nodes[0], "Q:weather", tools=[{"type": "function", **FUNCTION}])
    call, = [item for item in one["output"] if item["type"] == "function_call"]
    result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}]
    two = respond(nodes[1], result, previous_response_id=one["id"],
                  tools=[{"type": "function", **FUNCTION}])
    assert said(two) == "rain"
    three = respond(nodes[2], "Q:and", previous_response_id=two["id"])
    assert said(three) == "again"
    for node in nodes:
        for response in (one, two, three):
            path = "/v1/responses/" + response["id"]
            assert node.ask("GET", path) == (200, response)
            assert node.ask("GET", path + "/input_items")[0] == 200
        assert node.ask("GET", "/v1/responses/resp_" + "0" * 32)[0] == 404
    assert nodes[1].ask("DELETE", "/v1/responses/" + one["id"])[0] == 200
    assert nodes[0].ask("GET", "/v1/responses/" + one["id"])[0] == 404
    nodes[0].kill()
    wait_until(lambda: nodes[1].ask("GET", "/v1/responses/" + two["id"])[0] == 503)
    nodes[0].start()
    wait_until(lambda: nodes[1].ask("GET", "/v1/responses/" + two["id"]) == (200, two))


def test_a_function_of_a_chat_has_its_result_from_any_node(nodes):
    """Calls of two nodes have the same number in their records, and are not confused."""
    asked = [{"role": "user", "content": "Q:weather"}]
    tools = [{"type": "function", "function": FUNCTION}]

    def chat(node, messages):
        status, answer = node.ask("POST", "/v1/chat/completions", {
            "model": MODEL, "messages": messages, "tools": tools})
        assert status == 200, answer
        return answer["choices"][0]["message"]
    calling = [chat(node, asked) for node in nodes[:2]]
    for i, message in enumerate(calling):
        call, = message["tool_calls"]
        answer = chat(nodes[1 - i], [*asked, message, {
            "role": "tool", "tool_call_id": call["id"], "content": "for %d" % i}])
        assert answer["content"] == "for %d" % i
    message = {**calling[0], "tool_calls": [{**calling[0]["tool_calls"][0], "id": "call_x_1_1"}]}
    assert nodes[0].ask("POST", "/v1/chat/completions", {
        "model": MODEL, "tools": tools, "messages": [*asked, message, {
            "role": "tool", "tool_call_id": "call_x_1_1", "content": ""}]})[0] == 400


def test_a_repeated_request_has_the_answer_of_the_node_that_has_it(nodes, provider):
    """It is paid once, whichever node gets the next try."""
    one = respond(nodes[0], "Q:and", key="same")
    paid = sum(provider.requests.values())
    assert [respond(node, "Q:and", key="same")["id"] for node in nodes] == [one["id"]] * 3
    assert sum(provider.requests.values()) == paid
    assert respond(nodes[1], "Q:and", key="other")["id"] != one["id"]
    assert sum(provider.requests.values()) == 2 * paid


def test_a_node_that_drains_is_not_asked(nodes, tmp_path):
    """What it has is not there for now, and what is new begins on another one."""
    draining, second, third = nodes
    one = respond(draining, "Q:and")
    path = "/v1/sandboxes/" + draining.ask("POST", "/v1/sandboxes", {})[1]["id"]
    cell = ("import os, time\nopen(%r, 'w').close()\n"
            "while not os.path.exists(%r): time.sleep(0.01)" % (
                str(tmp_path / "begun"), str(tmp_path / "end")))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        cell = pool.submit(draining.ask, "POST", path + "/execute", {"code": cell})
        wait_until((tmp_path / "begun").exists)
        draining.process.terminate()
        wait_until(lambda: "draining" in {
            n["state"] for n in second.ask("GET", "/v1/cluster")[1]["nodes"]})
        for node in second, third:
            status, answer = node.ask("GET", "/v1/responses/" + one["id"])
            assert status == 503, answer
            wait_until(lambda node=node: node.ask("POST", "/v1/responses", {    # has heard of it
                "model": MODEL, "input": "Q:and"}, headers={"Idempotency-Key": node.address}
                )[0] == 200)
        (tmp_path / "end").touch()
        assert cell.result()[1]["status"] == "ok"
    assert draining.process.wait(60) == 0


def test_files_and_containers_are_used_through_any_node(nodes):
    file = upload(nodes[0], "a.txt", "of a file")
    for node in nodes:
        assert [f["id"] for f in node.ask("GET", "/v1/files")[1]["data"]] == [file]
    answer = nodes[1].ask("POST", "/v1/chat/completions", {"model": MODEL, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Q:read"},
                                     {"type": "file", "file": {"file_id": file}}]}]})[1]
    assert "of a file" in answer["choices"][0]["message"]["content"]
    status, container = nodes[2].ask("POST", "/v1/containers", {"name": "c", "file_ids": [file]})
    assert status == 200
    tool = {"type": "code_interpreter", "container": container["id"]}
    assert said(respond(nodes[1], "Q:save", tools=[tool])) == "saved"
    path = "/v1/containers/" + container["id"]
    for node in nodes:
        assert node.ask("GET", path)[1]["id"] == container["id"]
        assert [c["id"] for c in node.ask("GET", "/v1/containers")[1]["data"]] == [container["id"]]
        assert {os.path.basename(f["path"]) for f in node.ask("GET", path + "/files")[1]["data"]
                } == {"a.txt", "made.txt"}
    assert nodes[1].ask("DELETE", path)[0] == 200
    assert nodes[0].ask("GET", path)[0] == 404
