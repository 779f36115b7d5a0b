"""The site of the documentation: built without a network, searchable, and without a dead link."""
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build(target, source=None):
    """scripts/docs over the repository, or Sphinx with the same configuration over another tree."""
    if source is None:
        command = [os.path.join(ROOT, "scripts", "docs"), str(target)]
    else:
        command = ["/usr/bin/python3", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html",
                   "-c", os.path.join(ROOT, "docs"), str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "http_proxy": "http://127.0.0.1:9",
                               "https_proxy": "http://127.0.0.1:9", "PYTHONDONTWRITEBYTECODE": "1"})
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    return done


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site") / "site"
    done = build(target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_is_on_the_site(site):
    """Each document of docs/, and the three beside the README, is a page; index.html leads in."""
    pages = ["README", "SECURITY", "CONTRIBUTING", "CHANGELOG"]
    for place, _, names in os.walk(os.path.join(ROOT, "docs")):
        pages += [os.path.relpath(os.path.join(place, name), ROOT)[:-3]
                  for name in names if name.endswith(".md")]
    assert len(pages) > 15
    assert [page for page in pages if not (site / (page + ".html")).exists()] == []
    assert "docs/index.html" in (site / "index.html").read_text()


def test_the_site_can_be_searched(site):
    """The index has the pages and their words; the reader's browser searches it."""
    index = (site / "searchindex.js").read_text()
    assert '"docs/environments"' in index and "landlock" in index


def test_the_site_needs_no_other_server(site):
    """No page loads a script, a style or a picture from elsewhere."""
    for place, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html"):
                with open(os.path.join(place, name), encoding="utf-8") as page:
                    text = page.read()
                assert not re.search(r"<(?:script|img|link)[^>]+(?:src|href)=\"(?:https?:)?//",
                                     text), name


@pytest.mark.parametrize("link, works", [
    ("other.md", True), ("nowhere.md", False), ("other.md#a-heading", True),
    ("other.md#no-heading", False), ("#no-heading-here", False)])
def test_a_broken_link_fails_the_build(tmp_path, site, link, works):
    """Links to a page and to a heading, each with its twin that leads nowhere."""
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "index.md").write_text(
        "# Start\n\n[a link](%s)\n\n```{toctree}\nother\n```\n" % link)
    (source / "docs" / "other.md").write_text("# Other\n\n## A heading\n\nText.\n")
    done = build(tmp_path / "site", source)
    assert (done.returncode == 0) == works, done.stderr
