"""The pages of the seeds, read as a reader reads them: their blocks of code in order, and the rows
of their tables and lists.

Two pages (000 and 004) are Markdown. The others lost their fences when they were copied, and one of
them (001) its indentation, too: there a block is found by how it begins and ends, and indentation,
which Python cannot do without, is put back. Nothing else of a block is changed, but for lines that
say `...`: they stand for arguments that the page leaves to its reader, and no Python can read them
behind keywords. `Block.printed` is what the page has, `Block.code` what is run.
"""
import glob
import os
import re
import typing

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIRECTORY = os.path.join(os.path.dirname(ROOT), "shared", "seeds")
NUMBERS = ("000", "001", "002", "003", "004")
MISSING = "the folder shared/seeds is not beside this checkout"

FENCE = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
BEGINS = re.compile(r"(from \S+ import|import \w+$|interp(reter)? = |interp\.start|# Read "
                    r"local|rlm = RLM|uv run|uv pip)")
ENDS = re.compile(r"\s*(await )?interp(reter)?\.shutdown\(\)")
SHELL = re.compile(r"(uv|pip|modal|docker) ")


class Block(typing.NamedTuple):
    page: str
    number: int         # of the page's blocks of this language
    heading: str
    language: str
    printed: str
    code: str

    @property
    def name(self):
        return "%s-%s-%d" % (self.page, self.language, self.number)


class Row(typing.NamedTuple):
    """Of a table or list: where it stands, its first cell or its beginning, and all of its
    cells."""
    page: str
    section: str
    name: str
    cells: typing.Tuple[str, ...]

    @property
    def key(self):
        return "%s %s: %s" % (self.page, self.section, self.name)


def read(page):
    """The text of a page; None where the pages are not there."""
    found = glob.glob(os.path.join(DIRECTORY, page + "_*.txt"))
    if not found:
        return None
    with open(found[0], encoding="utf-8") as file:
        return file.read()


# ---- blocks

def without_ellipsis(text):
    """`...` alone on a line among keyword arguments is not Python; it stands for what the reader
    has there."""
    return re.sub(r"^ *\.\.\.\n", "", text, flags=re.MULTILINE)


def fenced(text):
    heading, at = "", 0
    for found in FENCE.finditer(text):
        headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text[at:found.start()]), re.MULTILINE)
        heading, at = (headings or [heading])[-1], found.end()
        yield heading, found.group(1), found.group(2)


def unfenced(text):
    """(heading, language, lines) of each block of a page that has no fences: from how one begins to
    how it ends."""
    heading, code, quoted = "", [], False
    for line in text.splitlines():
        if not code and not BEGINS.match(line):
            heading = line.strip() or heading
            continue
        code.append(line)
        if (line.count("'''") + line.count('"""')) % 2:
            quoted = not quoted
        if SHELL.match(code[0]):
            if not SHELL.match(line) and not line.startswith("#"):
                if line.strip():        # what comes next begins at once
                    yield heading, "bash", code[:-1]
                    code = [line]
            elif line.startswith(("modal", "uv run")):
                yield heading, "bash", code
                code = []
            continue
        ends = ENDS.match(line) or (line == ")"
                                    and any(begun.startswith("rlm = RLM(") for begun in code))
        if ends and not quoted:
            yield heading, "python", code
            code = []
    assert not code, "a block without an end: %r" % code


def indent(lines):
    """The lines of a block of page 001 with their indentation, which that page has lost. Bodies of
    `try` reach to `finally`; all others on this page (`with`, `finally`) are one line. What stands
    in a string of several lines is a program of its own."""
    out, depth, quoted, body = [], 0, False, False
    for line in lines:
        if line == "finally:":
            depth = 0
        inside = 0 if quoted else depth
        if line.strip() and (body or (not quoted and is_argument(line))):
            inside += 1
        out.append("    " * inside + line if line.strip() else line)
        if line.count("'''") % 2:
            quoted, body = not quoted, False
            continue
        if line == "try:" and not quoted:
            depth += 1
            continue
        body = re.match(r"(with .*|finally):$", line) is not None
    return out


def is_argument(line):
    """Of a call over several lines."""
    return re.match(r"\w+=.*,$", line) is not None


