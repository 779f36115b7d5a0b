"""The examples in the documentation work: each ```python block runs in a sandbox of its own."""
import json
import os
import re
import runpy
import shlex
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
PAGES = ["docs/guest.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")

# What the model of the examples says: the first line that fits, any number of times.
MODEL = [{"content": "FINAL(4)", "contains": "Submit a number.", "depth": 1, "repeat": True},
         {"content": "FINAL(yes)", "contains": "Turn 1 of", "depth": 1, "repeat": True},
         {"content": "4", "contains": "2 + 2", "depth": 1, "repeat": True},
         {"content": "yes", "depth": 1, "repeat": True}]

GUEST = """import builtins
ours = [name for name, value in vars(builtins).items()
        if getattr(value, "__module__", "") == "droste_guest"]
SUBMIT(names=sorted(ours))
"""


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as text:
        return text.read()


def blocks():
    for page in PAGES:
        text = read(page)
        for found in BLOCK.finditer(text):
            yield pytest.param(found[1], id="%s:%d"
                               % (page, text.count("\n", 0, found.start()) + 1))


@pytest.fixture
def execute(tmp_path):
    model = tmp_path / "model.jsonl"
    model.write_text("".join(json.dumps(line) + "\n" for line in MODEL))

    def run(code, *flags):
        result = subprocess.run(
            [DROSTE, "exec", "--json", "--model", "replay:%s" % model, "-c", code, *flags],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True,
            timeout=60)
        assert result.stdout, result.stderr
        return json.loads(result.stdout)
    return run


@pytest.mark.parametrize("code", blocks())
def test_an_example_runs(execute, code):
    result = execute(code)
    assert result["status"] in ("ok", "submitted"), result["error"]
    expected = re.findall(r"^print\(.*\) +# (.*)$", code, re.M)
    if expected:
        assert result["stdout"].splitlines() == expected


@pytest.mark.parametrize("code", blocks())
def test_an_example_runs_under_rules_unless_it_starts_a_process(execute, code):
    result = execute(code, "--rules", "yes")
    if "subprocess" in code or "start_background_process" in code:
        assert result["error"]["type"] in ("ImportError", "RuleError")
    else:
        assert result["status"] in ("ok", "submitted"), result["error"]


def test_every_name_of_the_guest_is_documented(execute):
    names = execute(GUEST)["submit"]["names"]
    assert len(names) > 10
    for page in PAGES:
        missing = [name for name in names if "`%s" % name not in read(page)]
        assert not missing, page


def documents():
    """All Markdown of the project: what stands beside the README, and docs/ with its
    directories."""
    found = [name for name in os.listdir(ROOT) if name.endswith(".md")]
    for place, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.relpath(os.path.join(place, name), ROOT) for name in names
                  if name.endswith(".md")]
    return sorted(found)


def anchors(text):
    """The headings of a page as a forge names them: small letters, no punctuation, hyphens for
    spaces."""
    found, fence = set(), False
    for line in text.splitlines():
        fence ^= line.startswith("```")
        heading = None if fence else re.match(r"#+ (.*)", line)
        if heading:
            bare = re.sub(r"<!--.*?-->|\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", bare).replace(" ", "-"))
    return found


def broken_links(page, text):
    """Links to files that do not exist, and to headings that the target does not have."""
    here = os.path.dirname(os.path.join(ROOT, page))
    for target, anchor in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        path = os.path.join(here, target) if target else os.path.join(ROOT, page)
        if not os.path.exists(path):
            yield target
        elif (anchor and path.endswith(".md")
              and anchor not in anchors(read(os.path.relpath(path, ROOT)))):
            yield "%s#%s" % (target, anchor)


@pytest.mark.parametrize("page", documents())
def test_links_lead_somewhere(page):
    """Each link within the repository leads to a file, and to a heading in it where it names
    one."""
    assert list(broken_links(page, read(page))) == []


@pytest.mark.parametrize("link, broken", [
    ("docs/guest.md", False), ("docs/nowhere.md", True), ("docs/guest.md#tools", False),
    ("docs/guest.md#nothing", True), ("#license", True), ("https://example.org/#x", False)])
def test_a_broken_link_is_found(link, broken):
    """The check of links finds what is broken, and nothing else."""
    assert bool(list(broken_links("README.md", "See [this](%s)." % link))) == broken


def test_the_record_is_described_as_it_is():
    """Each table of schema.c with all its columns, in order."""
    page, schema = read("docs/internals/record-tables.md"), read("src/store/schema.c")
    for name, body in re.findall(r'CREATE TABLE (\w+) \("(.*?)\) STRICT', schema, re.S):
        columns = re.findall(r'"  (\w+) (?:TEXT|INTEGER|REAL|BLOB)', body)
        columns += re.findall(r"ALTER TABLE %s ADD COLUMN (\w+)" % name, schema)
        (row,) = re.findall(r"^\| `%s` \|.*" % name, page, re.M)
        assert re.findall(r"`(\w+)`", row.rpartition(" | ")[2]) == columns


