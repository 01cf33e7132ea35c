"""One thread for each test process, so that tests run side by side without getting in each other's way."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
# No deadline, because CI's machines are noisy; the same examples on every run.
settings.register_profile("gossamer", deadline=None, derandomize=True, database=None)
settings.load_profile("gossamer")
