"""Row codecs: what happens to boundary (halo) rows on their way from one agent to another, joined by name in one table.

The code is organised as follows:
    codec        the row codec seam: encode, decode, bytes of a row
    quantised    stochastic quantisation to 16 or 8 bits

A new codec is one file here and one line in ROW_CODECS.
"""

from gossamer.agents.quantisation import Quantiser
from gossamer.agents.row_codecs.codec import RowCodec
from gossamer.agents.row_codecs.quantised import StochasticQuantisation

ROW_CODECS: dict[str, RowCodec] = {
    "quantised-16": StochasticQuantisation(Quantiser(16)),
    "quantised-8": StochasticQuantisation(Quantiser(8)),
}

__all__ = ["ROW_CODECS", "RowCodec", "StochasticQuantisation"]
