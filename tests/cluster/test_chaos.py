"""Three machines with three NATS servers, which are broken while they work (chaos.py)."""
import pytest

from chaos import chaos, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_each_run_has_one_end_though_machines_are_lost_and_cut_off(tmp_path):
    faults = ["machine_lost", "deaf"]
    figures = chaos(tmp_path, 24, 5, (0, 0.2), faults)
    assert set(figures["faults"]) == set(faults)