def test_the_figures_have_one_source():
    """The documents say what docs/figures.json says; docs/make-figures writes them."""
    done = subprocess.run([os.path.join(ROOT, "docs", "make-figures"), "--check"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text, found", [
    ("A cell took 40 µs.", ["a.md:1: '40 µs'"]),
    ("One line,\nthen 1.5 MiB each.", ["a.md:2: '1.5 MiB'"]),
    ("It is 3.1 times as long.", ["a.md:1: '3.1 times'"]), ("It is ×13 here.", ["a.md:1: '×13'"]),
    ("<!-- figure: docker.cell -->0.40 ms<!-- end -->", []), ("A message has 64 MiB.", []),
    ("<!-- figures: docker -->\n| 3 ms |\n<!-- figures: end -->", []), ("```\n3 ms\n```", []),
    ("It looks every 10 ms.", [])])
def test_a_figure_without_a_source_is_found(text, found):
    """What looks like a measurement is generated, or listed as stated; limits and code may stay."""
    figures = runpy.run_path(os.path.join(ROOT, "docs", "make-figures"))
    assert list(figures["unsourced"]("a.md", text, ["10 ms"])) == found


def test_every_environment_is_named_where_it_is_chosen(tmp_path):
    """The setting's row, the page of environments and the manual name all that `droste env ls`
    has."""
    output = subprocess.run([DROSTE, "env", "ls", "--json"],
                            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                            capture_output=True, text=True, timeout=60, check=True).stdout
    names = [environment["name"] for environment in json.loads(output)]
    assert len(names) >= 6
    (row,) = re.findall(r"^\| `env` \|.*", read("docs/configuration.md"), re.M)
    for name in names:
        assert "`%s`" % name in row and "`%s`" % name in read("docs/environments.md"), name
        assert name in read("docs/droste.1"), name


def test_every_command_is_on_its_page(tmp_path):
    """Its table has all commands of the program's own overview, and no others."""
    output = subprocess.run([DROSTE, "--help"], capture_output=True, text=True, timeout=60,
                            check=True).stdout
    table = read("docs/cli.md").partition("| command | what it does |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z-]+)`",
                           " ".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert named == set(re.findall(r"^  ([a-z-]+) +\S", output, re.M))


TROUBLE = re.compile(r"^### `([^\n]*)`\n(.*?)(?=^##|\Z)", re.M | re.S)
COMMAND = re.compile(r"^```console\n\$ droste (.*)\n```$", re.M)


def troubles(provoked):
    for heading, text in TROUBLE.findall(read("docs/troubleshooting.md")):
        command = COMMAND.search(text)
        if provoked == bool(command):
            yield pytest.param(heading, *([command[1]] if provoked else []), id=heading[:60])


def pieces(heading):
    return [piece.strip() for piece in heading.split("…") if piece.strip(" ;:'.")]


@pytest.mark.parametrize("heading, command", troubles(True))
def test_an_error_reads_as_the_page_says(heading, command, tmp_path):
    """Each command of the page fails, and its words are those of the heading, in their order."""
    done = subprocess.run([DROSTE, *shlex.split(command)],
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                          cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0
    output, at = done.stdout + done.stderr, 0
    for piece in pieces(heading):
        assert piece in output[at:], (piece, output)
        at = output.index(piece, at) + len(piece)


@pytest.mark.parametrize("heading", troubles(False))
def test_a_trouble_that_is_not_provoked_is_in_the_program(heading):
    """The headings without a command are still what the sources say: each piece between what
    differs."""
    text = ""
    for top in ("src", "guest", "python"):
        for place, _, names in os.walk(os.path.join(ROOT, top)):
            text += "".join(read(os.path.join(place, name)) for name in names
                            if name.endswith((".c", ".py")))
    joined = re.sub(r'"\s*\n?\s*"', "", text)
    plain = re.sub(r"%[-+ 0-9.*]*(?:ll|z|h)?[a-z]", "…", joined)
    for value in ("'full'", "401", "Prime", "PRIME_API_KEY"):
        heading = heading.replace(value, "…")
    for piece in pieces(heading):
        for part in pieces(piece):
            assert part in plain or part in OF_PYTHON, part


# What the C library or Python says of an errno.
OF_PYTHON = ("Resource temporarily unavailable",)


def test_the_table_of_features_is_what_the_program_says():
    """docs/environments.md, row by row."""
    def program(*words):
        return subprocess.run([DROSTE, *words], capture_output=True, text=True, check=True).stdout

    names = [line.split()[0] for line in program("env", "ls").splitlines()]
    features = {name: json.loads(program("env", "show", name, "--json")) for name in names}
    expected = ["| feature | settings | %s |" % " | ".join("`%s`" % name for name in names),
                "| --- | --- |" + " --- |" * len(names)]
    for i, row in enumerate(features[names[0]]):
        settings = ", ".join("`%s`" % word for word in row["settings"].split())
        expected.append("| %s | %s | %s |" % (row["feature"], settings, " | ".join(
            "yes" if features[name][i]["supported"] else "no" for name in names)))
    page = read("docs/environments.md")
    start = page.index("| feature | settings |")
    assert page[start:].splitlines()[:len(expected)] == expected
