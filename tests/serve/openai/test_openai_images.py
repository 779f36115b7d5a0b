"""Images of a client: the model sees them with the question, and they are contexts of the code."""
import base64

import pytest

from harness import repl
from openai_fakes import CHAT, content, error
from openai_fakes import models  # noqa: F401: a fixture
from test_openai_files import store
from test_run_images import JPEG, png, seen

RESPONSES = "/v1/responses"
URL = "data:image/png;base64," + base64.b64encode(png(3)).decode()
TURNS = [repl("SUBMIT('%s %s' % (context[1:4].decode(), len(context)))")]
TWO = [repl("SUBMIT(', '.join(repr(c[:4]) for c in (context_0, context_1, context_2)))")]
CHAT_PART = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
PART = {"type": "input_image", "image_url": URL, "detail": "auto"}


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_the_model_sees_an_image_and_the_code_has_it(models, path):  # noqa: F811
    server = models("--max-images", "4", turns=TURNS)
    if path == CHAT:
        message = {"role": "user", "content": [{"type": "text", "text": "q"}, CHAT_PART]}
        answer = content(server.ask("POST", CHAT, {"model": "droste/turns", "messages": [message]}))
    else:
        message = {"role": "user", "content": [{"type": "input_text", "text": "q"}, PART]}
        one = server.ask("POST", RESPONSES, {"model": "droste/turns", "input": [message]}).json
        answer = one["output"][-1]["content"][0]["text"]
        kept = server.ask("GET", RESPONSES + "/%s/input_items" % one["id"]).json["data"]
        assert kept[0]["content"][1] == {"type": "input_text", "text": "[an image was attached]"}
    assert answer == "PNG %d" % len(png(3))
    assert seen(server.model)[-1] == [("image/png", png(3))]


def test_a_model_that_sees_no_images_gets_a_note_and_its_code_has_them(models):  # noqa: F811
    server = models(turns=TURNS)
    answer = server.ask("POST", CHAT, {"model": "droste/turns", "messages": [
        {"role": "user", "content": [CHAT_PART]}]})
    assert content(answer) == "PNG %d" % len(png(3)) and seen(server.model) == []


def test_images_text_and_stored_files_are_contexts_in_order(models):  # noqa: F811
    server = models("--max-images", "4", turns=TWO)
    made = store(server, JPEG, name="a.jpg")
    message = {"role": "user", "content": [
        {"type": "input_text", "text": "q"}, PART, {"type": "input_image", "file_id": made["id"]}]}
    one = server.ask("POST", RESPONSES, {"model": "droste/turns", "input": [message],
                                         "context": "text"}).json
    assert one["output"][-1]["content"][0]["text"] == r"'text', b'\x89PNG', b'\xff\xd8\xff\xe0'"
    assert seen(server.model)[-1] == [("image/png", png(3)), ("image/jpeg", JPEG)]


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_the_provider_gets_the_address_of_an_image(models, path):  # noqa: F811
    """Behind images with data; the code has the latter, and the question names the address."""
    address = "https://example.org/a.png"
    server = models("--max-images", "4", turns=TURNS)
    parts = [{"type": "input_image", "image_url": address}, PART]
    if path == CHAT:
        parts = [{"type": "image_url", "image_url": {"url": address}}, CHAT_PART]
    name = "messages" if path == CHAT else "input"
    answer = server.ask("POST", path, {"model": "droste/turns",
                                       name: [{"role": "user", "content": parts}]})
    assert answer.status == 200, answer.body
    assert seen(server.model)[-1] == [("image/png", png(3)), ("url", address.encode())]
    assert address in server.ask("GET", "/v1/runs").json["runs"][0]["question"]


@pytest.mark.parametrize("url,code", [
    ("http://example.org/a.png", "invalid_image_url"), (None, "invalid_image_url"),
    ("ftp://example.org/a.png", "invalid_image_url"), ("https://10.0.0.1/a.png", "argument"),
    ("https://localhost/", "argument"), ("data:image/png,x", "invalid_file_data"),
    ("data:image/png;base64,***", "invalid_file_data")])
def test_other_addresses_are_refused(models, url, code):  # noqa: F811
    part = {"type": "input_image", "image_url": url}
    answer = models().ask("POST", RESPONSES, {"model": "droste/turns", "input": [
        {"role": "user", "content": [part]}]})
    assert error(answer, 400)["code"] == code
