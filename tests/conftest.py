"""One thread for each test process, so that tests run side by side without getting in each other's way."""

import torch

torch.set_num_threads(1)
