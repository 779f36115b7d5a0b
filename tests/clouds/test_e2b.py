"""The environment e2b against its fake, which the vendor's own SDK drives through the same life in
the same run."""
import pytest

import connect_fake
import connect_shared
from connect_shared import *        # noqa: F401, F403: the tests that are the same for both
from connect_shared import box_of, droste
from same_checks import wait_until

fake = connect_shared.fake_of("e2b")


def test_the_fake_is_driven_by_the_vendors_own_sdk(fake):
    """The whole life-cycle, with errors and losses, by the SDK from PyPI."""
    assert connect_fake.run_sdk("e2b", fake) == "all\n"
    assert not fake.running()


def test_the_sandbox_is_what_was_asked_for(fake, opened):
    """Each setting reaches what it names; the network is blocked unless it is asked for, and a
    limit in time is always set."""
    interp = opened()
    asked = box_of(fake)[1]["asked"]
    assert asked["templateID"] == "base" and asked["allow_internet_access"] is False and asked[
        "timeout"] == 900
    assert asked["metadata"]["droste"] == "1"
    interp.shutdown()
    interp = opened(image="code-interpreter-v1", label=["who=me"], network_allow=["example.org"],
                    idle_timeout=60)
    asked = box_of(fake)[1]["asked"]
    assert asked["templateID"] == "code-interpreter-v1" and asked["metadata"][
        "who"] == "me" and asked["timeout"] == 60
    assert asked["network"] == {"allowOut": ["example.org"], "denyOut": ["0.0.0.0/0"]}
    interp.shutdown()
    opened(network="open")
    assert box_of(fake)[1]["asked"]["allow_internet_access"] is True


def test_its_life_is_prolonged_while_its_host_is_there(fake, opened):
    """A sandbox that ends some seconds behind its host ends later and later while that is there."""
    def model(messages):
        return str(wait_until(lambda: box_of(fake)[1]["ends"] > first + 4))

    interp = opened(idle_timeout=9, model=model)
    first = box_of(fake)[1]["ends"]
    assert interp.execute("print(llm_query('is it?'))").stdout == "True\n"


def test_a_template_that_is_none_says_so(fake):
    with pytest.raises(droste.Error, match="template 'nothing' not found"):
        droste.Interpreter(env="e2b", image="nothing").execute("1")


def test_a_sandbox_that_is_kept_is_found_again(fake, opened):
    """It is paused with its files, and another session goes on in it by its id; the program of the
    first one is gone."""
    interp = opened(on_close="stop")
    assert interp.execute("open('/tmp/kept', 'w').write('kept')").ok
    count = ("import os\nprint(sum(b'supervise' in open('/proc/%s/cmdline' % p, "
             "'rb').read() for p in os.listdir('/proc') if p.isdigit()))")
    before = interp.execute(count).stdout
    ident, _ = box_of(fake)
    interp.shutdown()
    assert fake.state()["sandboxes"][ident]["status"] == "paused"
    again = opened(sandbox=ident)
    assert again.execute("print(open('/tmp/kept').read())").stdout == "kept\n"
    assert again.execute(count).stdout == before, "the first program is still there"
    assert box_of(fake)[0] == ident
