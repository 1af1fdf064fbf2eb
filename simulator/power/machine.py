"""Power model of one inference server: the draw of a phase at full clock, its duration, and the cost of a limit.

Power above idle is proportional to the clock to the power of 1.3, prompt speed to 0.9 and token speed to 0.2. So a
limit is one number, the *share* of a phase's power above idle that it leaves. The speed is that share to the power of
0.9 / 1.3 or 0.2 / 1.3. A clock locked at a fraction f of the highest leaves f ** 1.3 to every phase; a limit in watts
leaves what fits.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, column

POWER_EXPONENT = 1.3
"""Power above idle ∝ clock ** 1.3. Chosen: published fits are between 1.0 and 2.5; see docs/power-simulation.md."""
PROMPT_EXPONENT = 0.9
"""Prompt speed ∝ clock ** 0.9: computing prompts is compute-bound."""
TOKEN_EXPONENT = 0.2
"""Token speed ∝ clock ** 0.2: generating tokens is memory-bound (DVFS on A100: -37 % energy at -1.8 % time)."""


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A server whose GPUs work as one instance of a model. Watts are those of the whole server at its plug."""

    name: str
    gpus: int
    gpu_tdp_w: float
    other_w: float
    """Constant draw independent of the GPUs: fans at rest, CPUs, memory, network."""
    watts_per_gpu_watt: float
    """Plug watts per GPU watt: above 1 because of fans and losses of the supply."""
    idle_share: float
    """Fraction of the GPUs' TDP when idle."""
    highest_mhz: float
    lowest_mhz: float
    """Lowest clock; a limit in watts that would need a lower one is not kept."""
    prompt_tokens: FloatArray
    """Points of the next two tables, ascending."""
    prompt_s: FloatArray
    prompt_share: FloatArray
    """Fraction of the GPUs' TDP while a prompt of that length is computed."""
    batch: FloatArray
    """Points of the next two tables, ascending, from 1."""
    token_s: FloatArray
    """Time for one token of every request in the batch."""
    token_share: FloatArray

    @property
    def _tdp_w(self) -> float:
        """Plug watts for all GPUs at TDP."""
        return self.gpus * self.gpu_tdp_w * self.watts_per_gpu_watt

    @property
    def idle_w(self) -> float:
        return self.other_w + self._tdp_w * self.idle_share

    @property
    def highest_w(self) -> float:
        """Highest draw in any phase at full clock."""
        return self.other_w + self._tdp_w * float(max(self.prompt_share.max(), self.token_share.max()))

    @property
    def least_share(self) -> float:
        """Fraction of a phase's power above idle that the lowest clock leaves."""
        return float((self.lowest_mhz / self.highest_mhz) ** POWER_EXPONENT)

    @property
    def floor_w(self) -> float:
        """Draw of the phase with the highest power at the lowest clock: no limit guarantees less."""
        return self.idle_w + self.least_share * (self.highest_w - self.idle_w)

    def prompt_seconds(self, tokens: FloatArray) -> FloatArray:
        """Time to compute prompts of these tokens at full clock; linear between the points on log scales."""
        return np.exp(np.interp(np.log(tokens), np.log(self.prompt_tokens), np.log(self.prompt_s)))

    def prompt_swing_w(self, tokens: FloatArray) -> FloatArray:
        """Power above idle while prompts of these tokens are computed at full clock."""
        share = np.interp(np.log(tokens), np.log(self.prompt_tokens), self.prompt_share)
        return self._tdp_w * (share - self.idle_share)

    def token_seconds(self, batch: int) -> float:
        return float(np.interp(np.log(batch), np.log(self.batch), self.token_s))

    def token_swing_w(self, batch: int) -> float:
        """Power above idle while a batch generates tokens at full clock."""
        share = float(np.interp(np.log(batch), np.log(self.batch), self.token_share))
        return self._tdp_w * (share - self.idle_share)

    def share_at(self, mhz: float) -> float:
        """Fraction of a phase's power above idle that a locked clock leaves."""
        return float((min(mhz, self.highest_mhz) / self.highest_mhz) ** POWER_EXPONENT)


def _column(*values: float) -> FloatArray:
    return column(values, np.float64)


DGX_A100 = Machine(
    name="DGX A100 serving BLOOM-176B",
    gpus=8,
    gpu_tdp_w=400.0,
    # Non-GPU power: 1500 W at rest and a quarter of the GPUs' power, so that GPUs draw about 60 % of a busy server, as
    # POLCA (arXiv 2308.12908) reports of its row; a full prompt draws 5.6 kW, its measured maximum is 5.7 kW.
    other_w=1500.0,
    watts_per_gpu_watt=1.25,
    idle_share=0.20,
    highest_mhz=1410.0,
    lowest_mhz=210.0,
    # Times and peak power of prompts, and time per token: means over the repetitions of bloom-176b on a100-80gb, 8-way
    # tensor parallel, in the splitwise-sim measurements (8f99e7d, MIT). They carry no power for batches of 64 (zeros).
    prompt_tokens=_column(128, 256, 512, 1024, 2048, 4096, 8192),
    prompt_s=_column(0.0773, 0.0992, 0.174, 0.290, 0.540, 1.355, 3.602),
    prompt_share=_column(0.69, 0.72, 0.88, 1.01, 1.02, 1.02, 1.03),
    batch=_column(1, 2, 4, 8, 16, 32),
    token_s=_column(0.0490, 0.0501, 0.0510, 0.0529, 0.0573, 0.0657),
    # The mean over a request is 0.635 of TDP at batch 1 and 3 % more at 16; its prompt is the hotter part.
    token_share=_column(0.60, 0.60, 0.60, 0.61, 0.62, 0.63),
)
