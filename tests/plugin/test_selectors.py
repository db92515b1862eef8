"""Every selector behind the callback, on a real Trainer."""

import pytest
from torch import nn

from lightning_diffal import ActiveLearning
from tests.plugin.workshop import Data, Net, quiet
from tests.selectors.test_contract import SELECTORS


class Forgetful(Net):
    def __init__(self):
        super().__init__()
        self.backbone.append(nn.Dropout(0.5))


# The last of each kind: with dropout where there is a choice, and without.
ONE_OF_EACH = {type(selector): selector for selector in SELECTORS}.values()


@pytest.mark.parametrize("selector", ONE_OF_EACH, ids=repr)
def test_the_second_fit_trains_on_what_it_asked_for(selector, tmp_path):
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=selector)
    assert active.fit(quiet(tmp_path, active), Forgetful(), datamodule=Data()).labels == [9, 17]
