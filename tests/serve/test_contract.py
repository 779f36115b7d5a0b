"""The server's OpenAPI document, as schemathesis reads it: no answer may contradict it.

contract.toml names the operations of which a request may fit its schema and be refused with 400.
"""
import os
import re
import subprocess

import pytest

from server_process import ROOT, Server

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "contract", "bin", "schemathesis")
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
          "unsupported_method,positive_data_acceptance")


def failures(report):
    """The parts of a report that say what failed, without the rest of long lines."""
    found = re.search(r"^=+ (ERRORS|FAILURES) =+$.*?(?=^=+ (WARNINGS|SUMMARY) =+$|\Z)", report,
                      re.M | re.S)
    return "\n".join(line[:500] for line in (found[0] if found else report).splitlines()[:200])


@pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="no schemathesis in build/contract: "
                    "scripts/setup contract")
def test_no_answer_contradicts_the_document(tmp_path):
    server = Server(tmp_path, "--idle", "60", "--max-sandboxes", "100")
    try:
        done = subprocess.run(
            [PROGRAM, "--config-file", os.path.join(HERE, "contract.toml"),
             "run", server.address + "/openapi.json", "--checks", CHECKS, "--no-color", "--phases",
             "coverage,fuzzing", "--max-examples", "5", "--generation-deterministic",
             "--include-path-regex",
             "^/(v1/(sandboxes|runs|batches|volumes|contexts|templates)|health|ready|metrics)"],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, cwd=str(tmp_path), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        if done.returncode != 0:
            pytest.fail(failures(done.stdout), pytrace=False)
        assert server.ask("GET", "/health").status == 200
    finally:
        server.stop()