def blocks(page):
    """Those of a page, in its order."""
    text = read(page)
    if text is None:
        return []
    if "```" in text:
        found = [(heading, language, body) for heading, language, body in fenced(text) if language]
    else:
        found = [(heading, language, "\n".join(lines) + "\n")
                 for heading, language, lines in unfenced(text)]
    made, counts = [], {}
    for heading, language, printed in found:
        counts[language] = counts.get(language, 0) + 1
        code = printed
        if language == "python":
            code = "\n".join(
                indent(printed.splitlines())) + "\n" if page == "001" else without_ellipsis(printed)
        made.append(Block(page, counts[language], heading, language, printed, code))
    return made


def python_blocks(page):
    return [block for block in blocks(page) if block.language == "python"]


EXPECTED = re.compile(r"^\s*print\(.*?\)\s+#\s*(.+?)\s*$", re.MULTILINE)


def expected(code):
    """What the comments behind prints say that they print."""
    return EXPECTED.findall(code)


# ---- rows

def rows(page):
    """All rows of a page's tables and lists that say what the runtime does."""
    text = read(page)
    if text is None:
        return []
    found = {"000": markdown_rows, "001": points_of_001, "002": rows_of_002, "003": rows_of_003,
             "004": markdown_rows}[page]
    return [Row(page, section, name_of(words), cells) for section, words, cells in found(text)]


def name_of(words):
    """The beginning, without what is not a plain letter."""
    return re.sub(r"[^ -~]+", "", words[:60]).strip()


def plain(text):
    return text.replace("`", "").replace("**", "").strip()


#: sections that advise whom something is for, or point elsewhere
ADVICE = ("Best For", "See Also", "Choosing", "Best For (Planned)")


def markdown_rows(text):
    above = {}
    head = False
    for line in FENCE.sub("", text).splitlines():
        heading = re.match(r"(#+) (.*)", line)
        if heading:
            level = len(heading.group(1))
            above = {n: h for n, h in above.items() if n < level}
            above[level] = heading.group(2)
        section = " / ".join(h for n, h in sorted(above.items()) if n > 1)
        if any(h.startswith(ADVICE) for h in above.values()):
            continue
        cells = tuple(plain(cell) for cell in line.strip().strip("|").split(
            "|")) if line.startswith("|") else ()
        if not cells:
            head = False
        elif not head:
            head = True
        elif not set(cells[0]) <= set("-: "):
            yield section, cells[0], cells
        item = re.match(r"(?:[-*]|\d+\.) (.*)|\*\*(.*)\*\*:$", line)
        if item:
            words = plain(item.group(1) or item.group(2))
            yield section, shortened(words), (words,)


def shortened(words):
    return re.split(r"[:,(] ?", words)[0].strip()[:60] if len(words) > 60 else words


def points_of_001(text):
    """The list has lost its line ends, and one of its marks."""
    part = re.search(r"^Key Points\n(.*?)^Multi-Step Pipeline", text,
                     re.DOTALL | re.MULTILINE).group(1)
    joined = part.replace("\n", " ").replace('notresult["field"] ', 'not result["field"]\n- ')
    joined = re.sub(r" ?- (?=[A-Z])", "\n- ", joined).strip()
    for line in joined.splitlines():
        words = line[2:].strip() if line.startswith("- ") else line.strip()
        yield "Key Points", words, (words,)


def rows_of_002(text):
    section = ""
    table = False
    for line in text.splitlines():
        if line.startswith("Parameter Default"):
            table = True
        elif table and line.strip():
            name, default, meaning = line.split(None, 2)
            yield "DaytonaInterpreter", name, (name, default, meaning)
        elif line.strip().startswith("\u2022"):
            words = line.strip()[1:].strip()
            if section != "See Also":
                yield section, words, (words,)
        if line.strip() and not table and not line.startswith(" "):
            section = line.strip()
        if not line.strip() and table and section == "rows":
            table = False
        if table and re.match(r"\w+ \S+ ", line):
            section = "rows"


ARGUMENT = re.compile(
    r"(\w+?)(str \| dict \| list|modal\.Image|str|int|tuple)(\"[^\"]*\"|\d+|Auto|None)([A-Z].*)$")


def rows_of_003(text):
    section = ""
    for line in text.splitlines():
        argument, step = ARGUMENT.match(line), re.match(r"  (\d)\. (.*)", line)
        if argument and section == "Arguments":
            yield section, argument.group(1), argument.groups()
        elif step:
            yield section, step.group(2), (step.group(2),)
        elif line.startswith("Includes: "):
            yield section, "Includes", tuple(line[len("Includes: "):].split(", "))
        elif re.match(r"[A-Z][\w ]{3,30}$", line) and not line.startswith("ArgumentType"):
            section = line
