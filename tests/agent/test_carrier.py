"""Which way a model's tensors go to the slots, by the device that it lies on."""

from __future__ import annotations

import pytest
import torch

from mpca.agent.carrier import carrier_for


@pytest.mark.parametrize("device", ["meta", "mps", "xpu"])
def test_a_device_that_no_way_leads_to_is_refused_by_name(device: str) -> None:
    with pytest.raises(ValueError, match=f"models on {device} cannot be exchanged: device={device}; use cpu or cuda"):
        carrier_for(torch.device(device), 10)
