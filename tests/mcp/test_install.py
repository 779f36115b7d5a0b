"""droste mcp install: the configurations of agents."""
import json
import os

import pytest

from droste_cli import DROSTE, droste

FILES = {"claude-code": ".claude.json", "cursor": ".cursor/mcp.json",
         "claude-desktop": ".config/Claude/claude_desktop_config.json",
         "gemini": ".gemini/settings.json", "windsurf": ".codeium/windsurf/mcp_config.json",
         "vscode": ".vscode/mcp.json", "project": ".mcp.json"}


def install(home, *words):
    return droste(home, "mcp", "install", *words)


@pytest.mark.parametrize("agent", FILES)
def test_an_agent_gets_an_entry(tmp_path, agent):
    """with the program's and the paths' absolute names, beside what the file has."""
    path = tmp_path / FILES[agent]
    key = "servers" if agent == "vscode" else "mcpServers"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"theme": "dark", key: {"other": {"command": "x"}}}))
    (tmp_path / "data").mkdir()
    done = install(tmp_path, agent, "data", "--", "--memory", "1G")
    assert done.returncode == 0, done.stderr
    assert FILES[agent] in done.stdout
    written = json.loads(path.read_text())
    assert written["theme"] == "dark" and written[key]["other"] == {"command": "x"}
    entry = written[key]["droste"]
    assert entry["command"] == os.path.realpath(DROSTE)
    assert entry["args"] == ["mcp", str(tmp_path / "data"), "--memory", "1G"]


def test_a_file_is_made_where_there_is_none(tmp_path):
    assert install(tmp_path, "cursor").returncode == 0
    entry = json.loads((tmp_path / ".cursor/mcp.json").read_text())["mcpServers"]["droste"]
    assert entry["args"] == ["mcp"]
    assert (tmp_path / ".cursor/mcp.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["{// a comment\n}", "[]", "", "{\"a\": "])
def test_a_file_that_is_not_plain_json_is_left(tmp_path, text):
    path = tmp_path / ".claude.json"
    path.write_text(text)
    done = install(tmp_path, "claude-code")
    assert done.returncode == 2
    assert "not plain JSON" in done.stderr and '"args"' in done.stderr
    assert path.read_text() == text


@pytest.mark.parametrize("words, says", [((), "expected an agent: claude-code"),
                                         (("curser",), "did you mean cursor?"),
                                         (("zzz",), "expected an agent")])
def test_an_agent_that_is_not_known_is_a_usage_error(tmp_path, words, says):
    done = install(tmp_path, *words)
    assert done.returncode == 2 and says in done.stderr
