"""Images of rich results that the model sees: which, how many, to each API, in the record."""
import base64
import json
import struct
import zlib

import pytest
from harness import answered, repl
from test_resume import Life, killed_in


def png(width, height=1, fill=0):
    """A whole PNG file, in shades of gray."""
    def chunk(kind, data):
        return struct.pack(">I",
                           len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([fill]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR",
                                         struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


JPEG = (b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
        + b"\xff\xc0\0\x0b\x08\0\x02\0\x03\1\1\x11\0" + b"\xff\xd9")


ADDRESSES = {"openai": ("OPENAI", "OPENAI_BASE_URL", "/v1"),
             "anthropic": ("ANTHROPIC", "ANTHROPIC_BASE_URL", ""),
             "gemini": ("GEMINI", "GOOGLE_GEMINI_BASE_URL", "")}


def variables(provider, server):
    """The key and the server of a provider."""
    name, address, path = ADDRESSES[provider]
    return {name + "_API_KEY": "k", address: server.url[:-len("/v1")] + path}


def shows(*images):
    """A turn whose code shows these (type, data), each with a text."""
    code = "".join("display({'text/plain': 'image %d', %r: %r}, raw=True)\n" % (i, kind, data)
                   for i, (kind, data) in enumerate(images))
    return repl(code)


def seen(server):
    """The images of each message of the last request that has some."""
    images = server.stats()["images"]
    return [[(kind, base64.b64decode(data)) for kind, data in message]
            for message in images[-1]] if images else []


PNG = png(3)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_the_model_sees_images(droste, serve, provider):
    """PNG and JPEG go with the next message of the user, in order, after its text, and stay in the
    conversation; other forms and invalid files do not. The server refuses what services refuse."""
    server = serve(
        script=[shows(("image/png", PNG), ("image/jpeg", JPEG), ("image/png", b"\x89PNG no image"),
                      ("image/png", png(9000)), ("image/gif", b"GIF89a")),
                {"content": repl("print(1)"),
                 "contains": "[2 images that this code showed: below, in order]"},
                repl("SUBMIT(1)")])
    result = droste("run", "--question", "q", "--json", "--model", provider + "/scripted",
                    "--max-images", "4", env=variables(provider, server))
    answered(result, 1)
    messages = seen(server)
    assert [images for images in messages if images] == [[("image/png", PNG), ("image/jpeg", JPEG)]]
    assert len(server.stats()["images"]) == 2       # both requests after the images were shown


def test_others_have_the_text(droste, serve):
    """A model that is not known to see images has only the text of the results."""
    server = serve(script=[shows(("image/png", PNG)),
                           {"content": repl("SUBMIT(1)"), "contains": "image 0"}])
    answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.url), 1)
    assert seen(server) == []


@pytest.mark.parametrize("flags, count, words", [
    (("--max-images", "2"), 2, "[1 further image is not shown to you"),
    (("--max-images", "0"), 0, "image 2"),
    (("--max-images", "3"), 3, "image 2"),
])
def test_their_number_is_bounded(droste, serve, flags, count, words):
    images = [("image/png", png(n + 1)) for n in range(3)]
    server = serve(script=[shows(*images), {"content": repl("SUBMIT(1)"), "contains": words}])
    answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.url, *flags), 1)
    assert [image for message in seen(server) for image in message] == images[:count]


def test_a_run_has_twenty_images_at_most(droste, serve):
    """Of 25, five in each turn: the first 20 stay, no further ones come."""
    turns = [shows(*(("image/png", png(5 * t + n + 1)) for n in range(5))) for t in range(5)]
    server = serve(script=[*turns, {"content": repl("SUBMIT(1)"),
                                    "contains": "[5 further images are not shown"}])
    answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.url, "--max-images", "20"), 1)
    assert [len(message) for message in seen(server) if message] == [5, 5, 5, 5]


