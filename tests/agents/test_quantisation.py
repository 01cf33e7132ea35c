"""Numbers in 16, 8 or 4 bits: as near as the scale allows, unbiased with noise, and finite whatever arrives."""

import pytest
import torch
from torch import Tensor

from gossamer.agents.quantisation import Quantiser

BITS = [16, 8, 4]
WIDTHS = [1, 2, 3, 7, 16]
SMALLEST, LARGEST = 2.0**-32, 2.0**31.75  # scales


def scale_of(codes: Tensor) -> Tensor:
    """What the last byte stands for, by the definition."""
    return 2.0 ** (codes[..., -1:].double() / 4 - 32)


def rows_of(width: int, *, count: int = 200, seed: int = 0) -> Tensor:
    """Rows of all sizes between 1e-6 and 1e6."""
    random = torch.Generator().manual_seed(seed)
    size = 10 ** (12 * torch.rand(count, 1, dtype=torch.float64, generator=random) - 6)
    return size * torch.randn(count, width, dtype=torch.float64, generator=random)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", WIDTHS)
def test_an_error_is_at_most_half_a_step_and_no_finer_scale_would_do(bits: int, width: int) -> None:
    quantiser, rows = Quantiser(bits), rows_of(width)
    codes = quantiser.encode(rows)
    assert codes.dtype == torch.uint8
    assert codes.shape == (len(rows), quantiser.num_code_bytes(width))
    scale = scale_of(codes)
    assert ((quantiser.decode(codes, width, torch.float64) - rows).abs() <= scale / 2 * (1 + 1e-9)).all()
    finest = rows.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    assert (scale >= finest * (1 - 1e-12)).all()
    assert (scale < finest.clamp_min(SMALLEST) * 2**0.25 * (1 + 1e-12)).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whole_multiples_come_back_exactly(bits: int, dtype: torch.dtype) -> None:
    levels = 2 ** (bits - 1) - 1
    random = torch.Generator().manual_seed(1)
    whole = torch.randint(-levels, levels + 1, (30, 7), generator=random).to(dtype)
    whole[:, 3] = levels * (1 - 2 * (torch.arange(30) % 2))  # so that the scale is the unit
    rows = whole * 2.0 ** torch.arange(-15, 15, dtype=dtype)[:, None]
    assert torch.equal(Quantiser(bits).decode(Quantiser(bits).encode(rows), 7, dtype), rows)


@pytest.mark.parametrize("bits", BITS)
def test_several_axes_and_any_layout_of_memory_give_the_same_codes(bits: int) -> None:
    quantiser, rows = Quantiser(bits), rows_of(5, count=12)
    codes = quantiser.encode(rows)
    assert torch.equal(quantiser.encode(rows.T.contiguous().T), codes)
    assert torch.equal(quantiser.encode(rows.view(3, 2, 2, 5)), codes.view(3, 2, 2, -1))
    decoded = quantiser.decode(codes, 5, torch.float64)
    within = torch.cat([codes[:, :1], codes], dim=1)[:, 1:]  # not at the beginning of its memory
    assert torch.equal(quantiser.decode(within, 5, torch.float64), decoded)
    assert torch.equal(quantiser.decode(within[:1], 5, torch.float64), decoded[:1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0), (4, 3)])
def test_nothing_and_zeros_stay_what_they_are(bits: int, shape: tuple[int, int]) -> None:
    quantiser = Quantiser(bits)
    codes = quantiser.encode(torch.zeros(shape))
    assert codes.shape == (shape[0], quantiser.num_code_bytes(shape[1]))
    assert torch.equal(quantiser.decode(codes, shape[1], torch.float32), torch.zeros(shape))


@pytest.mark.parametrize("scale", [0, 128, 255])
@pytest.mark.parametrize(("bits", "integers"), [(16, (0x00, 0x80)), (8, (0x80, 0x80)), (4, (0x00, 0x70))])
def test_the_bound_holds_for_the_integer_that_no_encoder_sends(
    bits: int, integers: tuple[int, int], scale: int
) -> None:
    """-32768 (0x8000, little endian), -128 (0x80) and -8 (nibble 0) have no positive counterpart."""
    quantiser, levels = Quantiser(bits), 2 ** (bits - 1) - 1
    codes = torch.tensor([[*integers, scale]], dtype=torch.uint8)
    for dtype in (torch.float32, torch.float64):
        found = quantiser.decode(codes, 16 // bits, dtype)
        assert float(found.abs().max()) <= quantiser.bound_magnitude(codes) * (1 + 1e-6 * (dtype == torch.float32))
        torch.testing.assert_close(found[0, 0].double(), -levels * scale_of(codes)[0, 0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", BITS)
def test_numbers_beyond_all_scales_are_the_nearest_that_there_are(bits: int) -> None:
    quantiser, levels = Quantiser(bits), 2 ** (bits - 1) - 1
    rows = torch.tensor([[1e300, -1e300, 0.0], [1e-300, -1e-300, 0.0]], dtype=torch.float64)
    huge, tiny = quantiser.decode(quantiser.encode(rows), 3, torch.float64)
    torch.testing.assert_close(huge, levels * LARGEST * rows[0].sign(), rtol=1e-12, atol=0)
    assert torch.equal(tiny, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("bits", BITS)
def test_with_noise_the_mean_is_the_number_and_no_draw_is_a_step_away(bits: int) -> None:
    quantiser, draws = Quantiser(bits), 40_000
    row = torch.tensor([0.3, -1.7, 0.0, 2.0, -0.01], dtype=torch.float64)
    noise = torch.rand(draws, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    codes = quantiser.encode(row.expand(draws, 5), noise)
    found, scale = quantiser.decode(codes, 5, torch.float64), float(scale_of(codes)[0])
    assert (found - row).abs().max() < scale
    assert (found.mean(0) - row).abs().max() <= 5 * 0.5 * scale / draws**0.5  # five standard deviations
    assert ((quantiser.decode(quantiser.encode(row), 5, torch.float64) - row).abs() > 0.02 * scale).any()  # the nearest


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", WIDTHS)
def test_whatever_arrives_is_finite(bits: int, width: int) -> None:
    quantiser = Quantiser(bits)
    length = quantiser.num_code_bytes(width)
    codes = torch.randint(0, 256, (500, length), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
    codes = torch.cat([codes, torch.full((1, length), 255).to(torch.uint8), torch.zeros(1, length).to(torch.uint8)])
    for dtype in (torch.float32, torch.float64):
        found = quantiser.decode(codes, width, dtype)
        assert found.shape == (502, width)
        assert found.abs().max() <= 2 ** (bits - 1) * LARGEST * 1.0001
        assert torch.isfinite(found).all()


def test_the_length_of_a_row_is_its_bits_and_a_byte() -> None:
    lengths = {bits: [Quantiser(bits).num_code_bytes(width) for width in (0, 1, 2, 3, 64)] for bits in BITS}
    assert lengths == {16: [1, 3, 5, 7, 129], 8: [1, 2, 3, 4, 65], 4: [1, 2, 2, 3, 33]}
