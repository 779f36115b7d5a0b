"""Three machines with three NATS servers, which are broken while they work (chaos.py)."""
import pytest

from chaos import chaos, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_each_run_has_one_end_whatever_is_cut_off_lost_filled_or_skewed(tmp_path):
    faults = ["machine_lost", "deaf", "disk_full", "clock"]
    figures = chaos(tmp_path, 100, 5, (0, 0.2), faults)
    assert set(figures["faults"]) <= set(faults) and len(figures["faults"]) >= 3
    assert figures["cells"] > 0
