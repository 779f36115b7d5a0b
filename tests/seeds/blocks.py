"""The Python in a page: its fenced blocks, or, where a page has lost fences and indentation, the programs
found by how they begin and end, with the indentation put back."""
import re

FENCE = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
BEGINS = re.compile(r"^(from \S+ import|import |interp(reter)? = |interp\.start|# Read local|rlm = RLM|config = |class |case )")
ENDS = re.compile(r"^\s*(await )?interp(reter)?\.shutdown\(\)")


def fenced(text):
    """(heading, language, code) of each block; one without a language that reads like Python is Python."""
    for found in FENCE.finditer(text):
        headings = re.findall(r"^#+ (.*)$|^(\w[\w \-]{2,40})$", FENCE.sub("", text[:found.start()]), re.MULTILINE)
        heading = next((a or b for a, b in reversed(headings)), "beginning")
        language, code = found.group(1), found.group(2)
        if not language and BEGINS.match(code):
            language = "python"
        yield heading.strip(), language, code


def flattened(text):
    """(heading, code) of each program of a page without fences: from how one begins to its shutdown."""
    heading, code = "beginning", []
    quoted = False
    for line in text.splitlines():
        if not code and not BEGINS.match(line):
            heading = line.strip() or heading
            continue
        code.append(line)
        if (line.count("'''") + line.count('"""')) % 2:
            quoted = not quoted
        whole = line == ")" and any(begun.startswith("rlm = RLM(") for begun in code)
        if not quoted and (whole or ENDS.match(line)):
            kept = any(other.startswith("    ") for other in code)
            yield heading, "\n".join(code) + "\n" if kept else indent(code)
            code = []


def indent(lines):
    """Bodies of `try` reach to `finally`; those of `with`, `finally` and the like are one line. What stands in a
    string of several lines is a program of its own."""
    out, within, quoted, body = [], 0, False, False
    for line in lines:
        if line.startswith("finally:"):
            within = 0
        inner = body and bool(line.strip())
        prefix = "    " * ((1 if inner else 0) if quoted else within + (1 if inner else 0))
        out.append(prefix + line if line.strip() else line)
        if line.count("'''") % 2:
            quoted, body = not quoted, False
            continue
        opens = re.match(r"^(with|for|while|if|finally|else|def) ?.*:\s*(#.*)?$", line) is not None
        if line.startswith("try:") and not quoted:
            within += 1
        body = opens
    return "\n".join(out) + "\n"


EXPECTED = re.compile(r"^\s*print\(.*?\)\s+#\s*(.+?)\s*$", re.MULTILINE)


def expected(code):
    """What the comments behind prints say that they print."""
    return EXPECTED.findall(code)
