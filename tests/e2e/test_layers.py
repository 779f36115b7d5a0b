"""scripts/check-layers: no include points upward, and no circle in the layers without circles."""
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LAYERS = "base:\nnet: base\nacyclic: net\n"
CONNECT = '#include "net/connect.h"\n\nint net_connect(void)\n{\n    return 0;\n}\n'
HTTP = '#include "net/http.h"\n\nint net_http(void)\n{\n    return net_connect();\n}\n'


def check(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([os.path.join(ROOT, "scripts", "check-layers"), str(tmp_path)],
                          capture_output=True, text=True, timeout=60)


def tree(**changes):
    files = {"layers": LAYERS, "base/error.h": "int error_set(void);\n",
             "net/connect.h": '#include "base/error.h"\nint net_connect(void);\n',
             "net/connect.c": CONNECT,
             "net/http.h": '#include "net/connect.h"\nint net_http(void);\n', "net/http.c": HTTP}
    return {**files, **{name.replace("__", "/").replace("_", "."): text
                        for name, text in changes.items()}}


def test_dependencies_in_one_direction_pass(tmp_path):
    result = check(tmp_path, tree())
    assert result.returncode == 0, result.stdout


def test_an_include_upward_is_named(tmp_path):
    result = check(tmp_path, tree(base__error_h='#include "net/http.h"\n'))
    assert result.returncode == 1
    assert "src/base/error.h:1:" in result.stdout and "base may not include net" in result.stdout


@pytest.mark.parametrize("text, reason", [
    ('#include "net/http.h"\n' + CONNECT, "src/net/connect includes http.h of src/net/http"),
    (CONNECT.replace("return 0", "return net_http()"),
     "src/net/connect names net_http() of src/net/http")])
def test_a_circle_is_named_with_its_reasons(tmp_path, text, reason):
    """Also one of calls alone, which a header that declares everything would hide."""
    result = check(tmp_path, tree(net__connect_c=text))
    assert result.returncode == 1
    assert "depend on each other in a circle" in result.stdout and reason in result.stdout


@pytest.mark.parametrize("text", [
    CONNECT.replace("return 0", "return 0; /* as net_http() */"),
    CONNECT.replace("return 0", 'return sizeof "net_http()"'),
    CONNECT.replace("return 0", "return state.net_http")])
def test_a_name_that_is_no_use_makes_no_circle(tmp_path, text):
    """In a comment, in a text, and as a member after a dot."""
    assert check(tmp_path, tree(net__connect_c=text)).returncode == 0


def test_a_layer_with_circles_is_left_alone(tmp_path):
    files = tree(layers="base:\nnet: base\nacyclic: base\n",
                 net__connect_c=CONNECT.replace("return 0", "return net_http()"))
    assert check(tmp_path, files).returncode == 0