def test_the_record_names_the_images(droste, serve):
    """A request has their types, sizes and hashes; the bytes are in the results of their cell, also
    where there is no more room for results."""
    server = serve(script=[shows(("image/png", PNG)), repl("SUBMIT(1)")])
    answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.url, "--max-images", "1", "--max-record-size", "20K"), 1)
    lines = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    request = [line["request"] for line in lines if line["type"] == "call"][1]
    image, = request[-1]["images"]
    assert image["type"] == "image/png" and image["bytes"] == len(PNG)
    assert droste.record.rows("SELECT data FROM results WHERE type = 'image/png'")[0][
        "data"] == image["sha256"]


def test_a_resumed_run_sends_the_same_images(droste, serve, tmp_path):
    """Its process was killed after the model saw an image; the next request has it once more."""
    server = serve(turns=[shows(("image/png", PNG)), repl("x = llm_query('hang')\nprint(len(x))"),
                          repl("SUBMIT(x)")])
    life = Life(droste, server, tmp_path)
    killed_in(droste, life, flags=("--max-images", "2"))
    before = server.stats()["images"]
    assert len(before) == 1
    result = life.resume()
    assert result.json["answer"] and result.json["resumed"]["replayed"] == 2
    after = server.stats()["images"]
    assert len(after) == 2 and after[1][:len(before[0])] == before[0]
    assert "differs" not in result.err


URL = "https://example.org/a.png?x=1"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_a_provider_that_reads_addresses_gets_them(droste, serve, provider):
    """Gemini takes data only: the run does not begin."""
    server = serve(script=[repl("SUBMIT(1)")])
    result = droste("run", "--question", "q", "--json", "--model", provider + "/scripted",
                    "--max-images", "4", "--image-url", URL, env=variables(provider, server))
    if provider == "gemini":
        assert "takes images as data" in result.err and server.stats()["requests"] == 0
    else:
        answered(result, 1)
        assert seen(server)[-1] == [("url", URL.encode())]


@pytest.mark.parametrize("url, words", [
    ("http://example.org/a.png", "https://"), ("https://10.1.2.3/a.png", "private"),
    ("https://[::1]/a.png", "address"), ("https://127.1/a.png", "odd form"),
    ("https://localhost/a.png", "full name"), ("https://user@example.org/a.png", "not a name"),
    ("https://example.org/a b.png", "escaped"), ("https:///a.png", "empty")])
def test_addresses_that_are_not_public_are_refused(droste, url, words):
    result = droste("run", "--question", "q", "--model", "openai/scripted", "--image-url", url,
                    env={"OPENAI_API_KEY": "k"})
    assert result.status == 2 and words in result.err, result.err


def test_a_resumed_run_sends_the_same_addresses(droste, serve, tmp_path):
    server = serve(turns=[repl("import os\nprint(os.urandom(9))"), repl("x = llm_query('hang')"),
                          repl("SUBMIT(x)")])
    life = Life(droste, server, tmp_path)
    killed_in(droste, life, flags=("--max-images", "2", "--image-url", URL))
    assert life.resume("--verbose").json["answer"]
    assert [[base64.b64decode(data) for _, data in images[1]]
            for images in server.stats()["images"]] == [[URL.encode()]] * 3


def test_a_resumed_run_shows_the_images_of_its_context(droste, serve, tmp_path):
    """Also where a cell printed something else this time, and the recorded messages are sent."""
    server = serve(turns=[repl("import os\nprint(os.urandom(9))"),
                          repl("x = llm_query('hang')"), repl("SUBMIT(x)")])
    (tmp_path / "a.png").write_bytes(PNG)
    life = Life(droste, server, tmp_path)
    killed_in(droste, life, flags=("--max-images", "2", "--context", str(tmp_path / "a.png"),
                                   "--show-images", "yes"))
    result = life.resume("--verbose")
    assert result.json["answer"] and "differs" in result.err
    for images in server.stats()["images"]:
        assert [base64.b64decode(data) for _, data in images[1]] == [PNG]
    assert len(server.stats()["images"]) == 3


def test_images_of_a_context_are_not_shown_unless_asked_for(droste, serve, tmp_path):
    server = serve(script=[repl("SUBMIT(len(context))")])
    (tmp_path / "a.png").write_bytes(PNG)
    answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                    server.url, "--max-images", "1", "--context", str(tmp_path / "a.png")),
             len(PNG))
    assert seen(server) == []
