"""What test_roots.py runs in a root: a session of the program's own interpreter with a tool, and a
run with a recorded model, whose input it leaves for the command."""
import sys

import droste

with open("two.txt", "w") as file:
    file.write("one\ntwo\n")
with open("recorded.jsonl", "w") as file:
    file.write('{"content": "```repl\\nSUBMIT(answer=len(context.splitlines()))\\n```"}\n')
with droste.Interpreter(tools={"double": lambda n: 2 * n}) as interp:
    result = interp.execute("import sys; x = double(21); SUBMIT(at=sys.prefix, x=x)")
    assert result.x == 42 and result.at == sys.prefix
    print(result.at)
print(droste.RLM("replay:recorded.jsonl",
                 database="none").run("How many lines?", "one\ntwo\n").answer)
