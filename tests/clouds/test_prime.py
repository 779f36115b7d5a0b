import pytest

import connect_fake


@pytest.fixture(scope="session")
def fake():
    if connect_fake.missing():
        pytest.skip(connect_fake.missing())
    running = connect_fake.Fake("prime")
    yield running
    running.close()


def test_the_fake_is_driven_by_the_vendors_own_sdk(fake):
    """The whole life-cycle, with errors, an expired token and a cut, by the SDK from PyPI."""
    assert connect_fake.run_sdk("prime", fake) == "all\n"
    assert not fake.running()
